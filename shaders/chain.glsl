// What the kernels of the chain share (dev/report/chain.h): its operations and its product.
#include "util.glsl"

layout(constant_id = 1) const uint BATCH = 1;

layout(push_constant, scalar) uniform Push { ChainArgs args; };

// Operations first to last on element i of a state, which was `before` when the round began.
float operate(float x, uint first, uint last, uint i, float before, uint round) {
    if (first <= CHAIN_ADD) x += args.inputs.x[round % CHAIN_PERIOD * args.n + i];
    if (first <= CHAIN_TANH && last >= CHAIN_TANH) x = tanh(x);
    if (first <= CHAIN_SCALE && last >= CHAIN_SCALE) x *= args.gain.x[i];
    if (first <= CHAIN_MIX && last >= CHAIN_MIX) x += args.leak.x[i] * (before - x);
    if (last >= CHAIN_SQUASH) x /= 1 + abs(x);
    return x;
}

// The products of one row of the weights with all states: lanes share the work, then lane l takes the sum of state
// base + l.
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
