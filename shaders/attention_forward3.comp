// Attention on matrix cores: one workgroup computes the queries of its subgroups for one head, going through the keys up
// to them STEP at a time. A subgroup keeps its queries and output sums in registers, and since it owns whole rows, its
// softmax needs no other subgroup.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matrix.glsl"
#include "attention3.glsl"

layout(push_constant, scalar) uniform Push { AttentionForwardArgs args; };

const uint KEYS = STEP / FN;                      // fragments of keys in a step
const uint SCORES = FRAGMENTS * KEYS;
const uint SLOTS = (ROWS + LANES - 1) / LANES;    // rows whose maximum an invocation keeps

shared float shifts[SUBGROUPS * ROWS];            // -maximum * scale2(); and at the end 1 / sum
shared float factors[SUBGROUPS * ROWS];           // what the sums so far must be multiplied by

FragmentA q[FACTORS];
FragmentSum scores[SCORES], outputs[SUMS], sums[FRAGMENTS];
FragmentSum tops[FRAGMENTS];  // the maxima, where rows_of_four
float maxima[SLOTS];          // and elsewhere

void multiply_scores() {
    [[unroll]] for (uint i = 0; i < SCORES; i++) scores[i] = FragmentSum(0);
    [[unroll]] for (uint k = 0; k < DEEP; k++)
        [[unroll]] for (uint j = 0; j < KEYS; j++) {
            const FragmentB b = tile_transposed(0, j * FN, k);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
                scores[r * KEYS + j] = coopMatMulAdd(q[r * DEEP + k], b, scores[r * KEYS + j]);
        }
}

// Hides keys later than the query. row, key: of the first score of all.
void mask_scores(uint row, uint key) {
    const FragmentSum place = slants();
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < KEYS; j++) {
            const float ahead = float(int(key + j * FN) - int(row + r * FM));
            [[unroll]] for (uint i = 0; i < place.length(); i++)
                if (place[i] < ahead) scores[r * KEYS + j][i] = HIDDEN;
        }
}

// The largest of the scores so far of each row, and what follows from it: shifts and factors. Columns meet in shared
// memory, where one invocation looks at each row.
void update_maxima() {
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
        FragmentSum largest = scores[r * KEYS];
        [[unroll]] for (uint j = 1; j < KEYS; j++)
            [[unroll]] for (uint i = 0; i < largest.length(); i++)
                largest[i] = max(largest[i], scores[r * KEYS + j][i]);
        coopMatStore(largest, patches, own_patch() + r * FM * SUM_STRIDE, SUM_STRIDE,
                     gl_CooperativeMatrixLayoutRowMajor);
    }
    patch_barrier();
    [[unroll]] for (uint n = 0; n < SLOTS; n++) {
        const uint row = gl_SubgroupInvocationID + n * LANES;
        if (row < ROWS) {
            float largest = maxima[n];
            [[unroll]] for (uint c = 0; c < FN / 4; c++) {
                const vec4 v = uintBitsToFloat(patches[own_patch() + row * SUM_STRIDE + c]);
                largest = max(largest, max(max(v.x, v.y), max(v.z, v.w)));
            }
            shifts[gl_SubgroupID * ROWS + row] = -largest * scale2();
            factors[gl_SubgroupID * ROWS + row] = exp2((maxima[n] - largest) * scale2());
            maxima[n] = largest;
        }
    }
    patch_barrier();
}

// The same for row fragment r where rows_of_four, without shared memory; the maxima are in `tops`.
void update_tops(uint r, out FragmentSum shift, out FragmentSum factor) {
    [[unroll]] for (uint i = 0; i < 3; i += 2) {
        float largest = tops[r][i];
        [[unroll]] for (uint j = 0; j < KEYS; j++) {
            const uint s = r * KEYS + j;
            largest = max(largest, max(max(scores[s][i], scores[s][i ^ 1]), max(scores[s][i ^ 4], scores[s][i ^ 5])));
        }
        largest = max(largest, subgroupShuffleXor(largest, 1));
        largest = max(largest, subgroupShuffleXor(largest, 2));
        const float f = exp2((tops[r][i] - largest) * scale2());
        tops[r][i] = largest;
        factor[i] = factor[i ^ 1] = factor[i ^ 4] = factor[i ^ 5] = f;
        shift[i] = shift[i ^ 1] = shift[i ^ 4] = shift[i ^ 5] = -largest * scale2();
    }
}

// Writes tops to where finish() expects the maxima.
void spread_tops() {
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
        [[unroll]] for (uint i = 0; i < 3; i += 2) tops[r][i ^ 1] = tops[r][i ^ 4] = tops[r][i ^ 5] = tops[r][i];
        coopMatStore(tops[r], patches, own_patch() + r * FM * SUM_STRIDE, SUM_STRIDE,
                     gl_CooperativeMatrixLayoutRowMajor);
    }
    patch_barrier();
    [[unroll]] for (uint n = 0; n < SLOTS; n++) {
        const uint row = gl_SubgroupInvocationID + n * LANES;
        if (row < ROWS) maxima[n] = uintBitsToFloat(patches[own_patch() + row * SUM_STRIDE].x);
    }
    patch_barrier();
}

