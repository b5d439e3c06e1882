// Attention backward pass, tiled: one workgroup computes the gradients of TILE keys and values of one head. It
// loops over the queries that see them, in tiles. Rows of its score tiles are keys and columns are
// queries: it computes the transposed scores that dv += p^T dout and dk += ds^T q need.
#version 460
#include "util.glsl"
#include "attention.glsl"

layout(push_constant, scalar) uniform Push { AttentionBackwardArgs args; };

void main() {
    const uint T = args.T, C = args.C, NH = args.NH, tiles = (T + TILE - 1) / TILE;
    const uint64_t group = group_index();
    if (group >= uint64_t(args.B) * NH * tiles) return;
    const uint first = uint(group % tiles) * TILE;
    const uint64_t b = group / tiles / NH;
    const uint head = uint(group / tiles % NH) * HS;
    Reals sequence = real_row(args.qkv, b * T, 3 * C);
    HeadRows q = HeadRows(sequence, 3 * C, head, T);
    HeadRows k = HeadRows(sequence, 3 * C, C + head, T);
    HeadRows v = HeadRows(sequence, 3 * C, 2 * C + head, T);
    HeadRows dout = HeadRows(real_row(args.dout, b * T, C), C, head, T);
    Floats lse = float_row(args.lse, group / tiles, T);
    Floats delta = float_row(args.delta, group / tiles, T);
    const float scale = 1.0 / sqrt(float(HS));

    vec4 dk[ACCUMULATORS], dv[ACCUMULATORS];
    [[unroll]] for (uint i = 0; i < ACCUMULATORS; i++) dk[i] = dv[i] = vec4(0);
    for (uint query = first; query < T; query += TILE) {
        float scores[SCORES], dscores[SCORES];
        multiply(scores, k, first, q, query);
        multiply(dscores, v, first, dout, query);
        [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
            const uint t = query + column_of(c);
            const float lse_t = t < T ? lse.x[t] * LOG2E : 1e38, delta_t = t < T ? delta.x[t] : 0;
            [[unroll]] for (uint r = 0; r < ROWS; r++) {
                const uint i = r * COLUMNS + c;
                const bool visible = query > first || row_of(r) <= column_of(c);
                scores[i] = visible ? exp2(scores[i] * scale * LOG2E - lse_t) : 0;
                dscores[i] = scores[i] * (dscores[i] - delta_t) * scale;
            }
        }
        barrier();
        store_scores(scores);
        accumulate(dv, dout, query);
        barrier();
        store_scores(dscores);
        accumulate(dk, q, query);
    }
    Reals dsequence = real_row(args.dqkv, b * T, 3 * C);
    HeadRows dkey = HeadRows(dsequence, 3 * C, C + head, T);
    HeadRows dvalue = HeadRows(dsequence, 3 * C, 2 * C + head, T);
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        [[unroll]] for (uint w = 0; w < WIDE; w++) {
            store_quad(dkey, first + row_of(r), quad_of(w), dk[r * WIDE + w]);
            store_quad(dvalue, first + row_of(r), quad_of(w), dv[r * WIDE + w]);
        }
}
