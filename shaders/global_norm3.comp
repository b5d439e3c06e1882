// Sums of squares: one workgroup sums one chunk of CHUNK elements, with 16-byte accesses if the slice is
// aligned. CHUNK is a multiple of WIDTH, so only the last chunk may end with an incomplete pack.
#version 460
#include "packs.glsl"
#include "block_sum.glsl"

layout(push_constant, scalar) uniform Push { GlobalNormArgs args; };
layout(constant_id = 2) const uint CHUNK = 16384;
const uint IN_FLIGHT = 4;  // loads that an invocation has in flight

vec4 squares_of(mat2x4 g) { return g[0] * g[0] + g[1] * g[1]; }

void main() {
    const uint chunk = group_index();
    const uint64_t start = uint64_t(chunk) * CHUNK;
    if (start >= args.n) return;
    Reals grads = real_row(args.grads, chunk, CHUNK);
    const uint count = uint(min(args.n - start, uint64_t(CHUNK))), first = gl_LocalInvocationID.x;
    vec4 squares = vec4(0);
    uint pack = first;
    for (; pack + (IN_FLIGHT - 1) * BLOCK < count / WIDTH; pack += IN_FLIGHT * BLOCK) {
        mat2x4 g[IN_FLIGHT];
        [[unroll]] for (uint k = 0; k < IN_FLIGHT; k++) g[k] = load_wide(grads, pack + k * BLOCK);
        [[unroll]] for (uint k = 0; k < IN_FLIGHT; k++) squares += squares_of(g[k]);
    }
    for (; pack < count / WIDTH; pack += BLOCK) squares += squares_of(load_wide(grads, pack));
    float sum = (squares.x + squares.y) + (squares.z + squares.w);
    for (uint i = count / WIDTH * WIDTH + first; i < count; i += BLOCK)
        sum += load(grads, i) * load(grads, i);
    sum = block_sum(sum);
    if (first == 0) args.partials.x[chunk] = sum;
}
