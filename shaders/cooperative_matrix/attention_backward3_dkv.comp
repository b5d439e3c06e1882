// Attention backward pass on cooperative matrices: one workgroup computes the gradients of its subgroups'
// keys and values for one head. It loops over the queries that see them, TILE_ROWS per iteration. Rows of its
// score fragments are keys and columns are queries: it computes the transposed scores that dv += p^T dout and
// dk += ds^T q need. A subgroup processes CHUNK queries at once: more would not fit in its registers, beside
// its keys, values and their gradients.
#version 460
#include "util.glsl"
#include "cooperative_matrix.glsl"
#define TILES 4
#define STAGING_PARTS 2  // p and ds
#include "attention3.glsl"

layout(push_constant, scalar) uniform Push { AttentionBackwardArgs args; };

const uint INITIAL_VALUES = 2 * TILE_ROWS;  // loaded per iteration, for both GEMMs
const uint INITIAL_LOADS = (INITIAL_VALUES + BLOCK - 1) / BLOCK;

// The initial values of both GEMMs' accumulators, per query: -lse / scale() and -delta. A query past the end
// has a huge lse, so that its probabilities are zero. Fragments load from multiples of 16 bytes.
shared vec4 initial[2][TILE_ROWS / 2];  // of this iteration and the next

FragmentA k[OPERANDS], v[OPERANDS];
FragmentSum p[SCORES], ds[SCORES], dk[ACCUMULATORS], dv[ACCUMULATORS];

// Prefetches lse and delta as they are; store_initial() scales them. Otherwise an invocation waits for its
// load in every iteration, which makes the kernel a sixth slower on an H200.
void prefetch_initial(inout float prefetched[INITIAL_LOADS], Floats lse, Floats delta, uint first, uint T) {
    [[unroll]] for (uint n = 0; n < INITIAL_LOADS; n++) {
        const uint i = gl_LocalInvocationID.x + n * BLOCK, t = first + i % TILE_ROWS;
        prefetched[n] = i >= TILE_ROWS ? 0 : HUGE_LSE;
        if (i < INITIAL_VALUES && t < T)
            prefetched[n] = Floats(i < TILE_ROWS ? uint64_t(lse) : uint64_t(delta)).x[t];
    }
}

void store_initial(uint slot, float prefetched[INITIAL_LOADS]) {
    [[unroll]] for (uint n = 0; n < INITIAL_LOADS; n++) {
        const uint i = gl_LocalInvocationID.x + n * BLOCK;
        if (i < INITIAL_VALUES)
            initial[slot][i / 4][i % 4] = prefetched[n] * (i < TILE_ROWS ? -1 / scale() : -1);
    }
}

// p^T = k q^T and ds^T = v dout^T, plus initial values, for the queries from c on in the tiles of buffer
// `slot`.
void multiply(uint slot, uint c) {
    [[unroll]] for (uint j = 0; j < COLUMNS; j++)
        [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
            coopMatLoad(p[r * COLUMNS + j], initial[slot], (c + j * FN) / 4, 0,
                        gl_CooperativeMatrixLayoutRowMajor);
            coopMatLoad(ds[r * COLUMNS + j], initial[slot], (TILE_ROWS + c + j * FN) / 4, 0,
                        gl_CooperativeMatrixLayoutRowMajor);
        }
    const uint queries = slot * 2 * TILE_SIZE, douts = queries + TILE_SIZE;
    [[unroll]] for (uint i = 0; i < K_FRAGMENTS; i++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
            const FragmentB q = load_tile_transposed(queries, c + j * FN, i);
            const FragmentB dout = load_tile_transposed(douts, c + j * FN, i);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
                p[r * COLUMNS + j] = coopMatMulAdd(k[r * K_FRAGMENTS + i], q, p[r * COLUMNS + j]);
                ds[r * COLUMNS + j] = coopMatMulAdd(v[r * K_FRAGMENTS + i], dout, ds[r * COLUMNS + j]);
            }
        }
}

// Accumulators become probabilities and gradients of the scores, stored as operands. row, query: of the
// first score. masked: whether the causal mask hides some of the keys from these queries.
void differentiate(uint row, uint query, bool masked) {
    [[unroll]] for (uint i = 0; i < SCORES; i++)
        [[unroll]] for (uint e = 0; e < COMPONENTS; e++) p[i][e] = exp2(p[i][e] * scale2());
    if (masked) {
        const FragmentSum position = load_positions();
        [[unroll]] for (uint e = 0; e < COMPONENTS; e++) {
            const int diagonal = row_of(position[e]) - column_of(position[e]);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
                [[unroll]] for (uint j = 0; j < COLUMNS; j++)
                    if (diagonal > int(query + j * FN) - int(row + r * FM)) p[r * COLUMNS + j][e] = 0;
        }
    }
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
            const uint i = r * COLUMNS + j;
            [[unroll]] for (uint e = 0; e < COMPONENTS; e++) ds[i][e] *= p[i][e];
            stage(p[i], r, j);
            stage(ds[i], r, COLUMNS + j);
        }
    staging_barrier();
}

