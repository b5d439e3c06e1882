// Reads shared memory with contiguous accesses of 16 bytes per invocation: the shared-memory bandwidth. An
// iteration has 8 accesses. Their addresses change in each iteration, so that the compiler cannot hoist them
// out of the loop.
#version 460
#include "util.glsl"

layout(push_constant, scalar) uniform Push { PeakFmaArgs args; };

const uint READS = 8;
shared vec4 values[READS * BLOCK];  // 16 KiB with 128 invocations, which every device has

void main() {
    [[unroll]] for (uint k = 0; k < READS; k++) values[k * BLOCK + gl_LocalInvocationID.x] = vec4(k);
    barrier();
    vec4 sums[4] = {vec4(0), vec4(0), vec4(0), vec4(0)};
    for (int iteration = 0; iteration < args.iterations; iteration++) {
        const uint first = (gl_LocalInvocationID.x + uint(iteration)) % BLOCK;  // a power of two
        [[unroll]] for (uint k = 0; k < READS; k++) sums[k % 4] += values[k * BLOCK + first];
    }
    const vec4 sum = sums[0] + sums[1] + sums[2] + sums[3];
    float_row(args.outp, global_index(), 1).x[0] = sum.x + sum.y + sum.z + sum.w;
}