// Scores become exp(score - maximum), published; sums and outputs are brought to the new maximum.
void softmax() {
    if (!rows_of_four) update_maxima();
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
        FragmentSum shift, factor;
        if (rows_of_four) {
            update_tops(r, shift, factor);
        } else {
            coopMatLoad(shift, shifts, gl_SubgroupID * ROWS + r * FM, 0, gl_CooperativeMatrixLayoutColumnMajor);
            coopMatLoad(factor, factors, gl_SubgroupID * ROWS + r * FM, 0, gl_CooperativeMatrixLayoutColumnMajor);
        }
        [[unroll]] for (uint i = 0; i < factor.length(); i++) {
            sums[r][i] *= factor[i];
            [[unroll]] for (uint j = 0; j < WIDE; j++) outputs[r * WIDE + j][i] *= factor[i];
        }
        [[unroll]] for (uint j = 0; j < KEYS; j++) {
            [[unroll]] for (uint i = 0; i < shift.length(); i++) {
                const float p = exp2(fma(scores[r * KEYS + j][i], scale2(), shift[i]));
                scores[r * KEYS + j][i] = p;
                sums[r][i] += p;  // of this column of fragments; finish() adds the columns
            }
            if (!same_places) publish(scores[r * KEYS + j], r, j);
        }
    }
    if (!same_places) patch_barrier();
}

void multiply_values() {
    [[unroll]] for (uint k = 0; k < STEP / FK; k++) {
        FragmentA p[FRAGMENTS];
        [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
            if (same_places)
                p[r] = factor_of(scores[r * KEYS + k]);
            else
                p[r] = published(r, k);
        [[unroll]] for (uint j = 0; j < WIDE; j++) {
            const FragmentB b = tile_rows(SECOND, k * FK, j);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
                outputs[r * WIDE + j] = coopMatMulAdd(p[r], b, outputs[r * WIDE + j]);
        }
    }
    if (!same_places) patch_barrier();
}

// Divides outputs by the sums of their rows, and stores lse.
void finish(Floats lse, uint row, uint T) {
    if (rows_of_four) spread_tops();
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        coopMatStore(sums[r], patches, own_patch() + r * FM * SUM_STRIDE, SUM_STRIDE,
                     gl_CooperativeMatrixLayoutRowMajor);
    patch_barrier();
    [[unroll]] for (uint n = 0; n < SLOTS; n++) {
        const uint i = gl_SubgroupInvocationID + n * LANES;
        if (i < ROWS) {
            vec4 sum = vec4(0);
            [[unroll]] for (uint c = 0; c < FN / 4; c++)
                sum += uintBitsToFloat(patches[own_patch() + i * SUM_STRIDE + c]);
            const float all = (sum.x + sum.y) + (sum.z + sum.w);
            shifts[gl_SubgroupID * ROWS + i] = 1 / all;
            if (row + i < T) lse.x[row + i] = maxima[n] * scale() + log2(all) * LN2;
        }
    }
    patch_barrier();
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
        FragmentSum inverse;
        coopMatLoad(inverse, shifts, gl_SubgroupID * ROWS + r * FM, 0, gl_CooperativeMatrixLayoutColumnMajor);
        [[unroll]] for (uint j = 0; j < WIDE; j++)
            [[unroll]] for (uint i = 0; i < inverse.length(); i++) outputs[r * WIDE + j][i] *= inverse[i];
    }
}

void main() {
    const uint T = args.T, NH = C / HS, queries = SUBGROUPS * ROWS, tiles = (T + queries - 1) / queries;
    const uint64_t group = group_index();
    if (group >= uint64_t(args.B) * NH * tiles) return;
    const uint first = (tiles - 1 - uint(group % tiles)) * queries;  // the longest rows start first
    const uint row = first + gl_SubgroupID * ROWS;                   // the subgroup's first
    const uint64_t b = group / tiles / NH;
    const uint head = uint(group / tiles % NH) * HS;
    Reals sequence = real_row(args.qkv, b * T, 3 * C);
    HeadRows query = HeadRows(sequence, 3 * C, head, T);
    HeadRows key = HeadRows(sequence, 3 * C, C + head, T);
    HeadRows value = HeadRows(sequence, 3 * C, 2 * C + head, T);

    uvec4 fetched[FETCHES];
    fetch(fetched, key, 0);
    [[unroll]] for (uint i = 0; i < DEEP; i++)
        [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) q[r * DEEP + i] = own_factor(query, row, r, i);
    fill_numbers();
    if (DIRECT != 0) {
        barrier();
        find_places();
    }
    [[unroll]] for (uint n = 0; n < SLOTS; n++) maxima[n] = HIDDEN;
    [[unroll]] for (uint i = 0; i < SUMS; i++) outputs[i] = FragmentSum(0);
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) sums[r] = FragmentSum(0), tops[r] = FragmentSum(HIDDEN);
    const uint end = min(first + queries, T);  // the keys before it are seen by some query
    [[dont_unroll]] for (uint k = 0; k < end; k += STEP) {
        const bool seen = SKIP == 0 || k < row + ROWS;  // by some query of this subgroup
        put(0, fetched);
        barrier();
        fetch(fetched, value, k);
        if (seen) {
            multiply_scores();
            if (k + STEP > row + 1) mask_scores(row, k);
            softmax();
        }
        put(SECOND, fetched);
        barrier();
        if (k + STEP < end) fetch(fetched, key, k + STEP);
        if (seen) multiply_values();
    }
    finish(float_row(args.lse, group / tiles, T), row, T);
    HeadRows outp = HeadRows(real_row(args.outp, b * T, C), C, head, T);
    [[unroll]] for (uint j = 0; j < WIDE; j++)
        [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) put_own(outputs[r * WIDE + j], outp, row, r, j);
}
