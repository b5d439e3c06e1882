// Attention of the newest row of a few texts over their cached keys and values: one workgroup per text and
// head. It takes BLOCK keys at a time: each invocation computes the score of one key; then groups of
// invocations, of which each owns a pack of channels, sum the values, weighted by the scores' powers. The
// softmax is rescaled from block to block, and the groups' sums are added at the end.
#version 460
#include "packs.glsl"
#include "block_sum.glsl"

layout(constant_id = 2) const uint HS = 64;
layout(push_constant, scalar) uniform Push { DecodeAttentionArgs args; };

const uint PACKS = HS / WIDTH;  // of a head: invocations of a group
const uint GROUPS = BLOCK / PACKS;

shared vec4 query[PACKS * FOURS];
shared float powers[BLOCK];
shared vec4 partial[BLOCK * FOURS];

void main() {
    const uint text = group_index() / args.NH, head = group_index() % args.NH * HS;
    if (text >= uint(args.num_texts)) return;
    const uint me = gl_LocalInvocationID.x, C = args.C, keys = args.positions.x[text] + 1;
    const uint my_pack = me % PACKS, my_group = me / PACKS;
    Reals cache = real_row(args.cache, uint64_t(text) * uint(args.T), 3 * C);
    if (me < PACKS) {
        const mat2x4 q = load_wide(real_row(cache, uint64_t(keys - 1) * (3 * C) + head, 1), me);
        [[unroll]] for (uint four = 0; four < FOURS; four++)
            query[me * FOURS + four] = q[four] * (1 / sqrt(float(HS)));
    }
    barrier();
    float maximum = -1e38, sum = 0;
    mat2x4 accumulators = mat2x4(0);
    for (uint start = 0; start < keys; start += BLOCK) {
        const uint count = min(BLOCK, keys - start);
        float score = -1e38;
        if (me < count) {
            Reals key = real_row(cache, uint64_t(start + me) * (3 * C) + C + head, 1);
            score = 0;
            [[unroll]] for (uint i = 0; i < PACKS; i++) {
                const mat2x4 k = load_wide(key, i);
                [[unroll]] for (uint four = 0; four < FOURS; four++)
                    score += dot(query[i * FOURS + four], k[four]);
            }
        }
        const float larger = max(maximum, block_max(score)), factor = exp(maximum - larger);
        const float power = me < count ? exp(score - larger) : 0;
        maximum = larger;
        sum = sum * factor + power;
        powers[me] = power;
        accumulators *= factor;
        barrier();
        if (my_group < GROUPS)
            for (uint j = my_group; j < count; j += GROUPS)
                accumulators +=
                    powers[j] * load_wide(real_row(cache, uint64_t(start + j) * (3 * C) + 2 * C + head, 1),
                                          my_pack);
        barrier();  // before the next block's powers
    }
    const float total = block_sum(sum);
    [[unroll]] for (uint four = 0; four < FOURS; four++) partial[me * FOURS + four] = accumulators[four];
    barrier();
    for (uint groups = GROUPS; groups > 1;) {
        const uint half_groups = (groups + 1) / 2;
        if (my_group + half_groups < groups)
            [[unroll]] for (uint four = 0; four < FOURS; four++)
                partial[me * FOURS + four] += partial[(me + half_groups * PACKS) * FOURS + four];
        groups = half_groups;
        barrier();
    }
    if (me >= PACKS) return;
    mat2x4 result = mat2x4(0);
    [[unroll]] for (uint four = 0; four < FOURS; four++) result[four] = partial[me * FOURS + four] / total;
    store_wide(real_row(args.outp, uint64_t(text) * C + head, 1), me, result);
}
