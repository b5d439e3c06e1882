// GEMM on cooperative matrices: (M, N) = a b, summed over K, in tiles (matmul_tile.glsl). Each main-loop
// iteration covers TILE_K of K, whose operands pass through shared memory.
//
// The order of operations within an iteration makes the kernel fast there (docs/experiments.md lists what
// failed). All operand fragments are loaded into registers; after that, a barrier frees the shared memory.
// The operands of the next iteration, already prefetched into registers, are stored to shared memory. The
// prefetch of the iteration after that starts, while the multiply-adds run from registers. A single
// shared-memory buffer therefore suffices. It should stay under 24 KiB, or an SM runs only one workgroup.
//
// Two k_groups of subgroups may divide the K of each iteration and add up their accumulators at the end
// (sliced-K). If there are so few tiles that each has an SM to itself, twice the number of subgroups hides
// more latency.
//
// The including file gives the operand layouts, see matmul_operands.glsl.
#include "matmul_tile.glsl"

#define PREFETCHED uvec4
#define LOAD_CHUNK(from, i) Reals8(from).x[i]
#define PERMUTES_LINES
#include "matmul_operands.glsl"

layout(constant_id = 10) const uint EARLY_STEPS = 1;  // steps of FK that run before shared memory is refilled

// Operands in shared memory: lines of 16-byte chunks of 8 elements, in the order of global memory. Each
// line is padded by one chunk to an odd number, which spreads the rows of a fragment over the banks.
const uint A_STRIDE = A_CHUNKS + 1, B_STRIDE = B_CHUNKS + 1;
const uint A_SIZE = A_LINES * A_STRIDE, OPERANDS_SIZE = A_SIZE + B_LINES * B_STRIDE;

#include "matmul_epilogue.glsl"

void store_to_shared() {
    const uint a_at = first_load_a().x * A_STRIDE + first_load_a().y;
    const uint b_at = A_SIZE + first_load_b().x * B_STRIDE + first_load_b().y;
    [[unroll]] for (uint i = 0; i < A_LOADS; i++)
        smem[a_at + i * A_LINES_PER_LOAD * A_STRIDE] = prefetched_a[i];
    [[unroll]] for (uint i = 0; i < B_LOADS; i++)
        smem[b_at + i * B_LINES_PER_LOAD * B_STRIDE] = prefetched_b[i];
}

void multiply_step(FragmentA a[FRAGMENTS_M], FragmentB b[FRAGMENTS_N]) {
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
        [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
            accumulators[i * FRAGMENTS_N + j] = coopMatMulAdd(a[i], b[j], accumulators[i * FRAGMENTS_N + j]);
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
        FragmentA a[STEPS][FRAGMENTS_M];
        FragmentB b[STEPS][FRAGMENTS_N];
        [[unroll]] for (uint step = 0; step < STEPS; step++) {
            const uint kk = (p.k_group * STEPS + step) * FK;
            [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
                coopMatLoad(a[step][i], smem,
                            a_first + (A_M_MAJOR ? kk * A_STRIDE + i * FM / 8 : i * FM * A_STRIDE + kk / 8),
                            A_STRIDE, int(A_LAYOUT));
            [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
                coopMatLoad(b[step][j], smem,
                            b_first + (B_N_MAJOR ? kk * B_STRIDE + j * FN / 8 : j * FN * B_STRIDE + kk / 8),
                            B_STRIDE, int(B_LAYOUT));
        }
        [[unroll]] for (uint step = 0; step < EARLY_STEPS; step++) multiply_step(a[step], b[step]);
        barrier();
        if (k + TILE_K < p.k_end) store_to_shared();
        if (k + 2 * TILE_K < p.k_end) prefetch(a_from += A_ADVANCE, b_from += B_ADVANCE, p, k + 2 * TILE_K);
        [[unroll]] for (uint step = EARLY_STEPS; step < STEPS; step++) multiply_step(a[step], b[step]);
        barrier();
    }
}

// Adds up the accumulators of two k_groups. Each k_group gets every other strip of FM rows: it receives the
// other k_group's accumulators of these rows, and keeps the sums as its first fragments.
void reduce_k_groups(Position p) {
    const uint exchange = gl_SubgroupID % SUBGROUPS * FRAGMENTS * FRAGMENT_CHUNKS;
    [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
        if (i % K_GROUPS != p.k_group)
            [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
                coopMatStore(accumulators[i * FRAGMENTS_N + j], smem,
                             exchange + (i * FRAGMENTS_N + j) * FRAGMENT_CHUNKS, FN / 4,
                             gl_CooperativeMatrixLayoutRowMajor);
    barrier();
    [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
        if (i % K_GROUPS == p.k_group)
            [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++) {
                FragmentSum other;
                coopMatLoad(other, smem, exchange + (i * FRAGMENTS_N + j) * FRAGMENT_CHUNKS, FN / 4,
                            gl_CooperativeMatrixLayoutRowMajor);
                accumulators[i / K_GROUPS * FRAGMENTS_N + j] = accumulators[i * FRAGMENTS_N + j] + other;
            }
    barrier();
}

void main() {
    const Position p = position();
    if (outside(p)) return;
    load_bias(p);
    if (has_bias()) barrier();
    initialize_accumulators(p);
    main_loop(p, p.split * args.k_per_split);
    if (K_GROUPS > 1) reduce_k_groups(p);
    finish(p);
}