// dv += p^T dout, dk += ds^T q.
void accumulate(uint slot, uint c) {
    const uint queries = slot * 2 * TILE_SIZE, douts = queries + TILE_SIZE;
    [[unroll]] for (uint i = 0; i < CHUNK / FK; i++) {
        FragmentA a[FRAGMENTS], da[FRAGMENTS];
        [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
            a[r] = as_operand(p, r, i, 0);
            da[r] = as_operand(ds, r, i, COLUMNS);
        }
        [[unroll]] for (uint j = 0; j < N_FRAGMENTS; j++) {
            const FragmentB dout = load_tile(douts, c + i * FK, j), q = load_tile(queries, c + i * FK, j);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
                dv[r * N_FRAGMENTS + j] = coopMatMulAdd(a[r], dout, dv[r * N_FRAGMENTS + j]);
                dk[r * N_FRAGMENTS + j] = coopMatMulAdd(da[r], q, dk[r * N_FRAGMENTS + j]);
            }
        }
    }
    staging_barrier();
}

uvec4 queries[LOADS], douts[LOADS];
float prefetched_initial[INITIAL_LOADS];

struct Queries {
    HeadRows query, dout;
    Floats lse, delta;
};

void prefetch_tiles(Queries from, uint t) {
    prefetch(queries, from.query, t);
    prefetch(douts, from.dout, t);
    prefetch_initial(prefetched_initial, from.lse, from.delta, t, from.query.count);
}
void store_tiles(uint slot) {
    store_tile(slot * 2 * TILE_SIZE, queries);
    store_tile(slot * 2 * TILE_SIZE + TILE_SIZE, douts);
    store_initial(slot, prefetched_initial);
}

// One iteration of the main loop: the queries from t on, in the tiles of buffer `slot`. The next queries go
// to the other buffer. masked: whether the causal mask hides some of the workgroup's keys from some of these
// queries.
void iterate(Queries from, uint row, uint t, bool masked, inout uint slot) {
    barrier();
    store_tiles(1 - slot);
    prefetch_tiles(from, t + 2 * TILE_ROWS);
    [[dont_unroll]] for (uint c = 0; c < TILE_ROWS; c += CHUNK) {
        if (MAY_SKIP && masked && t + c + CHUNK <= row) continue;  // the subgroup's keys are hidden
        multiply(slot, c);
        differentiate(row, t + c, masked);
        accumulate(slot, c);
    }
    slot = 1 - slot;
}

void main() {
    const uint T = args.T, NH = C / HS, keys = SUBGROUPS * ROWS, tiles = (T + keys - 1) / keys;
    const uint64_t group = group_index();
    if (group >= uint64_t(args.B) * NH * tiles) return;
    const uint first = uint(group % tiles) * keys;   // the longest loops start first
    const uint row = first + gl_SubgroupID * ROWS;   // the subgroup's first row
    const uint64_t b = group / tiles / NH;
    const uint head = uint(group / tiles % NH) * PACKS;
    Reals sequence = real_row(args.qkv, b * T, 3 * C);
    Queries from = Queries(HeadRows(sequence, 3 * C / 8, head, T),
                           HeadRows(real_row(args.dout, b * T, C), C / 8, head, T),
                           float_row(args.lse, group / tiles, T), float_row(args.delta, group / tiles, T));

    const uint begin = first / TILE_ROWS * TILE_ROWS, masked_end = min(first + keys, T);
    uvec4 own_keys[OWN_LOADS], own_values[OWN_LOADS];
    prefetch_tiles(from, begin);
    prefetch_owned_rows(own_keys, HeadRows(sequence, 3 * C / 8, C / 8 + head, T), row);
    prefetch_owned_rows(own_values, HeadRows(sequence, 3 * C / 8, 2 * C / 8 + head, T), row);
    store_positions();
    set_operands(k, own_keys);
    set_operands(v, own_values);
    [[unroll]] for (uint i = 0; i < ACCUMULATORS; i++) dk[i] = dv[i] = FragmentSum(0);
    barrier();
    store_tiles(0);
    prefetch_tiles(from, begin + TILE_ROWS);
    uint slot = 0, t = begin;
    [[dont_unroll]] for (; t < masked_end; t += TILE_ROWS) iterate(from, row, t, true, slot);
    [[dont_unroll]] for (; t < T; t += TILE_ROWS) iterate(from, row, t, false, slot);
    barrier();
    [[unroll]] for (uint i = 0; i < ACCUMULATORS; i++) dk[i] *= scale();
    Reals dsequence = real_row(args.dqkv, b * T, 3 * C);
    store_owned_rows(dk, HeadRows(dsequence, 3 * C / 8, C / 8 + head, T), row);
    store_owned_rows(dv, HeadRows(dsequence, 3 * C / 8, 2 * C / 8 + head, T), row);
}
