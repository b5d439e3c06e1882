// Attention: GPU versions, their tables, and the choice that training makes. The CPU version is in
// attention_cpu.cpp.
#include "llmc/attention.h"

#include <algorithm>
#include <bit>

#include "llmc/packs.h"
#include "shaders/args.h"

int attention_head_size(int C, int NH) {
    if (NH < 1 || C % NH != 0) fail("attention: %d channels do not divide into %d heads", C, NH);
    if (C / NH > 128)
        fail("attention: heads of %d channels are too large: at most 128 (C %d, NH %d)", C / NH, C, NH);
    return C / NH;
}

// Of `products` products of the scores' size; causal: half of (T, T).
template <class Args>
static Work score_work(const Args& args, int products) {
    return {.flops = double(products) * args.B * args.T * args.T * args.C};
}

// Rows and columns of a tile in the tiled kernels: TILE of attention.glsl.
static const int TILE = 64;

// Whether each head's rows begin at multiples of 4 elements, so that kernels can read quads.
template <class T>
static uint32_t quads_fit(std::initializer_list<uint64_t> addresses, int hs) {
    return pack_width<T>(hs, addresses) == 4;
}

template <class T>
static AttentionForwardArgs forward_args(LaunchPad& pad, T* out, float* lse, const T* qkv, int B, int seq_len,
                                         int C, int NH) {
    const size_t rows = size_t(B) * seq_len;
    return {pad.at(out, rows * C), pad.at(lse, rows * NH), pad.at(qkv, rows * 3 * C), B, seq_len, C, NH};
}

template <class T>
static AttentionBackwardArgs backward_args(LaunchPad& pad, T* dqkv, float* delta, const T* dout, const T* out,
                                           const float* lse, const T* qkv, int B, int seq_len, int C,
                                           int NH) {
    const size_t rows = size_t(B) * seq_len;
    return {pad.at(dqkv, rows * 3 * C),
            pad.at(delta, rows * NH),
            pad.at(dout, rows * C),
            pad.at(out, rows * C),
            pad.at(lse, rows * NH),
            pad.at(qkv, rows * 3 * C),
            B,
            seq_len,
            C,
            NH};
}

// Of the tiled kernels. A GPU wants the registers of 128 invocations; a software device has them in memory
// anyway, and larger blocks of sums save it loads (measured on lavapipe: 1.4 times as fast).
static int best_block(const LaunchPad& pad) { return pad.device().type == DeviceType::software ? 64 : 128; }

template <class T>
static void attention_forward1(LaunchPad& pad, T* out, float* lse, const T* qkv, int B, int seq_len, int C,
                               int NH, int block_size) {
    const uint32_t hs = attention_head_size(C, NH);
    const AttentionForwardArgs args = forward_args(pad, out, lse, qkv, B, seq_len, C, NH);
    pad.dispatch<T>("attention_forward1", {blocks(uint64_t(B) * NH * seq_len, block_size)},
                    {uint32_t(block_size), hs}, args, score_work(args, 2));
}

template <class T>
static void attention_forward2(LaunchPad& pad, T* out, float* lse, const T* qkv, int B, int seq_len, int C,
                               int NH, int block_size) {
    const uint32_t hs = attention_head_size(C, NH);
    const AttentionForwardArgs args = forward_args(pad, out, lse, qkv, B, seq_len, C, NH);
    pad.dispatch<T>("attention_forward2", {uint64_t(B) * NH * blocks(seq_len, TILE)},
                    {uint32_t(block_size), hs, quads_fit<T>({args.outp, args.qkv}, hs)}, args,
                    score_work(args, 2));
}

// The fragments of T that version 3 multiplies; zeros: it cannot run.
template <class T>
static MatrixShape matrix_shape(const LaunchPad& pad) {
    const MatrixShape shape = pad.limits().matrix<T>();
    const bool divides = shape && shape.M % 4 == 0 && 16 % shape.N == 0 && 16 % shape.K == 0 &&
                         shape.N % 8 == 0 && shape.K % 8 == 0;
    return divides && shape.rows_known ? shape : MatrixShape{};
}

template <class T>
bool attention_on_matrix_cores(const LaunchPad& pad, int C, int NH) {
    // heads of an odd number of fragments come out as NaN on an H200, for a reason not found yet
    const MatrixShape shape = matrix_shape<T>(pad);
    return shape && attention_head_size(C, NH) % 16 == 0 && attention_head_size(C, NH) % (2 * shape.K) == 0;
}

