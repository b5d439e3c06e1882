// Softmax and cross-entropy: one workgroup per row, with 16-byte accesses and several loads in flight.
// Maximum and sum come from one pass (online softmax): the running sum is rescaled once per group of packs.
// So the row is read twice, where version 1 reads it three times. The target's column and the columns past
// the last whole pack are processed separately, and with a WIDTH of 1 all columns are.
#version 460
#include "packs.glsl"
#include "block_sum.glsl"

layout(push_constant, scalar) uniform Push { FusedClassifierArgs args; };

const uint IN_FLIGHT = 4;  // loads that an invocation has in flight
const float LOG2E = 1.44269504, NONE = -3.4e38;  // NONE: below every logit

// Over this invocation's columns: the maximum, the sum of exp(x - largest), and the largest magnitudes' bits.
float largest = NONE, sum = 0;
uvec4 magnitudes = uvec4(0);

// Adds the first `count` packs of x to the sum.
void add(mat2x4 x[IN_FLIGHT], uint count) {
    vec4 maxima = x[0][0], exps = vec4(0);
    [[unroll]] for (uint j = 0; j < count; j++)
        [[unroll]] for (uint k = 0; k < FOURS; k++) {
            maxima = max(maxima, x[j][k]);
            magnitudes = max(magnitudes, floatBitsToUint(x[j][k]) & MAGNITUDE_BITS);
        }
    const float before = largest;
    largest = max(largest, max(max(maxima.x, maxima.y), max(maxima.z, maxima.w)));
    [[unroll]] for (uint j = 0; j < count; j++)
        [[unroll]] for (uint k = 0; k < FOURS; k++) exps += exp2((x[j][k] - largest) * LOG2E);
    sum = sum * exp2((before - largest) * LOG2E) + ((exps.x + exps.y) + (exps.z + exps.w));
}

// Element i of a pack, and setting it. The element of a row that is the target is loaded and stored as a part
// of its pack: compilers may reorder accesses of different widths (Metal's types do not alias).
float element(mat2x4 x, uint i) {
    float v = x[0][0];
    [[unroll]] for (uint k = 1; k < WIDTH; k++)
        if (i == k) v = x[k / 4][k % 4];
    return v;
}
void set_element(inout mat2x4 x, uint i, float v) {
    [[unroll]] for (uint k = 0; k < WIDTH; k++)
        if (i == k) x[k / 4][k % 4] = v;
}

void main() {
    const uint row = group_index();
    if (row >= args.num_rows) return;
    const uint V = args.V, whole = WIDTH == 1 ? 0 : V / WIDTH, target = args.targets.x[row];
    const uint first = gl_LocalInvocationID.x;
    Reals logits = real_row(args.logits, row, args.Vp);
    if (target >= V) {  // of all invocations of the workgroup: the row does not count
        if (first == 0) args.losses.x[row] = 0;
        if (args.write_gradients != 0)
            // zeros; from literals, spirv-opt would make 16-bit constants, which are not allowed
            for (uint c = first; c < args.Vp; c += BLOCK) store(logits, c, float(target < V));
        return;
    }
    mat2x4 x[IN_FLIGHT];
    uint pack = first;
    for (; pack + (IN_FLIGHT - 1) * BLOCK < whole; pack += IN_FLIGHT * BLOCK) {
        [[unroll]] for (uint j = 0; j < IN_FLIGHT; j++) x[j] = load_wide(logits, pack + j * BLOCK);
        add(x, IN_FLIGHT);
    }
    for (; pack < whole; pack += BLOCK) {
        x[0] = load_wide(logits, pack);
        add(x, 1);
    }
    for (uint c = whole * WIDTH + first; c < V; c += BLOCK) {
        x[0] = mat2x4(vec4(load(logits, c), NONE, NONE, NONE), vec4(NONE));
        add(x, 1);
    }
    if (any(greaterThan(magnitudes, uvec4(INFINITY_BITS)))) largest = infinity();  // NaN
    const float row_largest = block_max(largest);
    const bool valid = is_finite(row_largest);
    const float row_sum = block_sum(sum * exp2((largest - row_largest) * LOG2E));
    // true in the invocation that overwrites the target's pack or column
    const bool has_target =
        first == (target < whole * WIDTH ? target / WIDTH : target - whole * WIDTH) % BLOCK;
    const uint target_pack = has_target && target < whole * WIDTH ? target / WIDTH : ~0u;
    float at_target = 0;
    if (target_pack != ~0u)
        at_target = element(load_wide(logits, target_pack), target % WIDTH);
    else if (has_target)
        at_target = load(logits, target);
    if (has_target) args.losses.x[row] = valid ? log(row_sum) + row_largest - at_target : not_a_number();
    if (args.write_gradients == 0) return;

    const float factor = valid ? args.dloss / row_sum : not_a_number();
    // Rounded as store() does it, and not changed by the rounding of a whole pack.
    const float target_gradient =
        stored(vec4(exp2((at_target - row_largest) * LOG2E) * factor - args.dloss)).x;
    // from the end of the row: the first pass read it last, so it is the most likely to be still cached
    for (uint c = whole * WIDTH + first; c < args.Vp; c += BLOCK) {
        const float gradient = c < V ? exp2((load(logits, c) - row_largest) * LOG2E) * factor : 0;
        store(logits, c, c == target ? target_gradient : gradient);
    }
    uint count = whole > first ? (whole - first + BLOCK - 1) / BLOCK : 0;  // whole packs of this invocation
    for (; count % IN_FLIGHT != 0; count--) {
        x[0] = load_wide(logits, first + (count - 1) * BLOCK);
        [[unroll]] for (uint k = 0; k < FOURS; k++) x[0][k] = exp2((x[0][k] - row_largest) * LOG2E) * factor;
        if (first + (count - 1) * BLOCK == target_pack) set_element(x[0], target % WIDTH, target_gradient);
        store_wide_ties_away(logits, first + (count - 1) * BLOCK, x[0]);
    }
    for (; count > 0; count -= IN_FLIGHT) {
        const uint start = first + (count - IN_FLIGHT) * BLOCK;
        [[unroll]] for (uint j = 0; j < IN_FLIGHT; j++) x[j] = load_wide(logits, start + j * BLOCK);
        [[unroll]] for (uint j = 0; j < IN_FLIGHT; j++) {
            [[unroll]] for (uint k = 0; k < FOURS; k++)
                x[j][k] = exp2((x[j][k] - row_largest) * LOG2E) * factor;
            if (start + j * BLOCK == target_pack) set_element(x[j], target % WIDTH, target_gradient);
            store_wide_ties_away(logits, start + j * BLOCK, x[j]);
        }
    }
}
