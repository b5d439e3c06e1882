// Attention backward on matrix cores: one workgroup computes the gradients of its subgroups' keys and their values for one
// head, over the queries from them on, STEP at a time. Rows of its fragments are keys and columns queries, so that the
// scores come out transposed, as dv += p^T dout and dk += ds^T q need them. A subgroup takes CHUNK queries at once: more
// of them would not fit in its registers, beside its keys, values and their gradients.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matrix.glsl"
#define TILES 4
#define PATCH_PARTS 2  // p and ds
#include "attention3.glsl"

layout(push_constant, scalar) uniform Push { AttentionBackwardArgs args; };

const uint FETCHED_STARTS = OWN_DELTA ? STEP : 2 * STEP;  // of a step: those of both products, or of the scores alone
const uint STATS = (FETCHED_STARTS + BLOCK - 1) / BLOCK;

// What the sums of the two products start from, of each query: -lse / scale(), -delta. A query past the end has no
// probabilities: its lse is huge.
shared float starts[2][2 * STEP];  // of this step and the next

FragmentA k[FACTORS], v[FACTORS];
FragmentSum p[SCORES], ds[SCORES], dk[SUMS], dv[SUMS];

void fetch_starts(inout float fetched[STATS], Floats lse, Floats delta, uint first, uint T) {
    [[unroll]] for (uint n = 0; n < STATS; n++) {
        const uint i = gl_LocalInvocationID.x + n * BLOCK, t = first + i % STEP;
        fetched[n] = i < STEP ? -1e38 : 0;
        if (i < FETCHED_STARTS && t < T) fetched[n] = i < STEP ? -lse.x[t] / scale() : -delta.x[t];
    }
}

void put_starts(uint side, float fetched[STATS]) {
    [[unroll]] for (uint n = 0; n < STATS; n++) {
        const uint i = gl_LocalInvocationID.x + n * BLOCK;
        if (i < FETCHED_STARTS) starts[side][i] = fetched[n];
    }
}

// p = q k^T and ds = dout v^T, transposed, for the queries from c on in the tiles of that side.
void multiply(uint side, uint c) {
    [[unroll]] for (uint j = 0; j < COLUMNS; j++)
        [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
            coopMatLoad(p[r * COLUMNS + j], starts[side], c + j * FN, 0, gl_CooperativeMatrixLayoutRowMajor);
            coopMatLoad(ds[r * COLUMNS + j], starts[side], STEP + c + j * FN, 0, gl_CooperativeMatrixLayoutRowMajor);
        }
    const uint queries = side * 2 * SECOND, douts = queries + SECOND;
    [[unroll]] for (uint i = 0; i < DEEP; i++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
            const FragmentB q = tile_transposed(queries, c + j * FN, i), dout = tile_transposed(douts, c + j * FN, i);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
                p[r * COLUMNS + j] = coopMatMulAdd(k[r * DEEP + i], q, p[r * COLUMNS + j]);
                ds[r * COLUMNS + j] = coopMatMulAdd(v[r * DEEP + i], dout, ds[r * COLUMNS + j]);
            }
        }
}

// Sums become probabilities and their gradients, published. row, query: of the first score of all; masked: whether some
// queries come before their key.
void differentiate(uint row, uint query, bool masked) {
    [[unroll]] for (uint i = 0; i < SCORES; i++)
        [[unroll]] for (uint e = 0; e < COMPONENTS; e++) p[i][e] = exp2(p[i][e] * scale2());
    if (masked) {
        const FragmentSum place = load_places();
        [[unroll]] for (uint e = 0; e < COMPONENTS; e++) {
            const int slant = row_of(place[e]) - column_of(place[e]);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
                [[unroll]] for (uint j = 0; j < COLUMNS; j++)
                    if (slant > int(query + j * FN) - int(row + r * FM)) p[r * COLUMNS + j][e] = 0;
        }
    }
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
            const uint i = r * COLUMNS + j;
            [[unroll]] for (uint e = 0; e < COMPONENTS; e++) ds[i][e] *= p[i][e];
            publish(p[i], r, j);
            publish(ds[i], r, COLUMNS + j);
        }
    published_barrier();
}