// Sequences up to this one are short for the backward pass of version 3, where a stage's start counts: its
// kernels compute delta by themselves. 0: never.
static const int OWN_DELTA_LONGEST = 64;

template <class T>
bool attention_leaves_delta(const LaunchPad& pad, int seq_len, int C, int NH) {
    const uint32_t packs = attention_head_size(C, NH) / 8;  // of 16 bytes, each with a lane
    return attention_on_matrix_cores<T>(pad, C, NH) && seq_len <= OWN_DELTA_LONGEST &&
           std::has_single_bit(packs) && packs <= pad.limits().subgroup_size;
}

// How a kernel of version 3 divides its work: the names are those of attention3.glsl.
struct MatrixTiling {
    uint32_t block, fragments, step, chunk;
};

// A software device spends its time on compiling products, each of them unrolled. Its second tilings, for
// tests, have a single subgroup of two fragments.
static const MatrixTiling SOFTWARE_TILING = {64, 1, 8, 8};

// The tilings of a block size; the best ones on an H200 (SPEED.md) are those of 128, where three workgroups
// of forward and dkv, two of dq, share a multiprocessor. The forward kernel takes a whole tile at once.
static MatrixTiling forward_tiling(const LaunchPad& pad, int block_size) {
    const bool software = pad.device().type == DeviceType::software;
    if (block_size == 64) return software ? MatrixTiling{8, 2, 16, 16} : MatrixTiling{64, 2, 32, 32};
    if (software) return SOFTWARE_TILING;
    return {uint32_t(block_size), 1, 32, 32};
}
struct BackwardTilings {
    MatrixTiling dkv, dq;
};
static BackwardTilings backward_tilings(const LaunchPad& pad, int block_size) {
    const bool software = pad.device().type == DeviceType::software;
    if (block_size == 64 && software) return {{8, 2, 8, 8}, {8, 2, 8, 8}};
    if (block_size == 64) return {{64, 2, 16, 16}, {64, 2, 32, 16}};
    if (software) return {SOFTWARE_TILING, SOFTWARE_TILING};
    if (block_size == 256) return {{256, 1, 32, 32}, {256, 1, 32, 32}};
    return {{128, 1, 16, 16}, {128, 2, 32, 16}};
}
// For dq of short sequences: all keys in one step, which takes most of the shared memory, but there are few
// workgroups then. Measured with heads of 64 on an H200 (d12, B=4, T=64: 3.11 -> 3.07 ms a step). 0: never.
static const MatrixTiling ONE_TILE_DQ = {128, 1, 64, 32};
static const int ONE_TILE_LONGEST = 64;

// Bytes of shared memory that a kernel of version 3 needs at most: `tiles` tiles, patches of `sums` sums side
// by side, and what belongs to rows.
static uint32_t shared_bytes(const MatrixTiling& t, uint32_t tiles, uint32_t sums, const MatrixShape& shape,
                             uint32_t lanes, uint32_t hs) {
    const uint32_t subgroups = t.block / lanes, rows = t.fragments * shape.M, stride = hs / 8 + 1;
    const uint32_t patch = shape.in_place ? 0 : rows * (sums * t.chunk / 8 + 1);
    const uint32_t area = std::max(tiles * t.step * stride + subgroups * patch, subgroups * shape.M * stride);
    const uint32_t scratch = 1024;  // of util.glsl, which stays declared
    return 16 * area + 4 * (2 * subgroups * rows + 4 * t.step + shape.M * shape.N + scratch);
}

// Whether the device can run a kernel of version 3 in that tiling.
template <class T>
static bool tiling_fits(const LaunchPad& pad, int products, const MatrixTiling& t, uint32_t hs) {
    const uint32_t lanes = pad.limits().subgroup_size;
    if (t.block % lanes != 0 || t.block < hs / 8) return false;
    const uint32_t tiles = products == 2 ? 2 : 4, sums = products == 4 ? 2 : 1;
    return shared_bytes(t, tiles, sums, matrix_shape<T>(pad), lanes, hs) <= pad.limits().shared_bytes;
}

