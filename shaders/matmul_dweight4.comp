// dweight = dout^T inp, or += if args.accumulate, on software devices: see matmul4.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matmul4.glsl"

layout(push_constant, scalar) uniform Push { MatmulDweightArgs args; };

void main() {
    const uint C = args.C, OC = args.OC;
    if (tile_row(C) >= OC) return;
    multiply(Operand(args.dout, OC, 1, OC), Operand(args.inp, C, 1, C), args.num_rows);
    [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
        const uint column = tile_column(C, c);
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            const uint row = tile_row(C) + r;
            Reals dweight = real_row(args.dweight, row, C);
            if (row >= OC || column >= C) continue;
            if (args.accumulate != 0) accumulators[r][c] += load(dweight, column);
            store(dweight, column, accumulators[r][c]);
        }
    }
}
