// Attention on matrix cores: one workgroup computes the queries of its subgroups for one head, going through the keys up
// to them STEP at a time. A subgroup keeps its queries and output sums in registers, and since it owns whole rows, its
// softmax needs no other subgroup. What is taken off the scores before they become powers need not be their maximum, only
// near it: it is raised when some score exceeds it by SLACK, which after a few steps is rare.
//
// Scores become factors of the next product in their registers where a device keeps the components of sums and of factors
// in the same places, which a look at one of each tells (NVIDIA's do), and through the patch elsewhere.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matrix.glsl"
#define PATCH_PARTS 1
#include "attention3.glsl"

layout(push_constant, scalar) uniform Push { AttentionForwardArgs args; };

const float SLACK = 8;                        // powers of 2 up to this are small enough for fp16
const uint SLOTS = (FM + LANES - 1) / LANES;  // rows of a row fragment that an invocation looks after

shared float row_numbers[SUBGROUPS * 2 * FM];  // to be loaded into every column of a fragment

FragmentA q[FACTORS];
FragmentSum scores[SCORES], outputs[SUMS], sums[FRAGMENTS];
FragmentSum shifts[FRAGMENTS];      // -`taken`
float taken[FRAGMENTS * SLOTS];     // off scores * scale2() before exp2()
uvec4 keys[FETCHES], values[FETCHES];  // of a tile to come; the first are fetched by main()
bool in_place;                      // scores become factors in their registers

FragmentSum load_row_numbers(uint at) {
    FragmentSum f;
    coopMatLoad(f, row_numbers, gl_SubgroupID * 2 * FM + at, 0, gl_CooperativeMatrixLayoutColumnMajor);
    return f;
}

// Writes a fragment to the patch, for row_pack() to read.
void spread(FragmentSum f) {
    coopMatStore(f, area, own_patch(), SUM_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
    patch_barrier();
}
vec4 row_pack(uint row, uint pack) { return uintBitsToFloat(area[own_patch() + row * SUM_STRIDE + pack]); }

// Whether component i of an invocation has the same row and column in a sum and in a factor. Overwrites the patch.
bool same_places() {
    if (FN != FK || FM * FK > 256) return false;  // places up to 256 are exact in 16 bits
    for (uint i = gl_SubgroupInvocationID; i < FM * FN / 4; i += LANES)
        area[own_patch() + i / (FN / 4) * SUM_STRIDE + i % (FN / 4)] = floatBitsToUint(float(4 * i) + vec4(0, 1, 2, 3));
    patch_barrier();
    FragmentSum sum;
    coopMatLoad(sum, area, own_patch(), SUM_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
    patch_barrier();
    for (uint i = gl_SubgroupInvocationID; i < FM * FK / 8; i += LANES) {
        const vec2 place = float(8 * i) + vec2(0, 1);
        area[own_patch() + i / (FK / 8) * SUM_STRIDE + i % (FK / 8)] =
            uvec4(pack(place), pack(place + 2), pack(place + 4), pack(place + 6));
    }
    patch_barrier();
    FragmentA a;
    coopMatLoad(a, area, own_patch(), SUM_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
    patch_barrier();
    bool same = a.length() == sum.length();
    [[unroll]] for (uint i = 0; i < sum.length(); i++) same = same && float(a[i]) == sum[i];
    return subgroupAll(same);
}

// Of the queries with the keys of the tile part at `at`.
void multiply_scores(inout FragmentSum s[SCORES], uint at) {
    [[unroll]] for (uint i = 0; i < SCORES; i++) s[i] = FragmentSum(0);
    [[unroll]] for (uint k = 0; k < DEEP; k++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
            const FragmentB b = tile_transposed(at, j * FN, k);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
                s[r * COLUMNS + j] = coopMatMulAdd(q[r * DEEP + k], b, s[r * COLUMNS + j]);
        }
}

// Hides keys later than the query. row, key: of the first score of all.
void mask_scores(uint row, uint key) {
    const FragmentSum place = slants();
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
            const float ahead = float(int(key + j * FN) - int(row + r * FM));
            [[unroll]] for (uint i = 0; i < place.length(); i++)
                if (place[i] < ahead) scores[r * COLUMNS + j][i] = HIDDEN;
        }
}

// Takes each row's largest score off as well, if it is above 0 or these are the first; scores, sums and outputs follow.
void raise_taken(bool first) {
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
        FragmentSum largest = scores[r * COLUMNS];
        [[unroll]] for (uint j = 1; j < COLUMNS; j++)
            [[unroll]] for (uint i = 0; i < largest.length(); i++)
                largest[i] = max(largest[i], scores[r * COLUMNS + j][i]);
        spread(largest);
        [[unroll]] for (uint n = 0; n < SLOTS; n++) {
            const uint row = gl_SubgroupInvocationID + n * LANES;
            if (row < FM) {
                float top = first ? HIDDEN : 0;
                [[unroll]] for (uint c = 0; c < FN / 4; c++) {
                    const vec4 v = row_pack(row, c);
                    top = max(top, max(max(v.x, v.y), max(v.z, v.w)));
                }
                taken[r * SLOTS + n] += top;
                row_numbers[gl_SubgroupID * 2 * FM + row] = -top;
                row_numbers[gl_SubgroupID * 2 * FM + FM + row] = first ? 1 : exp2(-top);
            }
        }
        patch_barrier();
        const FragmentSum shift = load_row_numbers(0), factor = load_row_numbers(FM);
        patch_barrier();
        [[unroll]] for (uint i = 0; i < factor.length(); i++) {
            shifts[r][i] += shift[i];
            sums[r][i] *= factor[i];
            [[unroll]] for (uint j = 0; j < COLUMNS; j++) scores[r * COLUMNS + j][i] += shift[i];
            [[unroll]] for (uint j = 0; j < WIDE; j++) outputs[r * WIDE + j][i] *= factor[i];
        }
    }
}

// Scores become probabilities but for a factor of the row, which are added to the sums, and published unless they are
// `in_place`.
void softmax(bool first) {
    float largest = HIDDEN;
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++)
            [[unroll]] for (uint i = 0; i < shifts[r].length(); i++) {
                const float v = fma(scores[r * COLUMNS + j][i], scale2(), shifts[r][i]);
                scores[r * COLUMNS + j][i] = v;
                largest = max(largest, v);
            }
    if (!APART || first || subgroupAny(largest > SLACK)) raise_taken(first);
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++)
            [[unroll]] for (uint i = 0; i < shifts[r].length(); i++) {
                const float p = exp2(scores[r * COLUMNS + j][i]);
                scores[r * COLUMNS + j][i] = p;
                sums[r][i] += p;  // of this column of fragments; finish() adds the columns
            }
    if (in_place) return;
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) publish(scores[r * COLUMNS + j], r, j);
    patch_barrier();
}

