// GEMM on cooperative matrices: (M, N) = a b, summed over K. A workgroup computes a TILE_M x TILE_N tile;
// each of its subgroups computes SUBGROUP_M x SUBGROUP_N of it, in fragments of FM x FN with fp32
// accumulators in registers. Each main-loop iteration covers TILE_K of K, whose operands pass through
// shared memory. All sizes are specialization constants, so strides fold into addresses: on an H200, this
// makes the kernel a third faster.
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
// The including file gives the operand layouts. A_M_MAJOR: a is (K, M), contiguous along M; otherwise it is
// (M, K), contiguous along K. B_N_MAJOR: b is (K, N), contiguous along N; otherwise it is (N, K),
// contiguous along K. A contiguous dimension is a multiple of 8.
#include "gelu.glsl"

layout(constant_id = 4) const uint TILE_M = 128;
layout(constant_id = 5) const uint TILE_N = 128;
layout(constant_id = 6) const uint TILE_K = 32;
layout(constant_id = 7) const uint SUBGROUP_M = 64;
layout(constant_id = 8) const uint SUBGROUP_N = 64;
layout(constant_id = 9) const uint EARLY_STEPS = 1;  // steps of FK that run before shared memory is refilled
// Rows of tiles per panel. Consecutive workgroups walk a panel column by column and so share operands in L2.
layout(constant_id = 10) const uint PANEL = 8;
layout(constant_id = 11) const uint M = 8;
layout(constant_id = 12) const uint N = 8;
layout(constant_id = 13) const uint K = 8;
layout(constant_id = 14) const bool GUARDED = true;  // tiles may exceed the operands
layout(constant_id = 15) const uint EPILOGUE = 0;    // EPILOGUE_... of args.h
layout(constant_id = 16) const uint K_GROUPS = 1;    // or 2; a divisor of SUBGROUP_M / FM

layout(push_constant, scalar) uniform Push { MatmulMatrixArgs args; };

// Operands in shared memory: lines of 16-byte chunks of 8 elements, in the order of global memory. Each
// line is padded by one chunk to an odd number, which spreads the rows of a fragment over the banks.
const uint A_LINES = A_M_MAJOR ? TILE_K : TILE_M, A_CHUNKS = (A_M_MAJOR ? TILE_M : TILE_K) / 8;
const uint B_LINES = B_N_MAJOR ? TILE_K : TILE_N, B_CHUNKS = (B_N_MAJOR ? TILE_N : TILE_K) / 8;
const uint A_STRIDE = A_CHUNKS + 1, B_STRIDE = B_CHUNKS + 1;
const uint A_SIZE = A_LINES * A_STRIDE, OPERANDS_SIZE = A_SIZE + B_LINES * B_STRIDE;
const uint A_LINES_PER_LOAD = BLOCK / A_CHUNKS, B_LINES_PER_LOAD = BLOCK / B_CHUNKS;  // of the workgroup
const uint A_LOADS = A_LINES / A_LINES_PER_LOAD, B_LOADS = B_LINES / B_LINES_PER_LOAD;
const uint A_ADVANCE = TILE_K * (A_M_MAJOR ? M : 1) * REAL_BYTES;  // from one iteration to the next
const uint B_ADVANCE = TILE_K * (B_N_MAJOR ? N : 1) * REAL_BYTES;
const uint A_LAYOUT = A_M_MAJOR ? gl_CooperativeMatrixLayoutColumnMajor : gl_CooperativeMatrixLayoutRowMajor;
const uint B_LAYOUT = B_N_MAJOR ? gl_CooperativeMatrixLayoutRowMajor : gl_CooperativeMatrixLayoutColumnMajor;

// Fragments of a subgroup, and the steps of FK that it computes per iteration.
const uint FRAGMENTS_M = SUBGROUP_M / FM, FRAGMENTS_N = SUBGROUP_N / FN;
const uint FRAGMENTS = FRAGMENTS_M * FRAGMENTS_N;
const uint STEPS = TILE_K / FK / K_GROUPS;
const uint SUBGROUPS = (TILE_M / SUBGROUP_M) * (TILE_N / SUBGROUP_N);  // per k_group
const uint LANES = BLOCK / (SUBGROUPS * K_GROUPS);                     // invocations per subgroup

