// Attention backward pass on cooperative matrices: one workgroup computes the gradients of its subgroups'
// queries for one head. It loops over the keys that they see, TILE_ROWS per iteration, and CHUNK of these at
// once: the scores q k^T, ds = dout v^T, and dq += ds k.
#version 460
#include "util.glsl"
#include "cooperative_matrix.glsl"
#define TILES 4
#define STAGING_PARTS 1
#include "attention3.glsl"

layout(push_constant, scalar) uniform Push { AttentionBackwardArgs args; };

// Per query: -lse / scale(), -delta; see attention_backward3_dkv. Fragments load from multiples of 16 bytes.
shared vec4 initial[SUBGROUPS * ROWS / 2];

FragmentA q[OPERANDS], dout[OPERANDS];
FragmentSum p_initial[FRAGMENTS], ds_initial[FRAGMENTS], p[SCORES], ds[SCORES], dq[ACCUMULATORS];

// What a subgroup loads of its own rows before its main loop.
const uint STATISTICS = (ROWS + LANES - 1) / LANES;  // values per invocation
struct OwnRows {
    uvec4 queries[OWN_LOADS], douts[OWN_LOADS];
    float lse[STATISTICS], deltas[STATISTICS];
};

// A query past the end has a huge lse, so that its probabilities are zero.
void prefetch_statistics(inout OwnRows own, Floats lse, Floats delta, uint row, uint T) {
    [[unroll]] for (uint n = 0; n < STATISTICS; n++) {
        const uint i = gl_SubgroupInvocationID + n * LANES;
        own.lse[n] = HUGE_LSE;
        own.deltas[n] = 0;
        if (i < ROWS && row + i < T) {
            own.lse[n] = lse.x[row + i];
            own.deltas[n] = delta.x[row + i];
        }
    }
}

// Sets p_initial and ds_initial.
void set_initial(OwnRows own) {
    const uint at = gl_SubgroupID * ROWS / 2;
    [[unroll]] for (uint n = 0; n < STATISTICS; n++) {
        const uint i = gl_SubgroupInvocationID + n * LANES;
        if (i < ROWS) {
            initial[at + i / 4][i % 4] = -own.lse[n] / scale();
            initial[at + (ROWS + i) / 4][i % 4] = -own.deltas[n];
        }
    }
    subgroup_memory_barrier();
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
        coopMatLoad(p_initial[r], initial, at + r * FM / 4, 0, gl_CooperativeMatrixLayoutColumnMajor);
        coopMatLoad(ds_initial[r], initial, at + (ROWS + r * FM) / 4, 0,
                    gl_CooperativeMatrixLayoutColumnMajor);
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
// tiles. masked: whether the causal mask hides some of these keys from some of the workgroup's queries.
void iterate(HeadRows key, HeadRows value, uint row, uint t, bool masked, inout uint at) {
    const uint next = 2 * TILE_SIZE - at;
    barrier();
    store_tile(next, keys);
    store_tile(next + TILE_SIZE, values);
    prefetch(keys, key, t + 2 * TILE_ROWS);
    prefetch(values, value, t + 2 * TILE_ROWS);
    [[dont_unroll]] for (uint c = 0; c < TILE_ROWS; c += CHUNK) {
        if (MAY_SKIP && masked && t + c >= row + ROWS) continue;  // these keys are hidden
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

    OwnRows own;
    prefetch(keys, key, 0);
    prefetch(values, value, 0);
    prefetch_owned_rows(own.queries, HeadRows(sequence, 3 * C / 8, head, T), row);
    prefetch_owned_rows(own.douts, dout_rows, row);
    prefetch_statistics(own, float_row(args.lse, group / tiles, T), float_row(args.delta, group / tiles, T),
                        row, T);
    store_positions();
    set_operands(q, own.queries);
    set_operands(dout, own.douts);
    set_initial(own);
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