// Starts a kernel of version 3; false: the shared memory has no room, or rows do not lie at multiples of 16
// bytes.
template <class T, class Args>
static bool dispatch_matrix(LaunchPad& pad, const char* kernel, int products, MatrixTiling t,
                            const Args& args, std::initializer_list<uint64_t> addresses,
                            bool own_delta = false) {
    const MatrixShape shape = matrix_shape<T>(pad);
    const uint32_t lanes = pad.limits().subgroup_size, hs = attention_head_size(args.C, args.NH);
    for (uint64_t address : addresses)
        if (address % 16 != 0) return false;
    if (hs > 64) t.fragments = 1;  // the registers have no room for two
    if (!attention_on_matrix_cores<T>(pad, args.C, args.NH) || !tiling_fits<T>(pad, products, t, hs))
        return false;
    const uint32_t rows = t.block / lanes * t.fragments * shape.M;
    pad.dispatch<T>(kernel, {uint64_t(args.B) * args.NH * blocks(args.T, rows)},
                    {t.block, shape.M, shape.N, shape.K, hs, uint32_t(args.C), lanes, t.fragments, t.step,
                     t.chunk, shape.in_place, shape.row_components, shape.column_lanes, own_delta},
                    args, score_work(args, products));
    return true;
}

template <class T>
static void attention_forward3(LaunchPad& pad, T* out, float* lse, const T* qkv, int B, int seq_len, int C,
                               int NH, int block_size) {
    const AttentionForwardArgs args = forward_args(pad, out, lse, qkv, B, seq_len, C, NH);
    const MatrixTiling tiling = forward_tiling(pad, block_size);
    if (!dispatch_matrix<T>(pad, "attention_forward3", 2, tiling, args, {args.outp, args.qkv}))
        attention_forward2(pad, out, lse, qkv, B, seq_len, C, NH, best_block(pad));
}

template <class T>
std::vector<KernelVersion<AttentionForward<T>>> attention_forward_versions() {
    return {
        {"attention_forward1", "one invocation per query", attention_forward1<T>, {32, 128}},
        {"attention_forward2",
         "tiles of 64 queries x 64 keys, sums in registers",
         attention_forward2<T>,
         {128, 64}},
        {"attention_forward3",
         "fragments on matrix cores, a subgroup owns whole rows",
         attention_forward3<T>,
         {128, 64, 256}},
    };
}

template <class T>
void attention_forward(LaunchPad* pad, T* out, float* lse, const T* qkv, int B, int seq_len, int C, int NH) {
    if (!pad) return attention_forward_cpu(out, lse, qkv, B, seq_len, C, NH);
    if (attention_on_matrix_cores<T>(*pad, C, NH))
        return attention_forward3(*pad, out, lse, qkv, B, seq_len, C, NH, 128);
    attention_forward2(*pad, out, lse, qkv, B, seq_len, C, NH, best_block(*pad));
}

// delta, which the other kernels of every backward version read (but where own_delta), and the wait for it.
template <class T>
static void backward_delta(LaunchPad& pad, const AttentionBackwardArgs& args, uint32_t hs) {
    const uint32_t block = 128, width = wide_pack_width<T>(hs, {args.dout, args.outp});
    const uint32_t heads = 4 * block / (hs / width);  // four packs for each invocation of a workgroup
    pad.dispatch<T>("attention_backward_delta", {blocks(uint64_t(args.B) * args.T * args.NH, heads)},
                    {block, width, hs, heads}, args, moves<T>(2.0 * args.B * args.T * args.C));
    pad.barrier();
}

template <class T>
static void attention_backward1(LaunchPad& pad, T* dqkv, float* delta, const T* dout, const T* out,
                                const float* lse, const T* qkv, int B, int seq_len, int C, int NH,
                                int block_size) {
    const uint32_t hs = attention_head_size(C, NH), block = block_size;
    const AttentionBackwardArgs args =
        backward_args(pad, dqkv, delta, dout, out, lse, qkv, B, seq_len, C, NH);
    const Groups groups = {blocks(uint64_t(B) * NH * seq_len, block)};
    backward_delta<T>(pad, args, hs);
    pad.begin_group();
    pad.dispatch<T>("attention_backward1_dkv", groups, {block, hs}, args, score_work(args, 4));
    pad.dispatch<T>("attention_backward1_dq", groups, {block, hs}, args, score_work(args, 3));
    pad.end_group();
}

