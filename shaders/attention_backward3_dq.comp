// Attention backward on matrix cores: one workgroup computes the gradients of its subgroups' queries for one head, over the
// keys up to them, STEP at a time, and CHUNK of these at once: the scores, ds = dout v^T, and dq += ds k.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matrix.glsl"
#define TILES 4
#define PATCH_PARTS 1
#include "attention3.glsl"

layout(push_constant, scalar) uniform Push { AttentionBackwardArgs args; };

shared float starts[2 * SUBGROUPS * ROWS];  // of each query: -lse / scale(), -delta; see attention_backward3_dkv

FragmentA q[FACTORS], dout[FACTORS];
FragmentSum p_start[FRAGMENTS], ds_start[FRAGMENTS], p[SCORES], ds[SCORES], dq[SUMS];

// The packs of dout and out that delta of the subgroup's queries is made of, OWN_LINES rows at once.
const uint OWN_LINES = (LANES + PACKS - 1) / PACKS, OWN_FETCHES = (ROWS + OWN_LINES - 1) / OWN_LINES;
uvec4 own_douts[OWN_FETCHES], own_outs[OWN_FETCHES];

void fetch_own(inout uvec4 v[OWN_FETCHES], HeadRows h, uint first) {
    [[unroll]] for (uint n = 0; n < OWN_FETCHES; n++) {
        const uint line = gl_SubgroupInvocationID / PACKS + n * OWN_LINES;
        v[n] = uvec4(0);
        if (line < ROWS && first + line < h.count) v[n] = pack_address(h, first + line, gl_SubgroupInvocationID % PACKS).x[0];
    }
}

// at: where in `starts` the subgroup's delta begins.
void put_own_delta(uint at) {
    [[unroll]] for (uint n = 0; n < OWN_FETCHES; n++) {
        const uint line = gl_SubgroupInvocationID / PACKS + n * OWN_LINES;
        const float delta = row_product(own_douts[n], own_outs[n]);
        if (line < ROWS && gl_SubgroupInvocationID % PACKS == 0) starts[at + line] = -delta;
    }
}

// Fills p_start and ds_start. row: the subgroup's first query.
void load_starts(Floats lse, Floats delta, uint row, uint T) {
    const uint at = 2 * gl_SubgroupID * ROWS;
    for (uint i = gl_SubgroupInvocationID; i < ROWS; i += LANES) {
        starts[at + i] = row + i < T ? -lse.x[row + i] / scale() : -1e38;
        if (!OWN_DELTA) starts[at + ROWS + i] = row + i < T ? -delta.x[row + i] : 0;
    }
    if (OWN_DELTA) put_own_delta(at + ROWS);
    patch_barrier();
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
        coopMatLoad(p_start[r], starts, at + r * FM, 0, gl_CooperativeMatrixLayoutColumnMajor);
        coopMatLoad(ds_start[r], starts, at + ROWS + r * FM, 0, gl_CooperativeMatrixLayoutColumnMajor);
    }
}

// p = q k^T and ds = dout v^T for the keys from c on in the tiles from `at` on.
void multiply(uint at, uint c) {
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
            p[r * COLUMNS + j] = p_start[r];
            ds[r * COLUMNS + j] = ds_start[r];
        }
    [[unroll]] for (uint i = 0; i < DEEP; i++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
            const FragmentB k = tile_transposed(at, c + j * FN, i), v = tile_transposed(at + SECOND, c + j * FN, i);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
                p[r * COLUMNS + j] = coopMatMulAdd(q[r * DEEP + i], k, p[r * COLUMNS + j]);
                ds[r * COLUMNS + j] = coopMatMulAdd(dout[r * DEEP + i], v, ds[r * COLUMNS + j]);
            }
        }
}

// ds becomes the gradient of the scores, published. row, key: of the first score of all; masked: whether some keys come
// after their query.
void differentiate(uint row, uint key, bool masked) {
    [[unroll]] for (uint i = 0; i < SCORES; i++)
        [[unroll]] for (uint e = 0; e < COMPONENTS; e++) ds[i][e] *= exp2(p[i][e] * scale2());
    if (masked) {
        const FragmentSum place = load_places();
        [[unroll]] for (uint e = 0; e < COMPONENTS; e++) {
            const int slant = row_of(place[e]) - column_of(place[e]);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
                [[unroll]] for (uint j = 0; j < COLUMNS; j++)
                    if (slant < int(key + j * FN) - int(row + r * FM)) ds[r * COLUMNS + j][e] = 0;
        }
    }
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) publish(ds[r * COLUMNS + j], r, j);
    published_barrier();
}

// dq += ds k.
void accumulate(uint at, uint c) {
    [[unroll]] for (uint i = 0; i < CHUNK / FK; i++) {
        FragmentA a[FRAGMENTS];
        [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) a[r] = as_factor(ds, r, i, 0);
        [[unroll]] for (uint j = 0; j < WIDE; j++) {
            const FragmentB k = tile_rows(at, c + i * FK, j);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
                dq[r * WIDE + j] = coopMatMulAdd(a[r], k, dq[r * WIDE + j]);
        }
    }
    published_barrier();
}

uvec4 keys[FETCHES], values[FETCHES];

// The keys from t on, whose tiles begin at `at`; those after them go to the other two.
void one_step(HeadRows key, HeadRows value, uint row, uint t, bool masked, inout uint at) {
    const uint next = 2 * SECOND - at;
    barrier();
    put(next, keys);
    put(next + SECOND, values);
    fetch(keys, key, t + 2 * STEP);
    fetch(values, value, t + 2 * STEP);
    [[dont_unroll]] for (uint c = 0; c < STEP; c += CHUNK) {
        multiply(at, c);
        differentiate(row, t + c, masked);
        accumulate(at, c);
    }
    at = next;
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
    HeadRows dout_rows = HeadRows(real_row(args.dout, b * T, C), C / 8, head, T);

    fetch(keys, key, 0);
    fetch(values, value, 0);
    if (OWN_DELTA) {
        fetch_own(own_douts, dout_rows, row);
        fetch_own(own_outs, HeadRows(real_row(args.outp, b * T, C), C / 8, head, T), row);
    }
    put_places();
    load_own(q, HeadRows(sequence, 3 * C / 8, head, T), row);
    load_own(dout, dout_rows, row);
    load_starts(float_row(args.lse, group / tiles, T), float_row(args.delta, group / tiles, T), row, T);
    [[unroll]] for (uint i = 0; i < SUMS; i++) dq[i] = FragmentSum(0);
    barrier();
    put(0, keys);
    put(SECOND, values);
    fetch(keys, key, STEP);
    fetch(values, value, STEP);
    uint at = 0, t = 0;
    [[dont_unroll]] for (; t < first / STEP * STEP; t += STEP) one_step(key, value, row, t, false, at);
    [[dont_unroll]] for (; t < min(first + queries, T); t += STEP) one_step(key, value, row, t, true, at);
    barrier();
    [[unroll]] for (uint i = 0; i < SUMS; i++) dq[i] *= scale();
    store_own(dq, HeadRows(real_row(args.dqkv, b * T, 3 * C), 3 * C / 8, head, T), row);
}
