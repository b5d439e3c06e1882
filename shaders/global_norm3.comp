// Sums of squares: version 2 with 16-byte accesses. Needs an aligned slice; PIECE is a multiple of WIDTH, 4 or 8, and
// only the last piece has a rest that is no pack.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { GlobalNormArgs args; };
layout(constant_id = 2) const uint PIECE = 16384;
const uint UNDER_WAY = 4;  // reads of an invocation at a time

vec4 squares_of(mat2x4 g) { return g[0] * g[0] + g[1] * g[1]; }

void main() {
    const uint piece = group_index();
    const uint64_t start = uint64_t(piece) * PIECE;
    if (start >= args.n) return;
    Reals grads = real_row(args.grads, piece, PIECE);
    const uint count = uint(min(args.n - start, uint64_t(PIECE))), first = gl_LocalInvocationID.x;
    vec4 squares = vec4(0);
    uint pack = first;
    for (; pack + (UNDER_WAY - 1) * BLOCK < count / WIDTH; pack += UNDER_WAY * BLOCK) {
        mat2x4 g[UNDER_WAY];
        [[unroll]] for (uint k = 0; k < UNDER_WAY; k++) g[k] = load_wide(grads, pack + k * BLOCK);
        [[unroll]] for (uint k = 0; k < UNDER_WAY; k++) squares += squares_of(g[k]);
    }
    for (; pack < count / WIDTH; pack += BLOCK) squares += squares_of(load_wide(grads, pack));
    float sum = (squares.x + squares.y) + (squares.z + squares.w);
    for (uint i = count / WIDTH * WIDTH + first; i < count; i += BLOCK) sum += load(grads, i) * load(grads, i);
    sum = block_sum(sum);
    if (first == 0) args.partials.x[piece] = sum;
}