template <class T>
static void attention_backward2(LaunchPad& pad, T* dqkv, float* delta, const T* dout, const T* out,
                                const float* lse, const T* qkv, int B, int seq_len, int C, int NH,
                                int block_size) {
    const uint32_t hs = attention_head_size(C, NH), block = block_size;
    const AttentionBackwardArgs args =
        backward_args(pad, dqkv, delta, dout, out, lse, qkv, B, seq_len, C, NH);
    const uint32_t quads = quads_fit<T>({args.dqkv, args.dout, args.qkv}, hs);
    const Groups groups = {uint64_t(B) * NH * blocks(seq_len, TILE)};
    backward_delta<T>(pad, args, hs);
    pad.begin_group();
    pad.dispatch<T>("attention_backward2_dkv", groups, {block, hs, quads}, args, score_work(args, 4));
    pad.dispatch<T>("attention_backward2_dq", groups, {block, hs, quads}, args, score_work(args, 3));
    pad.end_group();
}

template <class T>
static void attention_backward3(LaunchPad& pad, T* dqkv, float* delta, const T* dout, const T* out,
                                const float* lse, const T* qkv, int B, int seq_len, int C, int NH,
                                int block_size) {
    const AttentionBackwardArgs args =
        backward_args(pad, dqkv, delta, dout, out, lse, qkv, B, seq_len, C, NH);
    const uint32_t hs = attention_head_size(C, NH);
    auto [dkv, dq] = backward_tilings(pad, block_size);
    const bool one_tile = seq_len <= ONE_TILE_LONGEST && hs <= 64 && block_size == 128 &&
                          pad.device().type != DeviceType::software;
    if (one_tile && tiling_fits<T>(pad, 3, ONE_TILE_DQ, hs)) dq = ONE_TILE_DQ;
    const std::initializer_list<uint64_t> addresses = {args.dqkv, args.dout, args.qkv};
    const bool own_delta = attention_leaves_delta<T>(pad, seq_len, C, NH) && args.outp % 16 == 0;
    if (!own_delta) backward_delta<T>(pad, args, hs);
    pad.begin_group();
    const bool done =
        dispatch_matrix<T>(pad, "attention_backward3_dkv", 4, dkv, args, addresses, own_delta) &&
        dispatch_matrix<T>(pad, "attention_backward3_dq", 3, dq, args, addresses, own_delta);
    pad.end_group();
    if (!done) attention_backward2(pad, dqkv, delta, dout, out, lse, qkv, B, seq_len, C, NH, best_block(pad));
}

template <class T>
std::vector<KernelVersion<AttentionBackward<T>>> attention_backward_versions() {
    return {
        {"attention_backward1",
         "one invocation per query, then one per key",
         attention_backward1<T>,
         {32, 128}},
        {"attention_backward2",
         "tiles of 64 queries x 64 keys, sums in registers",
         attention_backward2<T>,
         {128, 64}},
        {"attention_backward3",
         "fragments on matrix cores, a subgroup owns whole rows",
         attention_backward3<T>,
         {128, 64, 256}},
    };
}

template <class T>
void attention_backward(LaunchPad* pad, T* dqkv, float* delta, const T* dout, const T* out, const float* lse,
                        const T* qkv, int B, int seq_len, int C, int NH) {
    if (!pad) return attention_backward_cpu(dqkv, delta, dout, out, lse, qkv, B, seq_len, C, NH);
    if (attention_on_matrix_cores<T>(*pad, C, NH))
        return attention_backward3(*pad, dqkv, delta, dout, out, lse, qkv, B, seq_len, C, NH, 128);
    attention_backward2(*pad, dqkv, delta, dout, out, lse, qkv, B, seq_len, C, NH, best_block(*pad));
}

#define INSTANTIATE(T)                                                                                   \
    template std::vector<KernelVersion<AttentionForward<T>>> attention_forward_versions();               \
    template std::vector<KernelVersion<AttentionBackward<T>>> attention_backward_versions();             \
    template void attention_forward(LaunchPad*, T*, float*, const T*, int, int, int, int);               \
    template void attention_backward(LaunchPad*, T*, float*, const T*, const T*, const float*, const T*, \
                                     int, int, int, int);                                                \
    template bool attention_on_matrix_cores<T>(const LaunchPad&, int, int);                              \
    template bool attention_leaves_delta<T>(const LaunchPad&, int, int, int);
FOR_EACH_REAL(INSTANTIATE)