// Each subgroup stages its results in a strip of shared memory, FM rows at a time, so that it accesses
// global memory in chunks of 16 bytes. A row of the strip holds SUBGROUP_N elements of the storage type, or
// of fp32 for split-K partial sums. With K_GROUPS, each k_group writes every K_GROUPS-th strip.
const uint ROW_CHUNKS = SUBGROUP_N / (EPILOGUE == EPILOGUE_PARTIAL ? 4 : 8), STRIP_STRIDE = ROW_CHUNKS + 1;
const uint STRIP_SIZE = FM * STRIP_STRIDE, STRIPS_SIZE = SUBGROUPS * K_GROUPS * STRIP_SIZE;
const uint STRIPS = FRAGMENTS_M / K_GROUPS;            // per subgroup
const uint STRIP_ACCESSES = FM * ROW_CHUNKS / LANES;   // chunks of a strip per invocation
const uint RESULT_ACCESSES = STRIP_ACCESSES * STRIPS;  // of all strips

// To be added up, k_groups exchange half of their accumulators in fp32, fragment by fragment.
const uint FRAGMENT_CHUNKS = FM * FN / 4;
const uint EXCHANGE_SIZE = K_GROUPS / 2 * SUBGROUPS * FRAGMENTS * FRAGMENT_CHUNKS;
const uint OPERANDS_OR_STRIPS_SIZE = STRIPS_SIZE > OPERANDS_SIZE ? STRIPS_SIZE : OPERANDS_SIZE;

shared uvec4 smem[EXCHANGE_SIZE > OPERANDS_OR_STRIPS_SIZE ? EXCHANGE_SIZE : OPERANDS_OR_STRIPS_SIZE];

FragmentSum accumulators[FRAGMENTS];
uvec4 prefetched_a[A_LOADS], prefetched_b[B_LOADS];

// What a subgroup computes.
struct Position {
    uint m, n;                    // first row and column of the workgroup's tile
    uint subgroup_m, subgroup_n;  // of the subgroup's part, within the tile
    uint split, k_end;            // split of K, and its end
    uint k_group;
};

// The line that invocation i loads, among `at_once`, permuted to avoid bank conflicts if a line has 64 or 32
// bytes: eight invocations that store to shared memory together then take lines that are 4 or 2 apart.
uint permuted_line(uint i, uint chunks, uint at_once) {
    if (at_once % 8 != 0) return i;
    return chunks == 4   ? (i & ~7u) | (i & 1u) << 2 | (i & 7u) >> 1
           : chunks == 2 ? (i & ~7u) | (i & 3u) << 1 | (i & 7u) >> 2
                         : i;
}
// Line and chunk of this invocation's first load of each operand.
uvec2 first_load_a() {
    return uvec2(permuted_line(gl_LocalInvocationID.x / A_CHUNKS, A_CHUNKS, A_LINES_PER_LOAD),
                 gl_LocalInvocationID.x % A_CHUNKS);
}
uvec2 first_load_b() {
    return uvec2(permuted_line(gl_LocalInvocationID.x / B_CHUNKS, B_CHUNKS, B_LINES_PER_LOAD),
                 gl_LocalInvocationID.x % B_CHUNKS);
}

// The address of an operand's chunk; its lines have `width` elements.
uint64_t chunk_address(Reals p, uint line, uint width, uint chunk) {
    return uint64_t(p) + (uint64_t(line) * (width / 8) + chunk) * 16;
}

