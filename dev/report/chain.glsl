// Shared code of the chain kernels (dev/report/chain.h): the pointwise operations and the dot products.
#include "util.glsl"
#include "chain_args.h"

layout(constant_id = 1) const uint BATCH = 1;

layout(push_constant, scalar) uniform Push { ChainArgs args; };

// Applies the operations `first` to `last` to element i of a state. `before`: its value when the step began.
float operate(float x, uint first, uint last, uint i, float before, uint step) {
    if (first <= CHAIN_ADD) x += args.inputs.x[step % CHAIN_PERIOD * args.n + i];
    if (first <= CHAIN_TANH && last >= CHAIN_TANH) x = tanh(x);
    if (first <= CHAIN_SCALE && last >= CHAIN_SCALE) x *= args.gain.x[i];
    if (first <= CHAIN_MIX && last >= CHAIN_MIX) x += args.leak.x[i] * (before - x);
    if (last >= CHAIN_SQUASH) x /= 1 + abs(x);
    return x;
}

// Dot products of one row of the weight with all states: each invocation of the subgroup has a partial sum
// for each state. sum_of_lane() then gives invocation l the sum for state base + l.
float sums[BATCH];
void sum_over_lanes() {
    [[unroll]] for (uint b = 0; b < BATCH; b++) sums[b] = subgroupAdd(sums[b]);
}
float sum_of_lane(uint base) {
    float sum = 0;
    [[unroll]] for (uint b = 0; b < BATCH; b++)
        if (b == base + gl_SubgroupInvocationID) sum = sums[b];
    return sum;
}
