// Attention of new rows over all rows so far: one workgroup computes one head of one new row. Each invocation goes
// through every BLOCK-th key with a running maximum and sum, and the results of all are put together at the end.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(constant_id = 1) const uint HS = 64;
layout(push_constant, scalar) uniform Push { CachedAttentionForwardArgs args; };

void main() {
    const uint group = group_index(), C = args.C, NH = args.NH, me = gl_LocalInvocationID.x;
    const uint row = group / NH, head = group % NH * HS;
    if (row >= args.N) return;
    const uint keys = args.first + row + 1;
    Reals query = real_row(args.qkv, args.first + row, 3 * C);
    float q[HS], sums[HS];
    for (uint c = 0; c < HS; c++) {
        q[c] = load(query, head + c) / sqrt(float(HS));
        sums[c] = 0;
    }
    float maximum = -1e38, sum = 0;
    for (uint j = me; j < keys; j += BLOCK) {
        Reals key = real_row(args.qkv, j, 3 * C);
        float score = 0;
        for (uint c = 0; c < HS; c++) score += q[c] * load(key, C + head + c);
        const float larger = max(maximum, score);
        const float factor = exp(maximum - larger), p = exp(score - larger);
        for (uint c = 0; c < HS; c++) sums[c] = sums[c] * factor + p * load(key, 2 * C + head + c);
        sum = sum * factor + p;
        maximum = larger;
    }
    const float factor = exp(maximum - block_max(maximum));  // 0 where this invocation had no key
    const float total = block_sum(sum * factor);
    Reals outp = real_row(args.outp, row, C);
    for (uint c = 0; c < HS; c++) {
        const float v = block_sum(sums[c] * factor);
        if (me == c % BLOCK) store(outp, head + c, v / total);
    }
}
