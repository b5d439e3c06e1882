// out = inp weight^T + bias on software devices: see matmul4.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matmul4.glsl"

layout(push_constant, scalar) uniform Push { MatmulForwardArgs args; };

void main() {
    const uint C = args.C, OC = args.OC;
    if (tile_row(OC) >= args.num_rows) return;
    multiply(Operand(args.inp, args.num_rows, C, 1), Operand(args.weight, OC, C, 1), C);
    [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
        const uint column = tile_column(OC, c);
        const float bias = column < OC && uint64_t(args.bias) != 0 ? load(args.bias, column) : 0;
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            const uint row = tile_row(OC) + r;
            if (row < args.num_rows && column < OC)
                store(real_row(args.outp, row, OC), column, accumulators[r][c] + bias);
        }
    }
}
