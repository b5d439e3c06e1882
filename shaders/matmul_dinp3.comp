// dinp = dout weight with register blocking: see matmul3.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matmul3.glsl"

layout(push_constant, scalar) uniform Push { MatmulDinpArgs args; };

void main() {
    const Tile tile = find_tile(args.num_rows, C, 1);
    if (tile.outside) return;
    multiply(Operand(args.dout, args.num_rows, OC, false), Operand(args.weight, C, C, true), tile, 0, OC);
    if (k_group() != 0) return;
    [[unroll]] for (uint i = 0; i < ROWS; i++)
        [[unroll]] for (uint j = 0; j < 2; j++) {
            const uint row = tile.row + row_in_tile(i), column = tile.column + column_in_tile(j);
            if (row < args.num_rows && column < C)
                store_four(real_row(args.dinp, row, C), column, accumulators[i][j], C);
        }
}
