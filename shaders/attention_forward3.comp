// Attention on matrix cores: one workgroup computes the queries of its subgroups for one head, going through the keys up
// to them STEP at a time. A subgroup keeps its queries and output sums in registers, and since it owns whole rows, its
// softmax needs no other subgroup. What is taken off the scores before they become powers need not be their maximum, only
// near it: it is raised when some score exceeds it by SLACK, which after a few steps is rare. CHUNK is STEP here.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matrix.glsl"
#define TILES 2
#define PATCH_PARTS 1
#include "attention3.glsl"
#extension GL_KHR_shader_subgroup_vote : require

layout(push_constant, scalar) uniform Push { AttentionForwardArgs args; };

const float SLACK = 8;  // powers of 2 up to this are small enough for fp16

FragmentA q[FACTORS];
FragmentSum scores[SCORES], outputs[SUMS];
// Of the row that component i is in, at i & ROW_COMPONENTS: what is taken off scores * scale2() before exp2(), and the
// sum of this lane's part of the powers.
float taken[FRAGMENTS][COMPONENTS], sums[FRAGMENTS][COMPONENTS];
uvec4 staged[FETCHES];  // the next tile, on its way to shared memory

// Reads STEP rows from `first` on; instead of rows past the last one, which the mask hides, that one.
void fetch_some(HeadRows h, uint first) {
    const uint line = gl_LocalInvocationID.x / PACKS, pack = gl_LocalInvocationID.x % PACKS;
    [[unroll]] for (uint n = 0; n < FETCHES; n++)
        if (has_part(line, n)) staged[n] = pack_address(h, min(first + line + n * LINES, h.count - 1), pack).x[0];
}

// Of the queries with the keys of the tile.
void multiply_scores() {
    [[unroll]] for (uint i = 0; i < SCORES; i++) scores[i] = FragmentSum(0);
    [[unroll]] for (uint k = 0; k < DEEP; k++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
            const FragmentB b = tile_transposed(0, j * FN, k);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
                scores[r * COLUMNS + j] = coopMatMulAdd(q[r * DEEP + k], b, scores[r * COLUMNS + j]);
        }
}

// Hides keys later than the query. row, key: of the first score of all.
void mask_scores(uint row, uint key) {
    const FragmentSum place = load_places();
    [[unroll]] for (uint i = 0; i < COMPONENTS; i++) {
        const int slant = row_of(place[i]) - column_of(place[i]);
        [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
            [[unroll]] for (uint j = 0; j < COLUMNS; j++)
                if (slant < int(key + j * FN) - int(row + r * FM)) scores[r * COLUMNS + j][i] = HIDDEN;
    }
}

float row_max(float v) {
    [[unroll]] for (uint bit = 1; bit < LANES; bit *= 2)
        if ((COLUMN_LANES & bit) != 0) v = max(v, subgroupShuffleXor(v, bit));
    return v;
}
float row_sum(float v) {
    [[unroll]] for (uint bit = 1; bit < LANES; bit *= 2)
        if ((COLUMN_LANES & bit) != 0) v += subgroupShuffleXor(v, bit);
    return v;
}

// Takes each row's largest score off as well, if it is above 0 or these are the first; scores, sums and outputs follow.
void raise_taken(bool first) {
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
        float top[COMPONENTS], factor[COMPONENTS];
        [[unroll]] for (uint i = 0; i < COMPONENTS; i++) top[i & ROW_COMPONENTS] = first ? HIDDEN : 0;
        [[unroll]] for (uint j = 0; j < COLUMNS; j++)
            [[unroll]] for (uint i = 0; i < COMPONENTS; i++)
                top[i & ROW_COMPONENTS] = max(top[i & ROW_COMPONENTS], scores[r * COLUMNS + j][i]);
        [[unroll]] for (uint i = 0; i < COMPONENTS; i++)
            if ((i & ROW_COMPONENTS) == i) {
                top[i] = row_max(top[i]);
                taken[r][i] += top[i];
                factor[i] = first ? 1 : exp2(-top[i]);
                sums[r][i] *= factor[i];
            }
        [[unroll]] for (uint i = 0; i < COMPONENTS; i++) {
            [[unroll]] for (uint j = 0; j < COLUMNS; j++) scores[r * COLUMNS + j][i] -= top[i & ROW_COMPONENTS];
            [[unroll]] for (uint j = 0; j < WIDE; j++) outputs[r * WIDE + j][i] *= factor[i & ROW_COMPONENTS];
        }
    }
}

