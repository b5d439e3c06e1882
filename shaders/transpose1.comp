// Transpose of a matrix whose sizes are multiples of 8. One invocation transposes one tile of 8 x 8. With
// 16-bit elements, eight consecutive invocations read 128 contiguous bytes of a row; invocations that are
// eight apart write to adjacent addresses.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { TransposeArgs args; };

void main() {
    const uint tile_rows = args.rows / 8, tile_columns = args.columns / 8;
    const uint groups = (tile_columns + 7) / 8;  // of 4 x 8 tiles, side by side
    const uint i = uint(global_index());
    const uint row = i / 32 / groups * 4 + i / 8 % 4, column = i / 32 % groups * 8 + i % 8;  // of tiles
    if (row >= tile_rows || column >= tile_columns) return;
    mat2x4 tile[8];
    [[unroll]] for (uint r = 0; r < 8; r++) tile[r] = load8(args.inp, (row * 8 + r) * tile_columns + column);
    [[unroll]] for (uint c = 0; c < 8; c++) {
        mat2x4 transposed;
        [[unroll]] for (uint r = 0; r < 8; r++) transposed[r / 4][r % 4] = tile[r][c / 4][c % 4];
        store8(args.outp, (column * 8 + c) * tile_rows + row, transposed);
    }
}
