// GEMM with register blocking, outp (M, N) = a b + bias, or += a b with args.accumulate: a workgroup computes
// a TILE_M x TILE_N tile, of which each invocation accumulates ROWS x 8 elements. For each k, it reads six
// vec4 of shared memory for 16 x 8 multiply-adds (four for 8 x 8).
//
// A main-loop iteration covers TILE_K of K. Invocations prefetch its operands into registers, in blocks of
// 4 x 4, one iteration ahead of their use. If there are few tiles, K_GROUPS groups of invocations compute
// the same tile, each over its own part of K (sliced-K), and their accumulators are reduced in a fixed
// order.
//
// A GEMM with an M-major a, whose K is the number of rows, may use split-K; matmul_sum then reduces the
// partial sums in a fixed order.
//
// The iteration is fully unrolled, which makes it a sixth faster on an H200.
#version 460
#include "util.glsl"

layout(constant_id = 1) const bool WIDE = false;    // N, lines of a and addresses: multiples of 4 elements
layout(constant_id = 2) const bool GUARDED = true;  // tiles may exceed the operands
layout(constant_id = 3) const uint TILE_M = 64;     // a multiple of 32, as is TILE_N
layout(constant_id = 4) const uint TILE_N = 64;
layout(constant_id = 5) const uint ROWS = 8;        // per invocation: 8 or 16
layout(constant_id = 6) const uint K_GROUPS = 1;    // BLOCK = K_GROUPS * TILE_M * TILE_N / (8 * ROWS)
layout(constant_id = 7) const bool A_M_MAJOR = false;  // a is (K, M); otherwise (M, K)
layout(constant_id = 8) const bool B_N_MAJOR = false;  // b is (K, N); otherwise (N, K), and a is (M, K)
layout(push_constant, scalar) uniform Push { MatmulArgs args; };

const uint TILE_K = 8;
const uint K_GROUP_SIZE = BLOCK / K_GROUPS;                            // invocations
const uint INVOCATIONS_M = TILE_M / ROWS, INVOCATIONS_N = TILE_N / 8;  // of a k_group, along the tile
const uint A_QUADS = TILE_M / 4, B_QUADS = TILE_N / 4;                 // vec4 in a line of equal k
const uint A_BLOCKS = A_QUADS * TILE_K / 4;                            // of 4 x 4, per iteration
const uint BLOCKS = A_BLOCKS + B_QUADS * TILE_K / 4;
const uint LOADS = (BLOCKS + K_GROUP_SIZE - 1) / K_GROUP_SIZE;         // blocks per invocation
const uint K_GROUP_QUADS = TILE_K * (A_QUADS + B_QUADS);
// Double buffering saves a barrier per iteration, but many k_groups would then take more than 32 KiB.
const uint BUFFERS = K_GROUPS > 1 ? 1 : 2;
// Rows of tiles per panel. Consecutive workgroups walk a panel column by column and so share operands in L2.
const uint PANEL = 8;

// For each buffer and k_group: the lines of a, then of b, (TILE_K, TILE_M) and (TILE_K, TILE_N).
shared vec4 smem[BUFFERS * K_GROUPS * K_GROUP_QUADS];

vec4 accumulators[ROWS][2];  // [i][j]: row row_in_tile(i), four columns from column_in_tile(j) on
vec4 prefetched[LOADS][4];
uint64_t prefetch_address[LOADS];

// An operand (rows, K): element (r, k) is x[r * ld + k], or x[k * ld + r] if it is MN-major, that is,
// stored as (K, rows).
struct Operand {
    Reals x;
    uint rows, ld;
    bool mn_major;
};

struct Tile {
    uint row, column;  // the first ones
    uint split;        // of split-K
    bool outside;      // past the last tile: there is nothing to compute
};

// The tile of the result, and the split of K, that this workgroup computes.
Tile find_tile(uint M, uint N) {
    const uint tiles_m = (M + TILE_M - 1) / TILE_M, tiles_n = (N + TILE_N - 1) / TILE_N;
    const uint split = group_index() / (tiles_m * tiles_n), i = group_index() % (tiles_m * tiles_n);
    const uint first = i / (PANEL * tiles_n) * PANEL, height = min(PANEL, tiles_m - first);
    const uint j = i % (PANEL * tiles_n);
    return Tile((first + j % height) * TILE_M, j / height * TILE_N, split, split >= args.splits);
}

uint k_group() { return gl_LocalInvocationID.x / K_GROUP_SIZE; }
uint id_in_k_group() { return gl_LocalInvocationID.x % K_GROUP_SIZE; }

