// Many steps of the chain in one dispatch: a single workgroup keeps the states in shared memory, and a
// barrier instead of a dispatch separates the steps. Each subgroup loops over rows of the weight. This is
// fast as long as a single SM can load the weight fast enough.
#version 460
#include "chain.glsl"

layout(constant_id = 2) const uint N = 16;

shared float states[2][BATCH * N];  // before and after a step

void main() {
    for (uint e = gl_LocalInvocationID.x; e < BATCH * N; e += BLOCK) states[0][e] = args.state.x[e];
    for (uint step = 0; step < args.steps; step++) {
        const uint now = step % 2;
        barrier();
        for (uint row = gl_SubgroupID; row < N; row += gl_NumSubgroups) {
            Floats weight = float_row(args.weight, row, N);
            [[unroll]] for (uint b = 0; b < BATCH; b++) sums[b] = 0;
            for (uint k = gl_SubgroupInvocationID; k < N; k += gl_SubgroupSize) {
                const float w = weight.x[k];
                [[unroll]] for (uint b = 0; b < BATCH; b++) sums[b] += w * states[now][b * N + k];
            }
            sum_over_lanes();
            for (uint base = 0; base < BATCH; base += gl_SubgroupSize) {
                const float sum = sum_of_lane(base);
                const uint b = base + gl_SubgroupInvocationID;
                if (b < BATCH)
                    states[1 - now][b * N + row] =
                        operate(sum, CHAIN_ADD, CHAIN_SQUASH, row, states[now][b * N + row],
                                args.step + step);
            }
        }
    }
    barrier();
    for (uint e = gl_LocalInvocationID.x; e < BATCH * N; e += BLOCK)
        args.next.x[e] = states[args.steps % 2][e];
}