// Prefetches the operands of the iteration at k into registers. a and b are the addresses of this
// invocation's first loads; its other loads are at constant distances. Elements outside the operands are
// zero.
void prefetch(uint64_t a, uint64_t b, Position p, uint k) {
    [[unroll]] for (uint i = 0; i < A_LOADS; i++) {
        const uint line = first_load_a().x + i * A_LINES_PER_LOAD, chunk = first_load_a().y;
        const bool inside = A_M_MAJOR ? k + line < p.k_end && p.m / 8 + chunk < M / 8
                                      : p.m + line < M && k / 8 + chunk < K / 8;
        prefetched_a[i] =
            !GUARDED || inside ? Reals8(a).x[i * A_LINES_PER_LOAD * (A_M_MAJOR ? M : K) / 8] : uvec4(0);
    }
    [[unroll]] for (uint i = 0; i < B_LOADS; i++) {
        const uint line = first_load_b().x + i * B_LINES_PER_LOAD, chunk = first_load_b().y;
        const bool inside = B_N_MAJOR ? k + line < p.k_end && p.n / 8 + chunk < N / 8
                                      : p.n + line < N && k / 8 + chunk < K / 8;
        prefetched_b[i] =
            !GUARDED || inside ? Reals8(b).x[i * B_LINES_PER_LOAD * (B_N_MAJOR ? N : K) / 8] : uvec4(0);
    }
}

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
    uint64_t a_from = A_M_MAJOR
                          ? chunk_address(args.a, begin + first_load_a().x, M, p.m / 8 + first_load_a().y)
                          : chunk_address(args.a, p.m + first_load_a().x, K, begin / 8 + first_load_a().y);
    uint64_t b_from = B_N_MAJOR
                          ? chunk_address(args.b, begin + first_load_b().x, N, p.n / 8 + first_load_b().y)
                          : chunk_address(args.b, p.n + first_load_b().x, K, begin / 8 + first_load_b().y);
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

