// Softmax and cross-entropy: version 2 with 16-byte accesses, which also thin out the exponentials of the first pass:
// the running sum is rescaled once for a pack of columns. Needs rows of whole, aligned packs of four or eight.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { FusedClassifierArgs args; };

const uint UNDER_WAY = 4;  // reads of an invocation at a time
const vec4 MINUS_INFINITY = vec4(uintBitsToFloat(0xff800000u));

uvec4 columns(uint pack, uint four) { return WIDTH * pack + 4 * four + uvec4(0, 1, 2, 3); }

void main() {
    const uint row = group_index();
    if (row >= args.N) return;
    const uint V = args.V, packs = args.Vp / WIDTH, target = args.targets.x[row], first = gl_LocalInvocationID.x;
    Reals logits = real_row(args.logits, row, args.Vp);
    float largest = -3.4e38, sum = 0;
    mat2x4 x[UNDER_WAY];
    for (uint start = first; start * WIDTH < V; start += UNDER_WAY * BLOCK) {
        // packs beyond the row read its last one, and count as columns beyond V: no branch holds the loads up
        [[unroll]] for (uint j = 0; j < UNDER_WAY; j++) x[j] = load_wide(logits, min(start + j * BLOCK, packs - 1));
        vec4 most = MINUS_INFINITY, e = vec4(0);
        [[unroll]] for (uint j = 0; j < UNDER_WAY; j++)
            [[unroll]] for (uint k = 0; k < FOURS; k++) {
                const uint pack = start + j * BLOCK;
                if (WIDTH * (pack + 1) > V)
                    x[j][k] = mix(x[j][k], MINUS_INFINITY, greaterThanEqual(columns(pack, k), uvec4(V)));
                most = max(most, x[j][k]);
            }
        const float before = largest;
        largest = max(largest, max(max(most.x, most.y), max(most.z, most.w)));
        [[unroll]] for (uint j = 0; j < UNDER_WAY; j++)
            [[unroll]] for (uint k = 0; k < FOURS; k++) e += exp(x[j][k] - largest);
        sum = sum * exp(before - largest) + ((e.x + e.y) + (e.z + e.w));
    }
    const float row_largest = block_max(largest);
    const float row_sum = block_sum(sum * exp(largest - row_largest));
    if (first == target / WIDTH % BLOCK)
        args.losses.x[row] = log(row_sum) + row_largest - load(logits, target);
    if (args.write_gradients == 0) return;
    const float factor = args.dloss / row_sum;
    // backwards: the end of the row was read last, so that it is the likeliest to be in a cache still
    for (uint turn = (packs + UNDER_WAY * BLOCK - 1) / (UNDER_WAY * BLOCK); turn-- > 0;) {
        const uint start = turn * UNDER_WAY * BLOCK + first;
        if (start >= packs) continue;
        // beyond the row: one that nobody else writes
        [[unroll]] for (uint j = 0; j < UNDER_WAY; j++)
            x[j] = load_wide(logits, start + j * BLOCK < packs ? start + j * BLOCK : start);
        [[unroll]] for (uint j = 0; j < UNDER_WAY; j++) {
            const uint pack = start + j * BLOCK;
            const bool special = WIDTH * (pack + 1) > V || pack == target / WIDTH;
            [[unroll]] for (uint k = 0; k < FOURS; k++) {
                x[j][k] = exp(x[j][k] - row_largest) * factor;
                if (!special) continue;
                const uvec4 c = columns(pack, k);
                x[j][k] -= args.dloss * vec4(equal(c, uvec4(target)));
                x[j][k] = mix(x[j][k], vec4(0), greaterThanEqual(c, uvec4(V)));
            }
            if (pack < packs) store_wide(logits, pack, x[j]);
        }
    }
}