// This invocation's position in its k_group, along M and N. 32 consecutive invocations cover 4
// x 8 positions if the tile is wide enough, so that a read of shared memory has few distinct addresses.
// Neighbours share their values of either a or b, which lets NVIDIA's shared memory serve twice as many at
// a time.
const uint SPAN_N = INVOCATIONS_N < 8 ? INVOCATIONS_N : 8;
const uint SPAN_M = INVOCATIONS_M < 32 / SPAN_N ? INVOCATIONS_M : 32 / SPAN_N;
uvec2 position_in_k_group() {
    const uint lane = id_in_k_group() % (SPAN_N * SPAN_M), span = id_in_k_group() / (SPAN_N * SPAN_M);
    const uint m = lane % 2 + lane / (2 * SPAN_N) * 2, n = lane / 2 % SPAN_N;
    return uvec2(span / (INVOCATIONS_N / SPAN_N) * SPAN_M + m, span % (INVOCATIONS_N / SPAN_N) * SPAN_N + n);
}
uint row_in_tile(uint i) { return (position_in_k_group().x + i / 4 * INVOCATIONS_M) * 4 + i % 4; }
uint column_in_tile(uint j) { return (position_in_k_group().y + j * INVOCATIONS_N) * 4; }

// Four values from `address` on; those past the first `count` are zero.
vec4 load_four(uint64_t address, uint count) {
    if (WIDE) return load4(Reals(address), 0);
    vec4 v = vec4(0);
    [[unroll]] for (uint i = 0; i < 4; i++)
        if (i < count) v[i] = load(Reals(address), i);
    return v;
}

void store_four(Reals p, uint column, vec4 v, uint num_columns) {
    if (WIDE) {
        store4(p, column / 4, v);
        return;
    }
    [[unroll]] for (uint i = 0; i < 4; i++)
        if (column + i < num_columns) store(p, column + i, v[i]);
}

// The blocks that this invocation loads in an iteration. All blocks of a come before the blocks of b.
bool has_load(uint n) { return BLOCKS % K_GROUP_SIZE == 0 || n * K_GROUP_SIZE + id_in_k_group() < BLOCKS; }
bool loads_a(uint n) { return n * K_GROUP_SIZE < A_BLOCKS && n * K_GROUP_SIZE + id_in_k_group() < A_BLOCKS; }

// Row and k of block n within the tile. Eight neighbouring invocations load blocks of consecutive rows, so
// that they store a contiguous line of shared memory.
uvec2 block_offset(uint n, bool mn_major) {
    const uint i = n * K_GROUP_SIZE + id_in_k_group() - (loads_a(n) ? 0 : A_BLOCKS);
    const uint quads = loads_a(n) ? A_QUADS : B_QUADS;
    if (mn_major) return uvec2(i % quads, i / quads) * 4;
    return uvec2(i % 8 + i / (2 * TILE_K) * 8, i / 8 % (TILE_K / 4)) * 4;
}

// The address of block n of the tile at (row, k) of the operand.
uint64_t block_address(uint n, Operand o, uint row, uint k) {
    const uvec2 at = uvec2(row, k) + block_offset(n, o.mn_major);
    return uint64_t(real_row(o.x, o.mn_major ? at.y : at.x, o.ld)) + (o.mn_major ? at.x : at.y) * REAL_BYTES;
}

// Prefetches block n as 4 vec4 along its contiguous dimension, with zeros past the operand's rows and past
// `end`. Then advances its address to the next iteration.
void prefetch_block(uint n, Operand o, uint row, uint k, uint end) {
    const uvec2 at = uvec2(row, k) + block_offset(n, o.mn_major);
    const uint line = o.mn_major ? at.y : at.x, lines = o.mn_major ? end : o.rows;
    const uint start = o.mn_major ? at.x : at.y, width = o.mn_major ? o.rows : end;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        prefetched[n][i] = vec4(0);
        if (!GUARDED || (line + i < lines && start < width))
            prefetched[n][i] = load_four(prefetch_address[n] + i * o.ld * REAL_BYTES, width - start);
    }
    prefetch_address[n] += TILE_K * (o.mn_major ? o.ld : 1) * REAL_BYTES;
}

// Stores block n to shared memory, whose lines have equal k: a block that was loaded along K is transposed.
void store_block_to_shared(uint n, uint first, uint quads, bool mn_major) {
    const uvec2 offset = block_offset(n, mn_major);
    const uint at = first + offset.y * quads + offset.x / 4;
    const vec4 v[4] = prefetched[n];
    [[unroll]] for (uint i = 0; i < 4; i++)
        smem[at + i * quads] = mn_major ? v[i] : vec4(v[0][i], v[1][i], v[2][i], v[3][i]);
}

// Prefetches the operands of an iteration into registers; stores them to the k_group's lines of shared
// memory, which begin at `first`.
void prefetch(Operand a, Operand b, Tile tile, uint k, uint end) {
    [[unroll]] for (uint n = 0; n < LOADS; n++)
        if (has_load(n)) {
            if (loads_a(n)) prefetch_block(n, a, tile.row, k, end);
            else prefetch_block(n, b, tile.column, k, end);
        }
}
void store_to_shared(Operand a, Operand b, uint first) {
    [[unroll]] for (uint n = 0; n < LOADS; n++)
        if (has_load(n)) {
            if (loads_a(n)) store_block_to_shared(n, first, A_QUADS, a.mn_major);
            else store_block_to_shared(n, first + TILE_K * A_QUADS, B_QUADS, b.mn_major);
        }
}

