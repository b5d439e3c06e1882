// Softmax and cross-entropy: version 2 with 16-byte accesses, which also halve the exponentials of the first pass:
// the running sum is rescaled once for four columns. Needs rows of whole, aligned vec4.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { FusedClassifierArgs args; };

void main() {
    const uint row = group_index();
    if (row >= args.N) return;
    const uint V = args.V, target = args.targets.x[row], first = gl_LocalInvocationID.x;
    Reals logits = real_row(args.logits, row, args.Vp);
    const vec4 minus_infinity = vec4(uintBitsToFloat(0xff800000u));
    float largest = -3.4e38, sum = 0;
    for (uint q = first; q < (V + 3) / 4; q += BLOCK) {
        vec4 x = load4(logits, q);
        if (4 * q + 3 >= V) x = mix(x, minus_infinity, greaterThanEqual(4 * q + uvec4(0, 1, 2, 3), uvec4(V)));
        const float before = largest;
        largest = max(largest, max(max(x.x, x.y), max(x.z, x.w)));
        const vec4 e = exp(x - largest);
        sum = sum * exp(before - largest) + ((e.x + e.y) + (e.z + e.w));
    }
    const float row_largest = block_max(largest);
    const float row_sum = block_sum(sum * exp(largest - row_largest));
    if (first == target / 4 % BLOCK)
        args.losses.x[row] = log(row_sum) + row_largest - load(logits, target);
    if (args.write_gradients == 0) return;
    const float factor = args.dloss / row_sum;
    // backwards: the end of the row was read last, so that it is the likeliest to be in a cache still
    for (uint k = (args.Vp / 4 + BLOCK - 1) / BLOCK; k-- > 0;) {
        const uint q = k * BLOCK + first;
        if (q >= args.Vp / 4) continue;
        const uvec4 c = 4 * q + uvec4(0, 1, 2, 3);
        const vec4 gradient = exp(load4(logits, q) - row_largest) * factor - args.dloss * vec4(equal(c, uvec4(target)));
        store4(logits, q, mix(gradient, vec4(0), greaterThanEqual(c, uvec4(V))));
    }
}