// dv += p^T dout, dk += ds^T q.
void accumulate(uint side, uint c) {
    const uint queries = side * 2 * SECOND, douts = queries + SECOND;
    [[unroll]] for (uint i = 0; i < CHUNK / FK; i++) {
        FragmentA a[FRAGMENTS], da[FRAGMENTS];
        [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
            a[r] = as_factor(p, r, i, 0);
            da[r] = as_factor(ds, r, i, COLUMNS);
        }
        [[unroll]] for (uint j = 0; j < WIDE; j++) {
            const FragmentB dout = tile_rows(douts, c + i * FK, j), q = tile_rows(queries, c + i * FK, j);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
                dv[r * WIDE + j] = coopMatMulAdd(a[r], dout, dv[r * WIDE + j]);
                dk[r * WIDE + j] = coopMatMulAdd(da[r], q, dk[r * WIDE + j]);
            }
        }
    }
    published_barrier();
}

uvec4 queries[FETCHES], douts[FETCHES], outs[FETCHES];
float fetched_starts[STATS];

// delta of the rows that douts and outs hold, to where put_starts() writes it otherwise.
void put_own_delta(uint side) {
    const uint line = fetcher() / PACKS;
    [[unroll]] for (uint n = 0; n < FETCHES; n++) {
        const float delta = row_product(douts[n], outs[n]);
        if (has_part(line, n) && fetcher() % PACKS == 0) starts[side][STEP + line + n * LINES] = -delta;
    }
}

// outp is read for delta alone, delta where it is computed already.
struct Queries {
    HeadRows query, dout, outp;
    Floats lse, delta;
};

void fetch_step(Queries from, uint t) {
    fetch(queries, from.query, t);
    fetch(douts, from.dout, t);
    if (OWN_DELTA) fetch(outs, from.outp, t);
    fetch_starts(fetched_starts, from.lse, from.delta, t, from.query.count);
}
void put_step(uint side) {
    put(side * 2 * SECOND, queries);
    put(side * 2 * SECOND + SECOND, douts);
    put_starts(side, fetched_starts);
    if (OWN_DELTA) put_own_delta(side);
}

// The queries from t on, whose tiles are on that side; those after them go to the other.
void one_step(Queries from, uint row, uint t, bool masked, inout uint side) {
    barrier();
    put_step(1 - side);
    fetch_step(from, t + 2 * STEP);
    [[dont_unroll]] for (uint c = 0; c < STEP; c += CHUNK) {
        multiply(side, c);
        differentiate(row, t + c, masked);
        accumulate(side, c);
    }
    side = 1 - side;
}

void main() {
    const uint T = args.T, NH = C / HS, keys = SUBGROUPS * ROWS, tiles = (T + keys - 1) / keys;
    const uint64_t group = group_index();
    if (group >= uint64_t(args.B) * NH * tiles) return;
    const uint first = uint(group % tiles) * keys;   // the longest rows start first
    const uint row = first + gl_SubgroupID * ROWS;   // the subgroup's first
    const uint64_t b = group / tiles / NH;
    const uint head = uint(group / tiles % NH) * PACKS;
    Reals sequence = real_row(args.qkv, b * T, 3 * C);
    Queries from = Queries(HeadRows(sequence, 3 * C / 8, head, T),
                           HeadRows(real_row(args.dout, b * T, C), C / 8, head, T),
                           HeadRows(real_row(args.outp, b * T, C), C / 8, head, T),
                           float_row(args.lse, group / tiles, T), float_row(args.delta, group / tiles, T));

    const uint start = first / STEP * STEP, square = min(first + keys, T);  // the masked queries come before `square`
    fetch_step(from, start);
    put_places();
    load_own(k, HeadRows(sequence, 3 * C / 8, C / 8 + head, T), row);
    load_own(v, HeadRows(sequence, 3 * C / 8, 2 * C / 8 + head, T), row);
    [[unroll]] for (uint i = 0; i < SUMS; i++) dk[i] = dv[i] = FragmentSum(0);
    barrier();
    put_step(0);
    fetch_step(from, start + STEP);
    uint side = 0, t = start;
    [[dont_unroll]] for (; t < square; t += STEP) one_step(from, row, t, true, side);
    [[dont_unroll]] for (; t < T; t += STEP) one_step(from, row, t, false, side);
    barrier();
    [[unroll]] for (uint i = 0; i < SUMS; i++) dk[i] *= scale();
    Reals dsequence = real_row(args.dqkv, b * T, 3 * C);
    store_own(dk, HeadRows(dsequence, 3 * C / 8, C / 8 + head, T), row);
    store_own(dv, HeadRows(dsequence, 3 * C / 8, 2 * C / 8 + head, T), row);
}
