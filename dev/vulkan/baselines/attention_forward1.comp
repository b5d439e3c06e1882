// Attention, plain port: one invocation computes one query of one head. It loops over the keys that the query
// sees, with an online softmax: a running maximum and sum.
#version 460
#include "util.glsl"

layout(constant_id = 1) const uint HS = 64;
layout(push_constant, scalar) uniform Push { AttentionForwardArgs args; };

void main() {
    const uint64_t row = global_index();  // of lse (B, NH, T)
    const uint T = args.T, C = args.C, NH = args.NH;
    if (row >= uint64_t(args.B) * NH * T) return;
    const uint t = uint(row % T), head = uint(row / T % NH) * HS;
    const uint64_t sequence = row / T / NH * T;
    Reals query = real_row(args.qkv, sequence + t, 3 * C);
    float q[HS], accumulators[HS];
    for (uint c = 0; c < HS; c++) {
        q[c] = load(query, head + c) / sqrt(float(HS));
        accumulators[c] = 0;
    }
    float maximum = -1e38, sum = 0;
    for (uint j = 0; j <= t; j++) {
        Reals key = real_row(args.qkv, sequence + j, 3 * C);
        float score = 0;
        for (uint c = 0; c < HS; c++) score += q[c] * load(key, C + head + c);
        const float larger = max(maximum, score);
        const float factor = exp(maximum - larger), p = exp(score - larger);
        for (uint c = 0; c < HS; c++)
            accumulators[c] = accumulators[c] * factor + p * load(key, 2 * C + head + c);
        sum = sum * factor + p;
        maximum = larger;
    }
    Reals outp = real_row(args.outp, sequence + t, C);
    for (uint c = 0; c < HS; c++) store(outp, head + c, accumulators[c] / sum);
    float_row(args.lse, row, 1).x[0] = maximum + log(sum);
}
