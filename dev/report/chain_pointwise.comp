// Pointwise operations FIRST to LAST of the chain, one invocation per element: a single operation, or all
// five fused into one kernel, which reads and writes the state once.
#version 460
#include "chain.glsl"

layout(constant_id = 2) const uint FIRST = 0;
layout(constant_id = 3) const uint LAST = 4;

void main() {
    const uint64_t element = global_index();
    if (element >= uint64_t(BATCH) * args.n) return;
    const uint e = uint(element);
    const float before = LAST >= CHAIN_MIX ? args.state.x[e] : 0;
    args.next.x[e] = operate(args.x.x[e], FIRST, LAST, e % args.n, before, args.step);
}
