// Attention, tiled: one workgroup computes TILE queries of one head. It loops over the keys that they see, in
// tiles. Scores and output channels accumulate in registers, and each operand that is loaded serves
// several accumulators; version 1 loads both operands of every multiplication from memory.
#version 460
#include "util.glsl"
#include "attention.glsl"

layout(push_constant, scalar) uniform Push { AttentionForwardArgs args; };

shared float partial[TILE * 8];  // for each row, one value of each of its 8 invocations

void store_partials(float values[ROWS]) {
    barrier();  // the previous call may still read shared memory
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        partial[row_of(r) * 8 + gl_LocalInvocationID.x % 8] = values[r];
    barrier();
}

// The maximum of each row.
void row_maxima(float scores[SCORES], out float maxima[ROWS]) {
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        maxima[r] = scores[r * COLUMNS];
        [[unroll]] for (uint c = 1; c < COLUMNS; c++) maxima[r] = max(maxima[r], scores[r * COLUMNS + c]);
    }
    store_partials(maxima);
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        for (uint i = 0; i < 8; i++) maxima[r] = max(maxima[r], partial[row_of(r) * 8 + i]);
}

// Adds up the values of the 8 invocations of each row.
void row_sums(inout float sums[ROWS]) {
    store_partials(sums);
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        sums[r] = 0;
        for (uint i = 0; i < 8; i++) sums[r] += partial[row_of(r) * 8 + i];
    }
}

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
    const float scale = LOG2E / sqrt(float(HS));  // makes scores base 2, for exp2

    float maxima[ROWS], sums[ROWS];
    vec4 outputs[ACCUMULATORS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        maxima[r] = -1e38;
        sums[r] = 0;
        [[unroll]] for (uint w = 0; w < WIDE; w++) outputs[r * WIDE + w] = vec4(0);
    }
    for (uint key = 0; key <= first; key += TILE) {
        float scores[SCORES], larger[ROWS];
        multiply(scores, q, first, k, key);
        [[unroll]] for (uint r = 0; r < ROWS; r++)
            [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
                const bool visible = key < first || column_of(c) <= row_of(r);
                scores[r * COLUMNS + c] = visible ? scores[r * COLUMNS + c] * scale : -1e38;
            }
        row_maxima(scores, larger);
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            larger[r] = max(larger[r], maxima[r]);
            const float factor = exp2(maxima[r] - larger[r]);
            maxima[r] = larger[r];
            sums[r] *= factor;
            [[unroll]] for (uint w = 0; w < WIDE; w++) outputs[r * WIDE + w] *= factor;
            [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
                const float p = exp2(scores[r * COLUMNS + c] - larger[r]);
                scores[r * COLUMNS + c] = p;
                sums[r] += p;  // of this invocation's columns; row_sums() reduces the row at the end
            }
        }
        store_scores(scores);
        accumulate(outputs, v, key);
    }
    row_sums(sums);
    HeadRows outp = HeadRows(real_row(args.outp, b * T, C), C, head, T);
    Floats lse = float_row(args.lse, group / tiles, T);
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        const uint row = first + row_of(r);
        [[unroll]] for (uint w = 0; w < WIDE; w++)
            store_quad(outp, row, quad_of(w), outputs[r * WIDE + w] / sums[r]);
        if (quad_of(0) == 0 && row < T) lse.x[row] = (maxima[r] + log2(sums[r])) * LN2;
    }
}