// Scores become probabilities but for a factor of the row, which are added to the sums and published.
void softmax(bool first) {
    float largest = HIDDEN;
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++)
            [[unroll]] for (uint i = 0; i < COMPONENTS; i++) {
                const float v = fma(scores[r * COLUMNS + j][i], scale2(), -taken[r][i & ROW_COMPONENTS]);
                scores[r * COLUMNS + j][i] = v;
                largest = max(largest, v);
            }
    if (first || subgroupAny(largest > SLACK)) raise_taken(first);
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++)
            [[unroll]] for (uint i = 0; i < COMPONENTS; i++) {
                const float p = exp2(scores[r * COLUMNS + j][i]);
                scores[r * COLUMNS + j][i] = p;
                sums[r][i & ROW_COMPONENTS] += p;
            }
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) publish(scores[r * COLUMNS + j], r, j);
    published_barrier();
}

// Adds the products of the probabilities with the values of the tile.
void multiply_values() {
    [[unroll]] for (uint k = 0; k < STEP / FK; k++) {
        FragmentA p[FRAGMENTS];
        [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) p[r] = as_factor(scores, r, k, 0);
        [[unroll]] for (uint j = 0; j < WIDE; j++) {
            const FragmentB b = tile_rows(SECOND, k * FK, j);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
                outputs[r * WIDE + j] = coopMatMulAdd(p[r], b, outputs[r * WIDE + j]);
        }
    }
    published_barrier();
}

// Goes through the keys from `begin` to `end`, STEP at a time; their first tiles are in place, and the keys after those
// fetched. Between the two barriers of a step the next keys take the place of those just used; after it, the values.
void attend(HeadRows key, HeadRows value, uint row, uint begin, uint end, bool masked) {
    [[dont_unroll]] for (uint k = begin; k < end; k += STEP) {
        multiply_scores();
        barrier();
        put(0, staged);
        fetch_some(value, k + STEP);
        if (masked) mask_scores(row, k);
        softmax(k == 0);
        multiply_values();
        barrier();
        put(SECOND, staged);
        fetch_some(key, k + 2 * STEP);
    }
}

// Divides outputs by the sums of their rows, and stores lse.
void finish(Floats lse, uint first, uint T) {
    const FragmentSum place = load_places();
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
        float all[COMPONENTS], inverse[COMPONENTS];
        [[unroll]] for (uint i = 0; i < COMPONENTS; i++)
            if ((i & ROW_COMPONENTS) == i) {
                all[i] = row_sum(sums[r][i]);
                inverse[i] = 1 / all[i];
            }
        [[unroll]] for (uint i = 0; i < COMPONENTS; i++) {
            const uint t = first + r * FM + row_of(place[i]), same = i & ROW_COMPONENTS;
            if (column_of(place[i]) == 0 && t < T) lse.x[t] = (taken[r][same] + log2(all[same])) * LN2;
        }
        [[unroll]] for (uint j = 0; j < WIDE; j++)
            [[unroll]] for (uint i = 0; i < COMPONENTS; i++) outputs[r * WIDE + j][i] *= inverse[i & ROW_COMPONENTS];
    }
}

void main() {
    const uint T = args.T, NH = C / HS, queries = SUBGROUPS * ROWS, tiles = (T + queries - 1) / queries;
    const uint64_t group = group_index();
    if (group >= uint64_t(args.B) * NH * tiles) return;
    const uint first = (tiles - 1 - uint(group % tiles)) * queries;  // the longest rows start first
    const uint row = first + gl_SubgroupID * ROWS;                   // the subgroup's first
    const uint64_t b = group / tiles / NH;
    const uint head = uint(group / tiles % NH) * PACKS;
    Reals sequence = real_row(args.qkv, b * T, 3 * C);
    HeadRows key = HeadRows(sequence, 3 * C / 8, C / 8 + head, T);
    HeadRows value = HeadRows(sequence, 3 * C / 8, 2 * C / 8 + head, T);

    uvec4 values[FETCHES];
    fetch_some(key, 0);
    fetch(values, value, 0);
    put_places();
    load_own(q, HeadRows(sequence, 3 * C / 8, head, T), row);
    barrier();
    [[unroll]] for (uint i = 0; i < COMPONENTS; i++)
        [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) taken[r][i] = sums[r][i] = 0;
    [[unroll]] for (uint i = 0; i < SUMS; i++) outputs[i] = FragmentSum(0);
    put(0, staged);
    put(SECOND, values);
    fetch_some(key, STEP);
    barrier();
    attend(key, value, row, 0, first, false);
    attend(key, value, row, first, min(first + queries, T), true);
    finish(float_row(args.lse, group / tiles, T), row, T);
    barrier();  // the tiles' memory is used again
    store_own(outputs, HeadRows(real_row(args.outp, b * T, C), C / 8, head, T), row);
}
