// dinp = dout weight on software devices: see matmul4.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matmul4.glsl"

layout(push_constant, scalar) uniform Push { MatmulDinpArgs args; };

void main() {
    const uint C = args.C, OC = args.OC;
    if (tile_row(C) >= args.num_rows) return;
    multiply(Operand(args.dout, args.num_rows, OC, 1), Operand(args.weight, C, 1, C), OC);
    [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
        const uint column = tile_column(C, c);
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            const uint row = tile_row(C) + r;
            if (row < args.num_rows && column < C)
                store(real_row(args.dinp, row, C), column, accumulators[r][c]);
        }
    }
}
