// The GEMM of the chain: x = weight times state. One subgroup computes one row of the weight, which
// it reads once for all states. With FUSED, the invocations that hold the sums also apply the five pointwise
// operations, so that a step is one dispatch.
#version 460
#include "chain.glsl"

layout(constant_id = 2) const bool FUSED = false;

void main() {
    const uint row = group_index() * gl_NumSubgroups + gl_SubgroupID, n = args.n;
    if (row >= n) return;
    Floats weight = float_row(args.weight, row, n);
    [[unroll]] for (uint b = 0; b < BATCH; b++) sums[b] = 0;
    for (uint k = gl_SubgroupInvocationID; k < n; k += gl_SubgroupSize) {
        const float w = weight.x[k];
        [[unroll]] for (uint b = 0; b < BATCH; b++) sums[b] += w * args.state.x[b * n + k];
    }
    sum_over_lanes();
    for (uint base = 0; base < BATCH; base += gl_SubgroupSize) {
        const float sum = sum_of_lane(base);
        const uint b = base + gl_SubgroupInvocationID;
        if (b >= BATCH) continue;
        if (FUSED)
            args.next.x[b * n + row] =
                operate(sum, CHAIN_ADD, CHAIN_SQUASH, row, args.state.x[b * n + row], args.step);
        else
            args.x.x[b * n + row] = sum;
    }
}
