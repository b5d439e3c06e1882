// Sums of squares: one workgroup sums one chunk of CHUNK elements with coalesced accesses.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { GlobalNormArgs args; };
layout(constant_id = 1) const uint CHUNK = 16384;

void main() {
    const uint chunk = group_index();
    const uint64_t start = uint64_t(chunk) * CHUNK;
    if (start >= args.n) return;
    Reals grads = real_row(args.grads, chunk, CHUNK);
    const uint count = uint(min(args.n - start, uint64_t(CHUNK)));
    float sum = 0;
    for (uint i = gl_LocalInvocationID.x; i < count; i += BLOCK) sum += load(grads, i) * load(grads, i);
    sum = block_sum(sum);
    if (gl_LocalInvocationID.x == 0) args.partials.x[chunk] = sum;
}
