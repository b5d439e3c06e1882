// Attention backward pass on cooperative matrices: one workgroup computes the gradients of its subgroups'
// queries for one head. It loops over the keys that they see, TILE_ROWS per iteration, and CHUNK of these at
// once: the scores q k^T, ds = dout v^T, and dq += ds k.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "cooperative_matrix.glsl"
#define TILES 4
#define STAGING_PARTS 1
#include "attention3.glsl"

layout(push_constant, scalar) uniform Push { AttentionBackwardArgs args; };

shared float initial[2 * SUBGROUPS * ROWS];  // per query: -lse / scale(), -delta; see attention_backward3_dkv

FragmentA q[OPERANDS], dout[OPERANDS];
FragmentSum p_initial[FRAGMENTS], ds_initial[FRAGMENTS], p[SCORES], ds[SCORES], dq[ACCUMULATORS];

// The packs of dout and out from which delta of the subgroup's queries is computed, OWN_ROWS_PER_LOAD rows
// per load.
const uint OWN_ROWS_PER_LOAD = (LANES + PACKS - 1) / PACKS;
const uint OWN_LOADS = (ROWS + OWN_ROWS_PER_LOAD - 1) / OWN_ROWS_PER_LOAD;
uvec4 own_douts[OWN_LOADS], own_outs[OWN_LOADS];

void prefetch_own(inout uvec4 v[OWN_LOADS], HeadRows h, uint first) {
    [[unroll]] for (uint n = 0; n < OWN_LOADS; n++) {
        const uint own_row = gl_SubgroupInvocationID / PACKS + n * OWN_ROWS_PER_LOAD;
        v[n] = uvec4(0);
        if (own_row < ROWS && first + own_row < h.count)
            v[n] = pack_address(h, first + own_row, gl_SubgroupInvocationID % PACKS).x[0];
    }
}

// at: the subgroup's first delta in `initial`.
void store_delta(uint at) {
    [[unroll]] for (uint n = 0; n < OWN_LOADS; n++) {
        const uint own_row = gl_SubgroupInvocationID / PACKS + n * OWN_ROWS_PER_LOAD;
        const float delta = row_dot(own_douts[n], own_outs[n]);
        if (own_row < ROWS && gl_SubgroupInvocationID % PACKS == 0) initial[at + own_row] = -delta;
    }
}

// Loads p_initial and ds_initial. row: the subgroup's first query.
void load_initial(Floats lse, Floats delta, uint row, uint T) {
    const uint at = 2 * gl_SubgroupID * ROWS;
    for (uint i = gl_SubgroupInvocationID; i < ROWS; i += LANES) {
        initial[at + i] = row + i < T ? -lse.x[row + i] / scale() : -1e38;
        if (!FUSED_DELTA) initial[at + ROWS + i] = row + i < T ? -delta.x[row + i] : 0;
    }
    if (FUSED_DELTA) store_delta(at + ROWS);
    subgroup_memory_barrier();
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
        coopMatLoad(p_initial[r], initial, at + r * FM, 0, gl_CooperativeMatrixLayoutColumnMajor);
        coopMatLoad(ds_initial[r], initial, at + ROWS + r * FM, 0, gl_CooperativeMatrixLayoutColumnMajor);
    }
}

// p = q k^T and ds = dout v^T, plus initial values, for the keys from c on in the tiles at `at`.
void multiply(uint at, uint c) {
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
            p[r * COLUMNS + j] = p_initial[r];
            ds[r * COLUMNS + j] = ds_initial[r];
        }
    [[unroll]] for (uint i = 0; i < K_FRAGMENTS; i++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
            const FragmentB k = load_tile_transposed(at, c + j * FN, i);
            const FragmentB v = load_tile_transposed(at + TILE_SIZE, c + j * FN, i);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
                p[r * COLUMNS + j] = coopMatMulAdd(q[r * K_FRAGMENTS + i], k, p[r * COLUMNS + j]);
                ds[r * COLUMNS + j] = coopMatMulAdd(dout[r * K_FRAGMENTS + i], v, ds[r * COLUMNS + j]);
            }
        }
}

