// Softmax and cross-entropy: one workgroup takes one row and holds it in registers, as it lies in memory, so that each
// logit is read once and all of the row's loads are under way together; version 3 reads it twice. Needs rows of whole,
// aligned packs of 16 bytes.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { FusedClassifierArgs args; };

layout(constant_id = 2) const uint PACKS = 7;  // that an invocation holds

uvec4 held[PACKS];

uint pack_number(uint k) { return k * BLOCK + gl_LocalInvocationID.x; }
uvec4 columns(uint k, uint four) { return WIDTH * pack_number(k) + 4 * four + uvec4(0, 1, 2, 3); }

// Four logits of those held; -infinity from column V on, the last pack's copies beyond the row included.
vec4 held_logits(uint k, uint four) {
    const vec4 x = unpack_raw(held[k], four), minus_infinity = vec4(uintBitsToFloat(0xff800000u));
    if (WIDTH * (pack_number(k) + 1) <= args.V) return x;
    return mix(x, minus_infinity, greaterThanEqual(columns(k, four), uvec4(args.V)));
}

void main() {
    const uint row = group_index();
    if (row >= args.N) return;
    const uint packs = args.Vp / WIDTH, target = args.targets.x[row];
    Reals logits = real_row(args.logits, row, args.Vp);
    [[unroll]] for (uint k = 0; k < PACKS; k++) held[k] = load_raw(logits, min(pack_number(k), packs - 1));
    vec4 most = vec4(-3.4e38), sums = vec4(0);  // finite: -inf - -inf would be NaN
    [[unroll]] for (uint k = 0; k < PACKS; k++)
        [[unroll]] for (uint j = 0; j < RAW_FOURS; j++) most = max(most, held_logits(k, j));
    const float largest = max(max(most.x, most.y), max(most.z, most.w));
    [[unroll]] for (uint k = 0; k < PACKS; k++)
        [[unroll]] for (uint j = 0; j < RAW_FOURS; j++) sums += exp(held_logits(k, j) - largest);
    const float row_largest = block_max(largest);
    const float row_sum = block_sum(((sums.x + sums.y) + (sums.z + sums.w)) * exp(largest - row_largest));
    // the invocation that will overwrite the target's logit is the one that may read it
    if (gl_LocalInvocationID.x == target / WIDTH % BLOCK)
        args.losses.x[row] = log(row_sum) + row_largest - load(logits, target);
    if (args.write_gradients == 0) return;
    const float factor = args.dloss / row_sum;
    [[unroll]] for (uint k = 0; k < PACKS; k++) {
        vec4 gradients[RAW_FOURS];
        [[unroll]] for (uint j = 0; j < RAW_FOURS; j++) {
            gradients[j] = exp(held_logits(k, j) - row_largest) * factor;
            if (pack_number(k) == target / WIDTH)
                gradients[j] -= args.dloss * vec4(equal(columns(k, j), uvec4(target)));
        }
        if (pack_number(k) < packs) store_raw(logits, pack_number(k), gradients);
    }
}
