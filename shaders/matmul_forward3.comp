// out = inp weight^T + bias with register blocking: see matmul3.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matmul3.glsl"

layout(push_constant, scalar) uniform Push { MatmulForwardArgs args; };

void main() {
    const Tile tile = find_tile(args.num_rows, OC, 1);
    if (tile.outside) return;
    multiply(Operand(args.inp, args.num_rows, C, false), Operand(args.weight, OC, C, false), tile, 0, C);
    if (k_group() != 0) return;
    [[unroll]] for (uint j = 0; j < 2; j++) {
        const uint column = tile.column + column_in_tile(j);
        vec4 bias = vec4(0);
        if (column < OC && uint64_t(args.bias) != 0)
            bias = load_four(uint64_t(args.bias) + column * REAL_BYTES, OC - column);
        [[unroll]] for (uint i = 0; i < ROWS; i++) {
            const uint row = tile.row + row_in_tile(i);
            if (row < args.num_rows && column < OC)
                store_four(real_row(args.outp, row, OC), column, accumulators[i][j] + bias, OC);
        }
    }
}
