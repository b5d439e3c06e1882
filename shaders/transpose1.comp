// The transpose of a matrix whose rows and columns are multiples of 8. One invocation takes a block of 8 x 8. Eight
// neighbours read 128 bytes of a row, of 16-bit numbers, and those that are eight apart write next to each other.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { TransposeArgs args; };

void main() {
    const uint down = args.rows / 8, across = args.columns / 8, wide = (across + 7) / 8;  // of blocks; of eights of them
    const uint i = uint(global_index()), row = i / 32 / wide * 4 + i / 8 % 4, column = i / 32 % wide * 8 + i % 8;
    if (row >= down || column >= across) return;
    mat2x4 lines[8];
    [[unroll]] for (uint r = 0; r < 8; r++) lines[r] = load8(args.inp, (row * 8 + r) * across + column);
    [[unroll]] for (uint c = 0; c < 8; c++) {
        mat2x4 turned;
        [[unroll]] for (uint r = 0; r < 8; r++) turned[r / 4][r % 4] = lines[r][c / 4][c % 4];
        store8(args.outp, (column * 8 + c) * down + row, turned);
    }
}
