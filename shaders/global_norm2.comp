// Sums of squares: one workgroup sums one piece of PIECE elements, neighbouring invocations neighbouring elements.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { GlobalNormArgs args; };
layout(constant_id = 1) const uint PIECE = 16384;

void main() {
    const uint piece = group_index();
    const uint64_t start = uint64_t(piece) * PIECE;
    if (start >= args.n) return;
    Reals grads = real_row(args.grads, piece, PIECE);
    const uint count = uint(min(args.n - start, uint64_t(PIECE)));
    float sum = 0;
    for (uint i = gl_LocalInvocationID.x; i < count; i += BLOCK) sum += load(grads, i) * load(grads, i);
    sum = block_sum(sum);
    if (gl_LocalInvocationID.x == 0) args.partials.x[piece] = sum;
}