// The probabilities of row fragment r and keys k * FK to k * FK + FK - 1.
FragmentA probabilities(uint r, uint k) {
    FragmentA a;
    if (in_place) {
        const uint s = r * COLUMNS + min(k, COLUMNS - 1);  // k, but for shapes that never come here
        [[unroll]] for (uint i = 0; i < a.length(); i++) a[i] = REAL(rounded(scores[s][i]));
    } else {
        a = published(r, k);
    }
    return a;
}

// Adds the products with the values of the tile part at `at`.
void multiply_values(uint at) {
    [[unroll]] for (uint k = 0; k < CHUNK / FK; k++) {
        FragmentA p[FRAGMENTS];
        [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) p[r] = probabilities(r, k);
        [[unroll]] for (uint j = 0; j < WIDE; j++) {
            const FragmentB b = tile_rows(at, k * FK, j);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
                outputs[r * WIDE + j] = coopMatMulAdd(p[r], b, outputs[r * WIDE + j]);
        }
    }
    if (!in_place) patch_barrier();
}

// Divides outputs by the sums of their rows, and stores lse.
void finish(Floats lse, uint first, uint T) {
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
        spread(sums[r]);
        [[unroll]] for (uint n = 0; n < SLOTS; n++) {
            const uint row = gl_SubgroupInvocationID + n * LANES, t = first + r * FM + row;
            if (row < FM) {
                vec4 sum = vec4(0);
                [[unroll]] for (uint c = 0; c < FN / 4; c++) sum += row_pack(row, c);
                const float all = (sum.x + sum.y) + (sum.z + sum.w);
                row_numbers[gl_SubgroupID * 2 * FM + row] = 1 / all;
                if (t < T) lse.x[t] = (taken[r * SLOTS + n] + log2(all)) * LN2;
            }
        }
        patch_barrier();
        const FragmentSum inverse = load_row_numbers(0);
        patch_barrier();
        [[unroll]] for (uint j = 0; j < WIDE; j++)
            [[unroll]] for (uint i = 0; i < inverse.length(); i++) outputs[r * WIDE + j][i] *= inverse[i];
    }
}

// All keys before `end`, STEP at a time. Each tile is fetched while the one before it is used, and put in its place between
// the two barriers of a step: keys while the values are multiplied, values while the keys are.
void attend(HeadRows key, HeadRows value, uint row, uint end) {
    put(0, keys);
    put(SECOND, values);
    if (STEP < end) {
        fetch(keys, key, STEP);
        fetch(values, value, STEP);
    }
    barrier();
    [[dont_unroll]] for (uint k = 0; k < end; k += STEP) {
        const bool more = k + STEP < end, yet_more = k + 2 * STEP < end;
        [[unroll]] for (uint c = 0; c < STEP / CHUNK; c++) {
            const uint key_row = k + c * CHUNK, part = c * CHUNK * STRIDE;
            const bool seen = !APART || key_row < row + ROWS;  // by some query of this subgroup
            if (seen) multiply_scores(scores, part);
            if (c == STEP / CHUNK - 1) {
                barrier();
                if (more) put(0, keys);
                if (yet_more) fetch(keys, key, k + 2 * STEP);
            }
            if (seen) {
                if (!APART || key_row + CHUNK > row + 1) mask_scores(row, key_row);
                softmax(key_row == 0);
                multiply_values(part + SECOND);
            }
        }
        barrier();
        if (more) put(SECOND, values);
        if (yet_more) fetch(values, value, k + 2 * STEP);
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

    const uint end = min(first + queries, T);  // the keys before it are seen by some query
    fetch(keys, key, 0);
    fetch(values, value, 0);
    load_own(q, HeadRows(sequence, 3 * C / 8, head, T), row);
    barrier();
    [[unroll]] for (uint n = 0; n < FRAGMENTS * SLOTS; n++) taken[n] = 0;
    [[unroll]] for (uint i = 0; i < SUMS; i++) outputs[i] = FragmentSum(0);
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) sums[r] = shifts[r] = FragmentSum(0);
    in_place = same_places();
    attend(key, value, row, end);
    finish(float_row(args.lse, group / tiles, T), row, T);
    barrier();  // the patches end where other subgroups' rows may begin
    store_own(outputs, HeadRows(real_row(args.outp, b * T, C), C / 8, head, T), row);
}
