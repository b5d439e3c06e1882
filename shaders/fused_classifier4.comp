// Softmax and cross-entropy: version 3 with a part of the row kept in shared memory between its two passes. That saves
// reads, and, more, the room it takes keeps the number of rows at work so low that the rest of each stays in the cache:
// with version 3, an H200 reads every row from memory twice. Needs rows of whole, aligned packs of 16 bytes.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { FusedClassifierArgs args; };

layout(constant_id = 2) const uint KEPT = 1152;  // packs
const uint UNDER_WAY = 4;                        // reads of an invocation at a time

shared uvec4 kept[KEPT];  // an invocation reads back what it wrote itself

uvec4 columns(uint pack, uint four) { return WIDTH * pack + 4 * four + uvec4(0, 1, 2, 3); }

// Four logits of a pack; -infinity from column V on.
vec4 logits_of(uvec4 raw, uint pack, uint four) {
    const vec4 x = unpack_raw(raw, four);
    if (WIDTH * (pack + 1) <= args.V) return x;
    return mix(x, vec4(uintBitsToFloat(0xff800000u)), greaterThanEqual(columns(pack, four), uvec4(args.V)));
}

void main() {
    const uint row = group_index();
    if (row >= args.N) return;
    const uint packs = args.Vp / WIDTH, target = args.targets.x[row], first = gl_LocalInvocationID.x;
    Reals logits = real_row(args.logits, row, args.Vp);
    float largest = -3.4e38, sum = 0;
    uvec4 raw[UNDER_WAY];
    for (uint start = first; start < packs; start += UNDER_WAY * BLOCK) {
        // packs beyond the row read its last one, and count as columns beyond V: no branch holds the loads up
        [[unroll]] for (uint j = 0; j < UNDER_WAY; j++) raw[j] = load_raw(logits, min(start + j * BLOCK, packs - 1));
        vec4 most = vec4(-3.4e38), e = vec4(0);
        [[unroll]] for (uint j = 0; j < UNDER_WAY; j++) {
            const uint pack = start + j * BLOCK;
            if (pack < KEPT) kept[pack] = raw[j];
            [[unroll]] for (uint k = 0; k < RAW_FOURS; k++) most = max(most, logits_of(raw[j], pack, k));
        }
        const float before = largest;
        largest = max(largest, max(max(most.x, most.y), max(most.z, most.w)));
        [[unroll]] for (uint j = 0; j < UNDER_WAY; j++)
            [[unroll]] for (uint k = 0; k < RAW_FOURS; k++) e += exp(logits_of(raw[j], start + j * BLOCK, k) - largest);
        sum = sum * exp(before - largest) + ((e.x + e.y) + (e.z + e.w));
    }
    const float row_largest = block_max(largest);
    const float row_sum = block_sum(sum * exp(largest - row_largest));
    // the invocation that will overwrite the target's logit is the one that may read it
    if (first == target / WIDTH % BLOCK) args.losses.x[row] = log(row_sum) + row_largest - load(logits, target);
    if (args.write_gradients == 0) return;
    const float factor = args.dloss / row_sum;
    for (uint start = first; start < packs; start += UNDER_WAY * BLOCK) {
        [[unroll]] for (uint j = 0; j < UNDER_WAY; j++) {
            const uint pack = start + j * BLOCK;
            if (pack < KEPT)
                raw[j] = kept[pack];
            else
                raw[j] = load_raw(logits, pack < packs ? pack : start);  // beyond the row: one that nobody else writes
        }
        [[unroll]] for (uint j = 0; j < UNDER_WAY; j++) {
            const uint pack = start + j * BLOCK;
            vec4 gradients[RAW_FOURS];
            [[unroll]] for (uint k = 0; k < RAW_FOURS; k++) {
                gradients[k] = exp(logits_of(raw[j], pack, k) - row_largest) * factor;
                if (pack == target / WIDTH) gradients[k] -= args.dloss * vec4(equal(columns(pack, k), uvec4(target)));
            }
            if (pack < packs) store_raw(logits, pack, gradients);
        }
    }
}
