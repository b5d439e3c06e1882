// Operands of GEMMs on cooperative matrices that pass through shared memory (matmul5.glsl, matmul7.glsl),
// after matmul_tile.glsl: what each invocation prefetches into registers. It takes chunks of 8 consecutive
// elements, in lines along the contiguous dimension.
//
// The including file gives the operand layouts. A_M_MAJOR: a is (K, M), contiguous along M; otherwise it is
// (M, K), contiguous along K. B_N_MAJOR: b is (K, N), contiguous along N; otherwise it is (N, K),
// contiguous along K. A contiguous dimension is a multiple of 8. It also defines PREFETCHED, the type that
// holds a chunk in registers, LOAD_CHUNK, which loads chunk i from an address on, and maybe PERMUTES_LINES.
// They are macros, since functions in their place make the SPIR-V of bf16 modules larger.
const uint A_LINES = A_M_MAJOR ? TILE_K : TILE_M, A_CHUNKS = (A_M_MAJOR ? TILE_M : TILE_K) / 8;
const uint B_LINES = B_N_MAJOR ? TILE_K : TILE_N, B_CHUNKS = (B_N_MAJOR ? TILE_N : TILE_K) / 8;
const uint A_LINES_PER_LOAD = BLOCK / A_CHUNKS, B_LINES_PER_LOAD = BLOCK / B_CHUNKS;  // of the workgroup
const uint A_LOADS = A_LINES / A_LINES_PER_LOAD, B_LOADS = B_LINES / B_LINES_PER_LOAD;
const uint A_ADVANCE = TILE_K * (A_M_MAJOR ? M : 1) * REAL_BYTES;  // from one iteration to the next
const uint B_ADVANCE = TILE_K * (B_N_MAJOR ? N : 1) * REAL_BYTES;
// Whether tiles divide the operands.
const bool FILLS_M = M % TILE_M == 0, FILLS_N = N % TILE_N == 0, FILLS_K = K % TILE_K == 0;
const uint A_LAYOUT = A_M_MAJOR ? gl_CooperativeMatrixLayoutColumnMajor : gl_CooperativeMatrixLayoutRowMajor;
const uint B_LAYOUT = B_N_MAJOR ? gl_CooperativeMatrixLayoutRowMajor : gl_CooperativeMatrixLayoutColumnMajor;

PREFETCHED prefetched_a[A_LOADS], prefetched_b[B_LOADS];

#ifdef PERMUTES_LINES
// The line that invocation i loads, among `at_once`, permuted to avoid bank conflicts if a line has 64 or 32
// bytes: eight invocations that store to shared memory together then take lines that are 4 or 2 apart.
uint permuted_line(uint i, uint chunks, uint at_once) {
    if (at_once % 8 != 0) return i;
    return chunks == 4   ? (i & ~7u) | (i & 1u) << 2 | (i & 7u) >> 1
           : chunks == 2 ? (i & ~7u) | (i & 3u) << 1 | (i & 7u) >> 2
                         : i;
}
#else
#define permuted_line(i, chunks, at_once) (i)
#endif

// Line and chunk of this invocation's first load of each operand.
uvec2 first_load_a() {
    return uvec2(permuted_line(gl_LocalInvocationID.x / A_CHUNKS, A_CHUNKS, A_LINES_PER_LOAD),
                 gl_LocalInvocationID.x % A_CHUNKS);
}
uvec2 first_load_b() {
    return uvec2(permuted_line(gl_LocalInvocationID.x / B_CHUNKS, B_CHUNKS, B_LINES_PER_LOAD),
                 gl_LocalInvocationID.x % B_CHUNKS);
}

// Column of chunks of an M-major or N-major operand with rows of `width` elements, clamped to the last one:
// results past the end are not stored.
uint column_inside(uint chunk, uint width, bool fills) { return fills ? chunk : min(chunk, width / 8 - 1); }

// The addresses of these loads for the iteration at k.
#define FIRST_ADDRESS_A(p, k)                                                                           \
    (A_M_MAJOR                                                                                          \
         ? chunk_address(operand(args.a, p, M * K), k + first_load_a().x, M,                            \
                         column_inside(p.m / 8 + first_load_a().y, M, FILLS_M))                         \
         : chunk_address(operand(args.a, p, M * K), p.m + first_load_a().x, K, k / 8 + first_load_a().y))
#define FIRST_ADDRESS_B(p, k)                                                                           \
    (B_N_MAJOR                                                                                          \
         ? chunk_address(operand(args.b, p, N * K), k + first_load_b().x, N,                            \
                         column_inside(p.n / 8 + first_load_b().y, N, FILLS_N))                         \
         : chunk_address(operand(args.b, p, N * K), p.n + first_load_b().x, K, k / 8 + first_load_b().y))

// Prefetches the operands of the iteration at k into registers. a and b are the addresses of this
// invocation's first loads; its other loads are at constant distances. Elements past the end of K, and rows
// past the end of K-major operands, are zero.
void prefetch(uint64_t a, uint64_t b, Position p, uint k) {
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        const uint line = first_load_a().x + i * A_LINES_PER_LOAD, chunk = first_load_a().y;
        const bool inside = A_M_MAJOR ? FILLS_K || k + line < p.k_end
                                      : (FILLS_M || p.m + line < M) && (FILLS_K || k / 8 + chunk < K / 8);
        prefetched_a[i] =
            inside ? LOAD_CHUNK(a, i * A_LINES_PER_LOAD * (A_M_MAJOR ? M : K) / 8) : PREFETCHED(0);
    }
    [[unroll]] for (uint i = 0; i < B_LOADS; i++) {
        const uint line = first_load_b().x + i * B_LINES_PER_LOAD, chunk = first_load_b().y;
        const bool inside = B_N_MAJOR ? FILLS_K || k + line < p.k_end
                                      : (FILLS_N || p.n + line < N) && (FILLS_K || k / 8 + chunk < K / 8);
        prefetched_b[i] =
            inside ? LOAD_CHUNK(b, i * B_LINES_PER_LOAD * (B_N_MAJOR ? N : K) / 8) : PREFETCHED(0);
    }
}
