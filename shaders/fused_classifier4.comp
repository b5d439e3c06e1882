// Softmax and cross-entropy: version 3 with the row kept in registers, KEPT vec4 in each invocation, so that it is read
// from memory once. The launcher sees to it that KEPT * BLOCK vec4 hold a row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { FusedClassifierArgs args; };
layout(constant_id = 1) const uint KEPT = 1;

void main() {
    const uint row = group_index();
    if (row >= args.N) return;
    const uint V = args.V, quads = args.Vp / 4, target = args.targets.x[row], first = gl_LocalInvocationID.x;
    Reals4 logits = Reals4(uint64_t(real_row(args.logits, row, args.Vp)));
    const vec4 minus_infinity = vec4(uintBitsToFloat(0xff800000u));
    vec4 x[KEPT];
    float largest = -3.4e38;
    [[unroll]] for (uint k = 0; k < KEPT; k++) {
        const uint q = k * BLOCK + first;
        x[k] = q < quads ? logits.x[q] : minus_infinity;
        x[k] = mix(x[k], minus_infinity, greaterThanEqual(4 * q + uvec4(0, 1, 2, 3), uvec4(V)));
        largest = max(largest, max(max(x[k].x, x[k].y), max(x[k].z, x[k].w)));
    }
    largest = block_max(largest);
    float sum = 0;
    [[unroll]] for (uint k = 0; k < KEPT; k++) {
        x[k] = exp(x[k] - largest);  // 0 in the padding
        sum += (x[k].x + x[k].y) + (x[k].z + x[k].w);
    }
    sum = block_sum(sum);
    // x[k][target % 4] would put x into memory, as every index known at run time alone does
    if (first == target / 4 % BLOCK) args.losses.x[row] = log(sum) + largest - logits.x[target / 4][target % 4];
    if (args.write_gradients == 0) return;
    const float factor = args.dloss / sum;
    [[unroll]] for (uint k = 0; k < KEPT; k++) {
        const uint q = k * BLOCK + first;
        if (q < quads)
            logits.x[q] = x[k] * factor - args.dloss * vec4(equal(4 * q + uvec4(0, 1, 2, 3), uvec4(target)));
    }
}
