// Softmax and cross-entropy: one workgroup per row, with coalesced accesses. Maximum and sum come from one
// pass: each invocation rescales its sum whenever its maximum grows (online softmax). So the row is read
// twice, where version 1 reads it three times.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { FusedClassifierArgs args; };

void main() {
    const uint row = group_index();
    if (row >= args.num_rows) return;
    const uint V = args.V, target = args.targets.x[row], first = gl_LocalInvocationID.x;
    Reals logits = real_row(args.logits, row, args.Vp);
    float largest = -3.4e38, sum = 0;  // finite: -inf - -inf would be NaN
    uint magnitude = 0;
    for (uint c = first; c < V; c += BLOCK) {
        const float x = load(logits, c), before = largest;
        largest = max(largest, x);
        magnitude = max(magnitude, floatBitsToUint(x) & MAGNITUDE_BITS);
        sum = sum * exp(before - largest) + exp(x - largest);
    }
    if (magnitude > INFINITY_BITS) largest = infinity();  // NaN
    const float row_largest = block_max(largest);
    const bool valid = is_finite(row_largest);
    const float row_sum = block_sum(sum * exp(largest - row_largest));
    // only the invocation that overwrites the target's logit below may read it
    if (first == target % BLOCK)
        args.losses.x[row] = valid ? log(row_sum) + row_largest - load(logits, target) : not_a_number();
    if (args.write_gradients == 0) return;
    const float factor = valid ? args.dloss / row_sum : not_a_number();
    for (uint c = first; c < args.Vp; c += BLOCK) {
        const float gradient = c < V ? exp(load(logits, c) - row_largest) * factor : 0;
        store(logits, c, c == target ? gradient - args.dloss : gradient);
    }
}