void multiply_iteration(uint first) {
    const uint row = first + position_in_k_group().x;
    const uint column = first + TILE_K * A_QUADS + position_in_k_group().y;
    [[unroll]] for (uint k = 0; k < TILE_K; k++) {
        vec4 a[ROWS / 4];
        [[unroll]] for (uint i = 0; i < ROWS / 4; i++) a[i] = smem[row + k * A_QUADS + i * INVOCATIONS_M];
        const vec4 b[2] = {smem[column + k * B_QUADS], smem[column + k * B_QUADS + INVOCATIONS_N]};
        [[unroll]] for (uint i = 0; i < ROWS; i++)
            [[unroll]] for (uint j = 0; j < 2; j++)
                accumulators[i][j] = fma(vec4(a[i / 4][i % 4]), b[j], accumulators[i][j]);
    }
}

// Reduces the accumulators into k_group 0's: the upper half of the k_groups is added to the lower
// half, until one is left. The operands' shared memory holds half of the accumulators at a time.
void reduce_k_groups() {
    for (uint kept = K_GROUPS / 2; kept > 0; kept /= 2)
        [[unroll]] for (uint j = 0; j < 2; j++) {
            barrier();
            if (k_group() >= kept && k_group() < 2 * kept)
                [[unroll]] for (uint i = 0; i < ROWS; i++)
                    smem[i * (BLOCK / 2) + gl_LocalInvocationID.x - kept * K_GROUP_SIZE] = accumulators[i][j];
            barrier();
            if (k_group() < kept)
                [[unroll]] for (uint i = 0; i < ROWS; i++)
                    accumulators[i][j] += smem[i * (BLOCK / 2) + gl_LocalInvocationID.x];
        }
}

// The accumulators of k_group 0 = this invocation's elements of a b^T, summed over k = begin .. stop - 1.
// Other k_groups' are undefined. All invocations of a workgroup must call it.
void multiply(Operand a, Operand b, Tile tile, uint begin, uint stop) {
    const uint iterations = (stop - begin + K_GROUPS * TILE_K - 1) / (K_GROUPS * TILE_K);
    const uint first = begin + k_group() * iterations * TILE_K, end = min(stop, first + iterations * TILE_K);
    [[unroll]] for (uint i = 0; i < ROWS; i++)
        [[unroll]] for (uint j = 0; j < 2; j++) accumulators[i][j] = vec4(0);
    [[unroll]] for (uint n = 0; n < LOADS; n++)
        prefetch_address[n] = loads_a(n) ? block_address(n, a, tile.row, first)
                                         : block_address(n, b, tile.column, first);
    prefetch(a, b, tile, first, end);
    for (uint iteration = 0; iteration < iterations; iteration++) {
        const uint lines = (iteration % BUFFERS * K_GROUPS + k_group()) * K_GROUP_QUADS;
        if (BUFFERS == 1) barrier();  // all reads of the previous iteration are done
        store_to_shared(a, b, lines);
        barrier();
        if (iteration + 1 < iterations) prefetch(a, b, tile, first + (iteration + 1) * TILE_K, end);
        multiply_iteration(lines);
    }
    if (K_GROUPS > 1) reduce_k_groups();
}

void store_partial4(Floats p, uint column, vec4 v, uint num_columns) {
    if (WIDE) {
        Floats4(uint64_t(p) + column * 4).x[0] = v;
        return;
    }
    [[unroll]] for (uint i = 0; i < 4; i++)
        if (column + i < num_columns) p.x[column + i] = v[i];
}

void main() {
    const uint M = args.M, N = args.N, K = args.K;
    const Tile tile = find_tile(M, N);
    if (tile.outside) return;
    const uint begin = A_M_MAJOR ? tile.split * args.k_per_split : 0;
    const uint end = A_M_MAJOR ? min(begin + args.k_per_split, K) : K;
    multiply(Operand(args.a, M, A_M_MAJOR ? M : K, A_M_MAJOR),
             Operand(args.b, N, B_N_MAJOR ? N : K, B_N_MAJOR), tile, begin, end);
    if (k_group() != 0) return;
    [[unroll]] for (uint j = 0; j < 2; j++) {
        const uint column = tile.column + column_in_tile(j);
        vec4 bias = vec4(0);
        if (column < N && uint64_t(args.bias) != 0)
            bias = load_four(uint64_t(args.bias) + column * REAL_BYTES, N - column);
        [[unroll]] for (uint i = 0; i < ROWS; i++) {
            const uint row = tile.row + row_in_tile(i);
            if (row >= M || column >= N) continue;
            if (A_M_MAJOR && args.splits > 1) {
                store_partial4(float_row(args.partials, uint64_t(tile.split) * M + row, N), column,
                               accumulators[i][j], N);
                continue;
            }
            Reals outp = real_row(args.outp, row, N);
            vec4 v = accumulators[i][j] + bias;
            if (A_M_MAJOR && args.accumulate != 0)
                v += load_four(uint64_t(outp) + column * REAL_BYTES, N - column);
            store_four(outp, column, v, N);
        }
    }
}
