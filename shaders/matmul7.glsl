// fp32 GEMM on bf16 cooperative matrices: (M, N) = a b, summed over K, in tiles (matmul_tile.glsl).
//
// An fp32 value is the sum of three bf16 numbers: its upper 8, middle 8 and lower 8 significant bits. So
// a b = sum of a_i b_j over the pieces i, j of both. The kernel computes the six GEMMs with i + j <= 2; the
// others are below 2^-21 of |a| |b|, as small as the rounding errors of fp32. Each main-loop iteration adds
// up its six GEMMs in accumulators of their own, from small to large: tensor cores truncate sums, and with a
// single set of accumulators errors are up to 80 times as large. The results are as accurate as those of
// fp32 arithmetic, but infinity becomes NaN. Source: Henry et al., "Leveraging the bfloat16 Artificial
// Intelligence Datatype For Higher-Precision Computations", 2019.
//
// Operands pass through shared memory as in matmul5.glsl, and are split into pieces as they are stored there.
// The including file gives the operand layouts, see matmul_operands.glsl.
#include "matmul_tile.glsl"

#define PREFETCHED mat2x4
#define LOAD_CHUNK(from, i) load8(Reals(from), i)
#include "matmul_operands.glsl"

const uint PIECES = 3;

// Operands in shared memory: lines of 16-byte chunks of 8 pieces, in the order of global memory. A line has
// all first pieces of its elements, then all second, then all third ones. It is padded by one chunk to an odd
// number, which spreads the rows of a fragment over the banks.
const uint A_STRIDE = PIECES * A_CHUNKS + 1, B_STRIDE = PIECES * B_CHUNKS + 1;
const uint A_SIZE = A_LINES * A_STRIDE, OPERANDS_SIZE = A_SIZE + B_LINES * B_STRIDE;

#include "matmul_epilogue.glsl"

// Two pieces in 32 bits, and the values of four pieces. Truncated to bf16, so the rest is exact.
#ifdef PIECES_FP16
uint join_pieces(vec2 v) { return packHalf2x16(v); }
vec4 pieces_of(vec4 v) {
    return vec4(unpackHalf2x16(packHalf2x16(v.xy)), unpackHalf2x16(packHalf2x16(v.zw)));
}
#else
uint join_pieces(vec2 v) { return floatBitsToUint(v.x) >> 16 | (floatBitsToUint(v.y) & 0xffff0000u); }
vec4 pieces_of(vec4 v) { return uintBitsToFloat(floatBitsToUint(v) & 0xffff0000u); }
#endif

// Splits 8 elements into pieces, and stores these `chunks` chunks apart.
void store_pieces(mat2x4 v, uint at, uint chunks) {
    [[unroll]] for (uint piece = 0; piece < PIECES; piece++) {
        smem[at + piece * chunks] =
            uvec4(join_pieces(v[0].xy), join_pieces(v[0].zw), join_pieces(v[1].xy), join_pieces(v[1].zw));
        v -= mat2x4(pieces_of(v[0]), pieces_of(v[1]));
    }
}

void store_to_shared() {
    const uint a_at = first_load_a().x * A_STRIDE + first_load_a().y;
    const uint b_at = A_SIZE + first_load_b().x * B_STRIDE + first_load_b().y;
    [[unroll]] for (uint i = 0; i < A_LOADS; i++)
        store_pieces(prefetched_a[i], a_at + i * A_LINES_PER_LOAD * A_STRIDE, A_CHUNKS);
    [[unroll]] for (uint i = 0; i < B_LOADS; i++)
        store_pieces(prefetched_b[i], b_at + i * B_LINES_PER_LOAD * B_STRIDE, B_CHUNKS);
}

// accumulators += a b over an iteration, one column of fragments after the other.
void multiply(FragmentA a[STEPS][PIECES][FRAGMENTS_M], FragmentB b[STEPS][PIECES][FRAGMENTS_N]) {
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++) {
        FragmentSum sums[FRAGMENTS_M];
        [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++) sums[i] = FragmentSum(0.0);
        [[unroll]] for (int order = int(PIECES) - 1; order >= 0; order--)
            [[unroll]] for (int piece = 0; piece <= order; piece++)
                [[unroll]] for (uint step = 0; step < STEPS; step++)
                    [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
                        sums[i] = coopMatMulAdd(a[step][piece][i], b[step][order - piece][j], sums[i]);
        [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++) accumulators[i * FRAGMENTS_N + j] += sums[i];
    }
}

// The main loop: accumulators += a b over K from `begin` to p.k_end.
void main_loop(Position p, uint begin) {
    uint64_t a_from = FIRST_ADDRESS_A(p, begin), b_from = FIRST_ADDRESS_B(p, begin);
    const uint a_first = A_M_MAJOR ? p.subgroup_m / 8 : p.subgroup_m * A_STRIDE;
    const uint b_first = A_SIZE + (B_N_MAJOR ? p.subgroup_n / 8 : p.subgroup_n * B_STRIDE);
    prefetch(a_from, b_from, p, begin);
    store_to_shared();
    if (begin + TILE_K < p.k_end) prefetch(a_from += A_ADVANCE, b_from += B_ADVANCE, p, begin + TILE_K);
    barrier();
    [[dont_unroll]] for (uint k = begin; k < p.k_end; k += TILE_K) {
        FragmentA a[STEPS][PIECES][FRAGMENTS_M];
        FragmentB b[STEPS][PIECES][FRAGMENTS_N];
        [[unroll]] for (uint step = 0; step < STEPS; step++) {
            const uint kk = step * FK;
            [[unroll]] for (uint piece = 0; piece < PIECES; piece++) {
                [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
                    coopMatLoad(a[step][piece][i], smem,
                                a_first + piece * A_CHUNKS +
                                    (A_M_MAJOR ? kk * A_STRIDE + i * FM / 8 : i * FM * A_STRIDE + kk / 8),
                                A_STRIDE, int(A_LAYOUT));
                [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
                    coopMatLoad(b[step][piece][j], smem,
                                b_first + piece * B_CHUNKS +
                                    (B_N_MAJOR ? kk * B_STRIDE + j * FN / 8 : j * FN * B_STRIDE + kk / 8),
                                B_STRIDE, int(B_LAYOUT));
            }
        }
        barrier();
        if (k + TILE_K < p.k_end) store_to_shared();
        if (k + 2 * TILE_K < p.k_end) prefetch(a_from += A_ADVANCE, b_from += B_ADVANCE, p, k + 2 * TILE_K);
        multiply(a, b);
        barrier();
    }
}

void main() {
    const Position p = position();
    if (outside(p)) return;
    load_bias(p);
    if (has_bias()) barrier();
    initialize_accumulators(p);
    main_loop(p, p.split * args.k_per_split);
    finish(p);
}
