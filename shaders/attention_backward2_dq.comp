// Attention backward pass, tiled: one workgroup computes the gradients of TILE queries of one head. It loops
// over the keys that they see, in tiles. Three GEMMs per iteration accumulate in registers: the scores
// q k^T, dp = dout v^T, and dq += ds k.
#version 460
#include "util.glsl"
#include "attention.glsl"

layout(push_constant, scalar) uniform Push { AttentionBackwardArgs args; };

void main() {
    const uint T = args.T, C = args.C, NH = args.NH, tiles = (T + TILE - 1) / TILE;
    const uint64_t group = group_index();
    if (group >= uint64_t(args.B) * NH * tiles) return;
    const uint first = (tiles - 1 - uint(group % tiles)) * TILE;  // the longest loops start first
    const uint64_t b = group / tiles / NH;
    const uint head = uint(group / tiles % NH) * HS;
    Reals sequence = real_row(args.qkv, b * T, 3 * C);
    HeadRows q = HeadRows(sequence, 3 * C, head, T);
    HeadRows k = HeadRows(sequence, 3 * C, C + head, T);
    HeadRows v = HeadRows(sequence, 3 * C, 2 * C + head, T);
    HeadRows dout = HeadRows(real_row(args.dout, b * T, C), C, head, T);
    Floats all_lse = float_row(args.lse, group / tiles, T);
    Floats all_delta = float_row(args.delta, group / tiles, T);
    const float scale = 1.0 / sqrt(float(HS));

    float lse[ROWS], delta[ROWS];  // lse in base 2, for exp2
    vec4 dq[ACCUMULATORS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        const uint row = min(first + row_of(r), T - 1);
        lse[r] = all_lse.x[row] * LOG2E;
        delta[r] = all_delta.x[row];
        [[unroll]] for (uint w = 0; w < WIDE; w++) dq[r * WIDE + w] = vec4(0);
    }
    for (uint key = 0; key <= first; key += TILE) {
        float scores[SCORES], dscores[SCORES];
        multiply(scores, q, first, k, key);
        multiply(dscores, dout, first, v, key);
        [[unroll]] for (uint r = 0; r < ROWS; r++)
            [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
                const uint i = r * COLUMNS + c;
                const bool visible = key < first || column_of(c) <= row_of(r);
                const float p = visible ? exp2(scores[i] * scale * LOG2E - lse[r]) : 0;
                dscores[i] = p * (dscores[i] - delta[r]) * scale;
            }
        barrier();
        store_scores(dscores);
        accumulate(dq, k, key);
    }
    HeadRows dquery = HeadRows(real_row(args.dqkv, b * T, 3 * C), 3 * C, head, T);
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        [[unroll]] for (uint w = 0; w < WIDE; w++)
            store_quad(dquery, first + row_of(r), quad_of(w), dq[r * WIDE + w]);
}