// ds becomes the gradient of the scores, stored as operands. row, key: of the first score. masked:
// whether the causal mask hides some of these keys.
void differentiate(uint row, uint key, bool masked) {
    [[unroll]] for (uint i = 0; i < SCORES; i++)
        [[unroll]] for (uint e = 0; e < COMPONENTS; e++) ds[i][e] *= exp2(p[i][e] * scale2());
    if (masked) {
        const FragmentSum position = load_positions();
        [[unroll]] for (uint e = 0; e < COMPONENTS; e++) {
            const int diagonal = row_of(position[e]) - column_of(position[e]);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
                [[unroll]] for (uint j = 0; j < COLUMNS; j++)
                    if (diagonal < int(key + j * FN) - int(row + r * FM)) ds[r * COLUMNS + j][e] = 0;
        }
    }
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) stage(ds[r * COLUMNS + j], r, j);
    staging_barrier();
}

// dq += ds k.
void accumulate(uint at, uint c) {
    [[unroll]] for (uint i = 0; i < CHUNK / FK; i++) {
        FragmentA a[FRAGMENTS];
        [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) a[r] = as_operand(ds, r, i, 0);
        [[unroll]] for (uint j = 0; j < N_FRAGMENTS; j++) {
            const FragmentB k = load_tile(at, c + i * FK, j);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
                dq[r * N_FRAGMENTS + j] = coopMatMulAdd(a[r], k, dq[r * N_FRAGMENTS + j]);
        }
    }
    staging_barrier();
}

uvec4 keys[LOADS], values[LOADS];

// One iteration of the main loop: the keys from t on, in the tiles at `at`. The next keys go to the other two
// tiles.
void iterate(HeadRows key, HeadRows value, uint row, uint t, bool masked, inout uint at) {
    const uint next = 2 * TILE_SIZE - at;
    barrier();
    store_tile(next, keys);
    store_tile(next + TILE_SIZE, values);
    prefetch(keys, key, t + 2 * TILE_ROWS);
    prefetch(values, value, t + 2 * TILE_ROWS);
    [[dont_unroll]] for (uint c = 0; c < TILE_ROWS; c += CHUNK) {
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
    const uint first = (tiles - 1 - uint(group % tiles)) * queries;  // the longest loops start first
    const uint row = first + gl_SubgroupID * ROWS;                   // the subgroup's first row
    const uint64_t b = group / tiles / NH;
    const uint head = uint(group / tiles % NH) * PACKS;
    Reals sequence = real_row(args.qkv, b * T, 3 * C);
    HeadRows key = HeadRows(sequence, 3 * C / 8, C / 8 + head, T);
    HeadRows value = HeadRows(sequence, 3 * C / 8, 2 * C / 8 + head, T);
    HeadRows dout_rows = HeadRows(real_row(args.dout, b * T, C), C / 8, head, T);

    prefetch(keys, key, 0);
    prefetch(values, value, 0);
    if (FUSED_DELTA) {
        prefetch_own(own_douts, dout_rows, row);
        prefetch_own(own_outs, HeadRows(real_row(args.outp, b * T, C), C / 8, head, T), row);
    }
    store_positions();
    load_owned_rows(q, HeadRows(sequence, 3 * C / 8, head, T), row);
    load_owned_rows(dout, dout_rows, row);
    load_initial(float_row(args.lse, group / tiles, T), float_row(args.delta, group / tiles, T), row, T);
    [[unroll]] for (uint i = 0; i < ACCUMULATORS; i++) dq[i] = FragmentSum(0);
    barrier();
    store_tile(0, keys);
    store_tile(TILE_SIZE, values);
    prefetch(keys, key, TILE_ROWS);
    prefetch(values, value, TILE_ROWS);
    uint at = 0, t = 0;
    [[dont_unroll]] for (; t < first / TILE_ROWS * TILE_ROWS; t += TILE_ROWS)
        iterate(key, value, row, t, false, at);
    [[dont_unroll]] for (; t < min(first + queries, T); t += TILE_ROWS)
        iterate(key, value, row, t, true, at);
    barrier();
    [[unroll]] for (uint i = 0; i < ACCUMULATORS; i++) dq[i] *= scale();
    store_owned_rows(dq, HeadRows(real_row(args.dqkv, b * T, 3 * C), 3 * C / 8, head, T), row);
}
