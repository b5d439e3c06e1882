// Softmax and cross-entropy: version 2 with 16-byte accesses, which also thin out the exponentials of the first pass:
// the running sum is rescaled once for a pack of columns. Needs rows of whole, aligned packs of four or eight.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { FusedClassifierArgs args; };

const uint FOURS = WIDTH / 4;  // in a pack

void main() {
    const uint row = group_index();
    if (row >= args.N) return;
    const uint V = args.V, target = args.targets.x[row], first = gl_LocalInvocationID.x;
    Reals logits = real_row(args.logits, row, args.Vp);
    const vec4 minus_infinity = vec4(uintBitsToFloat(0xff800000u));
    float largest = -3.4e38, sum = 0;
    for (uint i = first; i < (V + WIDTH - 1) / WIDTH; i += BLOCK) {
        mat2x4 x = load_wide(logits, i);
        vec4 most = minus_infinity, e = vec4(0);
        [[unroll]] for (uint k = 0; k < FOURS; k++) {
            const uvec4 c = WIDTH * i + 4 * k + uvec4(0, 1, 2, 3);
            if (WIDTH * (i + 1) > V) x[k] = mix(x[k], minus_infinity, greaterThanEqual(c, uvec4(V)));
            most = max(most, x[k]);
        }
        const float before = largest;
        largest = max(largest, max(max(most.x, most.y), max(most.z, most.w)));
        [[unroll]] for (uint k = 0; k < FOURS; k++) e += exp(x[k] - largest);
        sum = sum * exp(before - largest) + ((e.x + e.y) + (e.z + e.w));
    }
    const float row_largest = block_max(largest);
    const float row_sum = block_sum(sum * exp(largest - row_largest));
    if (first == target / WIDTH % BLOCK)
        args.losses.x[row] = log(row_sum) + row_largest - load(logits, target);
    if (args.write_gradients == 0) return;
    const float factor = args.dloss / row_sum;
    // backwards: the end of the row was read last, so that it is the likeliest to be in a cache still
    for (uint turn = (args.Vp / WIDTH + BLOCK - 1) / BLOCK; turn-- > 0;) {
        const uint i = turn * BLOCK + first;
        if (i >= args.Vp / WIDTH) continue;
        mat2x4 x = load_wide(logits, i);
        [[unroll]] for (uint k = 0; k < FOURS; k++) {
            const uvec4 c = WIDTH * i + 4 * k + uvec4(0, 1, 2, 3);
            const vec4 gradient = exp(x[k] - row_largest) * factor - args.dloss * vec4(equal(c, uvec4(target)));
            x[k] = mix(gradient, vec4(0), greaterThanEqual(c, uvec4(V)));
        }
        store_wide(logits, i, x);
    }
}
