// Attention of new rows over all rows so far: one workgroup computes one head of one new row. Each invocation
// runs an online softmax over every BLOCK-th key; a reduction over the workgroup combines their results.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(constant_id = 1) const uint HS = 64;
layout(push_constant, scalar) uniform Push { CachedAttentionForwardArgs args; };

shared float q[HS];  // the query, scaled

void main() {
    const uint group = group_index(), C = args.C, NH = args.NH, me = gl_LocalInvocationID.x;
    const uint row = group / NH, head = group % NH * HS;
    if (row >= args.num_rows) return;
    const uint keys = args.first + row + 1;
    Reals query = real_row(args.qkv, args.first + row, 3 * C);
    for (uint c = me; c < HS; c += BLOCK) q[c] = load(query, head + c) / sqrt(float(HS));
    barrier();
    float accumulators[HS];  // loops over it are unrolled, so that it is in registers
    [[unroll]] for (uint c = 0; c < HS; c++) accumulators[c] = 0;
    float maximum = -1e38, sum = 0;
    for (uint j = me; j < keys; j += BLOCK) {
        Reals key = real_row(args.qkv, j, 3 * C);
        float score = 0;
        for (uint c = 0; c < HS; c++) score += q[c] * load(key, C + head + c);
        const float larger = max(maximum, score);
        const float factor = exp(maximum - larger), p = exp(score - larger);
        [[unroll]] for (uint c = 0; c < HS; c++)
            accumulators[c] = accumulators[c] * factor + p * load(key, 2 * C + head + c);
        sum = sum * factor + p;
        maximum = larger;
    }
    const float factor = exp(maximum - block_max(maximum));  // 0 if this invocation had no key
    const float total = block_sum(sum * factor);
    Reals outp = real_row(args.outp, row, C);
    [[unroll]] for (uint c = 0; c < HS; c++) {
        const float v = block_sum(accumulators[c] * factor);
        if (me == c % BLOCK) store(outp, head + c, v / total);
    }
}