// Sets each row of the accumulators to the bias, in k_group 0, or to zero. The bias passes through shared
// memory in fp32. Loading a fragment with a row stride of 0 broadcasts it to all rows.
void initialize_accumulators(Position p) {
    [[unroll]] for (uint i = 0; i < FRAGMENTS; i++) accumulators[i] = FragmentSum(0.0);
    if (EPILOGUE != EPILOGUE_BIAS && EPILOGUE != EPILOGUE_GELU) return;
    for (uint i = gl_LocalInvocationID.x; i < TILE_N / 4; i += BLOCK) {
        const uint n = p.n + 4 * i;
        smem[i] = floatBitsToUint(!GUARDED || n < N ? load4(args.bias, n / 4) : vec4(0));
    }
    barrier();
    if (p.k_group == 0)
        [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++) {
            coopMatLoad(accumulators[j], smem, p.subgroup_n / 4 + j * FN / 4, 0,
                        gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint i = 1; i < FRAGMENTS_M; i++)
                accumulators[i * FRAGMENTS_N + j] = accumulators[j];
        }
    barrier();
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

// --- epilogue: results, one strip of FM rows at a time ---

uint strip_start() { return gl_SubgroupID * STRIP_SIZE; }
uint strip_index(uint access) {
    const uint e = access * LANES + gl_SubgroupInvocationID;
    return strip_start() + e / ROW_CHUNKS * STRIP_STRIDE + e % ROW_CHUNKS;
}
// Row and chunk of the result for this invocation's access to its subgroup's strip i.
uvec2 result_position(Position p, uint i, uint access) {
    const uint e = access * LANES + gl_SubgroupInvocationID, per_chunk = EPILOGUE == EPILOGUE_PARTIAL ? 4 : 8;
    return uvec2(p.m + p.subgroup_m + (i * K_GROUPS + p.k_group) * FM + e / ROW_CHUNKS,
                 (p.n + p.subgroup_n) / per_chunk + e % ROW_CHUNKS);
}
bool in_result(uvec2 at) {
    return !GUARDED || (at.x < M && at.y < N / (EPILOGUE == EPILOGUE_PARTIAL ? 4 : 8));
}

// Writes strip i of the accumulators to outp, rounded to the storage type.
void store_strip(Reals outp, Position p, uint i) {
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
        coopMatStore(round_fragment(accumulators[i * FRAGMENTS_N + j]), smem, strip_start() + j * FN / 8,
                     STRIP_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
    subgroupBarrier();
    [[unroll]] for (uint access = 0; access < STRIP_ACCESSES; access++) {
        const uvec2 at = result_position(p, i, access);
        if (in_result(at)) Reals8(uint64_t(outp)).x[at.x * (N / 8) + at.y] = smem[strip_index(access)];
    }
    subgroupBarrier();
}

// Writes strip i to the split's partial sums, in fp32.
void store_partial_strip(Position p, uint i) {
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
        coopMatStore(accumulators[i * FRAGMENTS_N + j], smem, strip_start() + j * FN / 4, STRIP_STRIDE,
                     gl_CooperativeMatrixLayoutRowMajor);
    subgroupBarrier();
    [[unroll]] for (uint access = 0; access < STRIP_ACCESSES; access++) {
        const uvec2 at = result_position(p, i, access);
        if (in_result(at))
            Floats4(uint64_t(args.partials)).x[(p.split * M + at.x) * (N / 4) + at.y] =
                uintBitsToFloat(smem[strip_index(access)]);
    }
    subgroupBarrier();
}

// Combines strip i of the accumulators with values that were loaded from global memory.
void combine_strip(uvec4 values[RESULT_ACCESSES], uint i) {
    [[unroll]] for (uint access = 0; access < STRIP_ACCESSES; access++)
        smem[strip_index(access)] = values[i * STRIP_ACCESSES + access];
    subgroupBarrier();
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++) {
        FragmentResult stored;
        coopMatLoad(stored, smem, strip_start() + j * FN / 8, STRIP_STRIDE,
                    gl_CooperativeMatrixLayoutRowMajor);
        FragmentSum other = FragmentSum(stored);
        if (EPILOGUE == EPILOGUE_ADD)
            accumulators[i * FRAGMENTS_N + j] += other;
        else
            for (int e = 0; e < other.length(); e++)
                accumulators[i * FRAGMENTS_N + j][e] *= fast_gelu_slope(other[e]);
    }
    subgroupBarrier();
}

void main() {
    const uint tiles_m = (M + TILE_M - 1) / TILE_M, tiles_n = (N + TILE_N - 1) / TILE_N;
    const uint split = group_index() / (tiles_m * tiles_n), i_tile = group_index() % (tiles_m * tiles_n);
    if (split >= args.splits) return;
    const uint first = i_tile / (PANEL * tiles_n) * PANEL, height = min(PANEL, tiles_m - first);
    const uint in_panel = i_tile % (PANEL * tiles_n);
    const uint begin = split * args.k_per_split;
    const Position p =
        Position((first + in_panel % height) * TILE_M, in_panel / height * TILE_N,
                 gl_SubgroupID % (TILE_M / SUBGROUP_M) * SUBGROUP_M,
                 gl_SubgroupID % SUBGROUPS / (TILE_M / SUBGROUP_M) * SUBGROUP_N, split,
                 min(begin + args.k_per_split, K), gl_SubgroupID / SUBGROUPS);
    initialize_accumulators(p);
    main_loop(p, begin);
    if (K_GROUPS > 1) reduce_k_groups(p);

    if (EPILOGUE == EPILOGUE_PARTIAL) {
        [[unroll]] for (uint i = 0; i < STRIPS; i++) store_partial_strip(p, i);
        return;
    }
    uvec4 others[RESULT_ACCESSES];  // all loads are in flight at once
    if (EPILOGUE == EPILOGUE_GELU_SLOPE || EPILOGUE == EPILOGUE_ADD)
        [[unroll]] for (uint i = 0; i < RESULT_ACCESSES; i++) {
            const uvec2 at = result_position(p, i / STRIP_ACCESSES, i % STRIP_ACCESSES);
            const uint64_t from = uint64_t(EPILOGUE == EPILOGUE_ADD ? args.outp : args.other);
            others[i] = in_result(at) ? Reals8(from).x[at.x * (N / 8) + at.y] : uvec4(0);
        }
    [[unroll]] for (uint i = 0; i < STRIPS; i++) {
        if (EPILOGUE == EPILOGUE_GELU_SLOPE || EPILOGUE == EPILOGUE_ADD) combine_strip(others, i);
        if (EPILOGUE == EPILOGUE_GELU) {
            store_strip(args.other, p, i);
            [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++) {
                // GELU of the rounded values, so that recomputing it from memory is bit-identical.
#ifdef REAL_BF16
                accumulators[i * FRAGMENTS_N + j] =
                    FragmentSum(round_fragment(accumulators[i * FRAGMENTS_N + j]));
#else
                FragmentResult stored;  // loaded again, because compilers drop a conversion to fp16 and back
                coopMatLoad(stored, smem, strip_start() + j * FN / 8, STRIP_STRIDE,
                            gl_CooperativeMatrixLayoutRowMajor);
                accumulators[i * FRAGMENTS_N + j] = FragmentSum(stored);
#endif
                for (int e = 0; e < accumulators[i * FRAGMENTS_N + j].length(); e++)
                    accumulators[i * FRAGMENTS_N + j][e] = fast_gelu(accumulators[i * FRAGMENTS_N + j][e]);
            }
            subgroupBarrier();
        }
        store_strip(args.outp, p, i);
    }
}
