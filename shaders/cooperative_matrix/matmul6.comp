// GEMM on cooperative matrices from a packed weight: (M, N) = a b, summed over K, in tiles
// (matmul_tile.glsl).
// a is (M, K), contiguous along K; b is the weight that pack_weight1.comp has packed (packed_weight.glsl).
// K and N are multiples of FK and FN, and of 8; M is any. Not split: args.splits is 1.
//
// Fragments of b are loaded straight from global memory into registers, STEPS_AHEAD steps of FK ahead, and L1
// serves the subgroups that share them. Only a passes through shared memory, which therefore holds four times
// as much of K as in matmul5.glsl. A subgroup runs that much longer between barriers, which makes the kernel
// alone, without packing, a fifth faster on an H200.
#version 460
#include "util.glsl"
#include "cooperative_matrix.glsl"
#include "packed_weight.glsl"
#include "matmul_tile.glsl"

const uint STEPS_AHEAD = STEPS / 2;  // more spill registers, fewer wait for memory

// The tile of a in shared memory: lines of 16-byte chunks, padded by one chunk to avoid bank conflicts.
const uint A_CHUNKS = TILE_K / 8, A_STRIDE = A_CHUNKS + 1, OPERANDS_SIZE = TILE_M * A_STRIDE;
const uint LINES_PER_LOAD = BLOCK / A_CHUNKS;  // of the workgroup
const uint A_LOADS = TILE_M / LINES_PER_LOAD;
const uint A_ADVANCE = TILE_K * REAL_BYTES;  // bytes from one tile to the next
const uint FRAGMENT_SIZE = LANES * 16;      // bytes of a packed fragment

#include "matmul_epilogue.glsl"

uvec4 prefetched_a[A_LOADS], prefetched_b[STEPS_AHEAD][FRAGMENTS_N];

// Prefetches the tile of a at k into registers. `from` is the address of this invocation's first load; its
// other loads are at constant distances. Elements outside a are zero.
void prefetch_a(uint64_t from, Position p, uint k) {
    const uint line = gl_LocalInvocationID.x / A_CHUNKS, chunk = gl_LocalInvocationID.x % A_CHUNKS;
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        const bool inside = (M % TILE_M == 0 || p.m + line + i * LINES_PER_LOAD < M) &&
                            (K % TILE_K == 0 || k / 8 + chunk < K / 8);
        prefetched_a[i] = inside ? Reals8(from).x[i * LINES_PER_LOAD * (K / 8)] : uvec4(0);
    }
}

void store_a() {
    const uint at = gl_LocalInvocationID.x / A_CHUNKS * A_STRIDE + gl_LocalInvocationID.x % A_CHUNKS;
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) smem[at + i * LINES_PER_LOAD * A_STRIDE] = prefetched_a[i];
}

// Loads the next fragment of each of the subgroup's FRAGMENTS_N columns into prefetched_b[slot] and advances
// `from` by FK. Columns past N reload a valid one; their results are not stored. The last iteration reads up
// to FRAGMENTS_PAST_END fragments past the weight (gemm/packed_weight.cpp).
void load_b(inout uint64_t from, Position p, uint slot) {
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++) {
        const uint column =
            N % SUBGROUP_N == 0 ? j : min(j, (N - 1 - min(p.n + p.subgroup_n, N - 1)) / FN);
        prefetched_b[slot][j] = Reals8(from).x[column * (K / FK) * LANES];
    }
    from += FRAGMENT_SIZE;
}

// One step: accumulators += a b over FK of K.
void multiply_step(Position p, uint step, uint slot) {
    FragmentA a[FRAGMENTS_M];
    [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
        coopMatLoad(a[i], smem, (p.subgroup_m + i * FM) * A_STRIDE + step * FK / 8, A_STRIDE,
                    gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++) {
        const FragmentB b = unpack_fragment(prefetched_b[slot][j]);
        [[unroll]] for (uint i = 0; i < FRAGMENTS_M; i++)
            accumulators[i * FRAGMENTS_N + j] = coopMatMulAdd(a[i], b, accumulators[i * FRAGMENTS_N + j]);
    }
}

// Replaces the tile of a by the next one, and prefetches the one after that.
void refill(inout uint64_t a, Position p, uint k) {
    barrier();
    if (k + TILE_K < p.k_end) store_a();
    if (k + 2 * TILE_K < p.k_end) prefetch_a(a += A_ADVANCE, p, k + 2 * TILE_K);
}

void main_loop(Position p) {
    const uint line = gl_LocalInvocationID.x / A_CHUNKS, chunk = gl_LocalInvocationID.x % A_CHUNKS;
    const uint last = N % SUBGROUP_N == 0 ? N - SUBGROUP_N : N - FN;  // column of a fragment that is inside b
    const uint first = min(p.n + p.subgroup_n, last) / FN * (K / FK);
    uint64_t a = chunk_address(args.a, p.m + line, K, chunk);
    uint64_t b = uint64_t(args.b) + (uint64_t(first) * LANES + gl_SubgroupInvocationID) * 16;
    // all of these loads are in flight at once
    [[unroll]] for (uint slot = 0; slot < STEPS_AHEAD; slot++) load_b(b, p, slot);
    prefetch_a(a, p, 0);
    load_bias(p);
    store_a();
    if (TILE_K < p.k_end) prefetch_a(a += A_ADVANCE, p, TILE_K);
    barrier();
    initialize_accumulators(p);
    // NVIDIA's compiler would unroll a loop to the constant K, and take minutes for it.
    [[dont_unroll]] for (uint k = 0; k < p.k_end; k += TILE_K) {
        [[unroll]] for (uint step = 0; step < STEPS; step++) {
            const uint slot = step % STEPS_AHEAD;
            if (K % TILE_K == 0 || k + step * FK < p.k_end) multiply_step(p, step, slot);
            load_b(b, p, slot);
        }
        refill(a, p, k);
        barrier();
    }
}

void main() {
    const Position p = position();
    if (p.split > 0) return;  // a folded grid may start extra workgroups
    main_loop(p);
    finish(p);
}
