// Attention: the GPU versions, their tables, and the functions that training calls. attention_cpu.cpp has the
// CPU version.
#include "llmc/layers/attention.h"

#include <algorithm>

#include "llmc/base/ceil_div.h"
#include "llmc/launchpad/packs.h"
#include "shaders/args.h"

int attention_head_size(int C, int NH) {
    if (NH < 1 || C % NH != 0) fail("attention: %d channels do not divide into %d heads", C, NH);
    if (C / NH > 128)
        fail("attention: heads of %d channels are too large: at most 128 (C %d, NH %d)", C / NH, C, NH);
    return C / NH;
}

// The work of `gemms` GEMMs that read or write (T,T) scores, half of which the causal mask removes.
template <class Args>
static Work score_work(const Args& args, int gemms) {
    return {.flops = double(gemms) * args.B * args.T * args.T * args.C};
}

template <class Real>
static AttentionForwardArgs forward_args(LaunchPad& pad, const AttentionForward<Real>& p) {
    const size_t num_rows = size_t(p.B) * p.T;
    return {pad.at(p.out, num_rows * p.C),
            pad.at(p.lse, num_rows * p.NH),
            pad.at(p.qkv, num_rows * 3 * p.C),
            p.B,
            p.T,
            p.C,
            p.NH};
}

template <class Real>
static AttentionBackwardArgs backward_args(LaunchPad& pad, const AttentionBackward<Real>& p) {
    const size_t num_rows = size_t(p.B) * p.T;
    return {pad.at(p.dqkv, num_rows * 3 * p.C),
            pad.at(p.delta, num_rows * p.NH),
            pad.at(p.dout, num_rows * p.C),
            pad.at(p.out, num_rows * p.C),
            pad.at(p.lse, num_rows * p.NH),
            pad.at(p.qkv, num_rows * 3 * p.C),
            p.B,
            p.T,
            p.C,
            p.NH};
}

// The block size of version 2. Where registers are few, more invocations hold fewer accumulators each.
static int best_block_size(const LaunchPad& pad) {
    return pad.limits().few_registers ? 256 : int(std::min(128u, pad.limits().barrier_block));
}

// The backward pass has twice the accumulators: 256 invocations spill 8 registers on Intel's devices, 512
// none.
static int best_backward_block_size(const LaunchPad& pad) {
    const bool large = pad.limits().few_registers && pad.limits().max_block >= 512;
    return large ? 512 : best_block_size(pad);
}

// Queries and keys per tile in version 2: TILE of attention.glsl. A device that compiles slowly runs smaller
// tiles sooner, which hold a quarter of the accumulators; with block sizes that training does not take, it
// has those of GPUs, for tests.
static uint32_t tile_size(const LaunchPad& pad, int block_size) {
    return pad.limits().compiles_slowly && block_size == best_block_size(pad) ? 32 : 64;
}

// Checks the iterations of version 2: one for each tile of keys or queries, in which the compiler unrolls all
// loops but those that load.
static void check_version2(const LaunchPad& pad, int T, uint32_t tile) {
    const uint64_t most_loads = 16;
    check_iterations(pad, "attention", ceil_div(T, tile) * (1 + most_loads));
}

template <class Real>
static void attention_forward2(LaunchPad& pad, const AttentionForward<Real>& p, int block_size) {
    const uint32_t hs = attention_head_size(p.C, p.NH);
    const uint32_t tile = tile_size(pad, block_size);
    const AttentionForwardArgs args = forward_args(pad, p);
    // whether they are aligned in every row of a head
    const bool quads = pack_width<Real>(hs, {args.outp, args.qkv}) == 4;
    check_version2(pad, p.T, tile);
    pad.dispatch<Real>("attention_forward2", {uint64_t(p.B) * p.NH * ceil_div(p.T, tile)},
                       {uint32_t(block_size), hs, quads, tile}, args, score_work(args, 2));
}

// The shape of the fragments of Real that version 3 multiplies; zeros if it cannot run on this device.
template <class Real>
static FragmentShape usable_fragment(const LaunchPad& pad) {
    const FragmentShape shape = pad.limits().fragment<Real>();
    const bool divides = shape && shape.M % 4 == 0 && 16 % shape.N == 0 && 16 % shape.K == 0 &&
                         shape.N % 8 == 0 && shape.K % 8 == 0;
    return divides && shape.layout_known ? shape : FragmentShape{};
}

template <class Real>
bool attention_on_tensor_cores(const LaunchPad& pad, int C, int NH) {
    // An odd number of fragments along K gave NaN on an H200: such heads take version 2.
    const FragmentShape shape = usable_fragment<Real>(pad);
    return shape && attention_head_size(C, NH) % 16 == 0 && attention_head_size(C, NH) % (2 * shape.K) == 0;
}

// Version 3 of the backward pass needs accumulators that can serve as operands. With two copies in registers
// it spills 66 to 163 of them on RDNA 3, SGPRs included, and version 2 none. Software devices, which keep
// registers in memory, take it so that CI trains with what other GPUs run.
template <class Real>
static bool backward_on_tensor_cores(const LaunchPad& pad, int C, int NH) {
    const bool one_copy = pad.limits().fragment<Real>().in_place;
    return attention_on_tensor_cores<Real>(pad, C, NH) && (one_copy || pad.limits().compiles_slowly);
}

// The tiling of a kernel on tensor cores; attention3.glsl explains the fields.
struct Tiling {
    uint32_t block, fragments, tile_rows, chunk;
};

// The tilings for a block size. Block size 128 has the fastest ones on an H200 (docs/experiments.md): three
// workgroups of the forward and dkv kernels, or two of dq and of version 4 with block size 256, fit on an SM.
// In the forward kernels, chunk equals tile_rows.
struct Tilings {
    Tiling forward, forward4, dkv, dq;
};
static Tilings gpu_tilings(int block_size) {
    if (block_size == 64) return {{64, 2, 32, 32}, {64, 2, 16, 16}, {64, 2, 16, 16}, {64, 2, 32, 16}};
    if (block_size == 256) return {{256, 1, 32, 32}, {256, 1, 32, 32}, {256, 1, 32, 32}, {256, 1, 32, 32}};
    return {{128, 1, 32, 32}, {128, 2, 16, 16}, {128, 1, 16, 16}, {128, 2, 32, 16}};
}
// As small as possible, for a device that compiles slowly. For tests, block size 64 has two row fragments,
// and block size 256 has fewer queries in a workgroup than keys in a tile.
static Tilings small_tilings(int block_size) {
    const Tiling smallest = {64, 1, 8, 8};
    if (block_size == 64) return {{8, 2, 16, 16}, {8, 2, 16, 16}, {8, 2, 8, 8}, {8, 2, 8, 8}};
    if (block_size == 256) return {{8, 1, 16, 16}, {8, 1, 16, 16}, smallest, smallest};
    return {smallest, smallest, smallest, smallest};
}
static Tilings tilings(const LaunchPad& pad, int block_size) {
    return pad.limits().compiles_slowly ? small_tilings(block_size) : gpu_tilings(block_size);
}

// An upper bound on a kernel's shared memory, in bytes: `tiles` tiles, a staging buffer per subgroup for
// `staging_parts` chunks of accumulators, and the row statistics.
static uint32_t shared_bytes(const Tiling& t, uint32_t tiles, uint32_t staging_parts,
                             const FragmentShape& shape, uint32_t subgroup_size, uint32_t hs) {
    const uint32_t subgroups = t.block / subgroup_size, rows = t.fragments * shape.M, stride = hs / 8 + 1;
    const uint32_t staging = shape.in_place ? 0 : rows * (staging_parts * t.chunk / 8 + 1);
    const uint32_t packs =
        std::max(tiles * t.tile_rows * stride + subgroups * staging, subgroups * shape.M * stride);
    return 16 * packs + 4 * (2 * subgroups * rows + 4 * t.tile_rows + shape.M * shape.N);
}

// The kernels on tensor cores.
struct TensorCoreKernel {
    const char* name;
    int gemms;
    uint32_t tiles, staging_parts;  // in shared memory: attention3.glsl
};
static const TensorCoreKernel
    FORWARD3 = {.name = "attention_forward3", .gemms = 2, .tiles = 2, .staging_parts = 1},
    FORWARD4 = {.name = "attention_forward4", .gemms = 2, .tiles = 4, .staging_parts = 1},
    BACKWARD3_DKV = {.name = "attention_backward3_dkv", .gemms = 4, .tiles = 4, .staging_parts = 2},
    BACKWARD3_DQ = {.name = "attention_backward3_dq", .gemms = 3, .tiles = 4, .staging_parts = 1};

// Whether the device can run a kernel with that tiling.
template <class Real>
static bool tiling_fits(const LaunchPad& pad, const TensorCoreKernel& kernel, const Tiling& t, uint32_t hs) {
    const uint32_t subgroup_size = pad.limits().subgroup_size;
    if (t.block % subgroup_size != 0 || t.block < hs / 8) return false;
    const FragmentShape shape = usable_fragment<Real>(pad);
    return shared_bytes(t, kernel.tiles, kernel.staging_parts, shape, subgroup_size, hs) <=
           pad.limits().shared_bytes;
}

// Returns false, without a dispatch, if the tiling does not fit into shared memory, or one of `addresses` is
// not aligned to 16 bytes.
template <class Real, class Args>
static bool dispatch_on_tensor_cores(LaunchPad& pad, const TensorCoreKernel& kernel, Tiling t,
                                     const Args& args, std::initializer_list<uint64_t> addresses) {
    const FragmentShape shape = usable_fragment<Real>(pad);
    const uint32_t subgroup_size = pad.limits().subgroup_size, hs = attention_head_size(args.C, args.NH);
    for (uint64_t address : addresses)
        if (address % 16 != 0) return false;
    if (hs > 64) t.fragments = 1;  // two would spill registers
    if (!attention_on_tensor_cores<Real>(pad, args.C, args.NH) || !tiling_fits<Real>(pad, kernel, t, hs))
        return false;
    const uint32_t rows = t.block / subgroup_size * t.fragments * shape.M;
    check_iterations(pad, kernel.name, ceil_div(args.T, 16));  // an iteration for a tile of at least 16 rows
    pad.dispatch<Real>(
        kernel.name, {uint64_t(args.B) * args.NH * ceil_div(args.T, rows)},
        {t.block, shape.M, shape.N, shape.K, uint32_t(shape.conversion), hs, uint32_t(args.C), subgroup_size,
         t.fragments, t.tile_rows, t.chunk, shape.in_place, shape.row_components, shape.column_lanes},
        args, score_work(args, kernel.gemms));
    return true;
}

// Runs version 2 instead if the kernel cannot.
template <class Real>
static void forward_on_tensor_cores(LaunchPad& pad, const AttentionForward<Real>& p,
                                    const TensorCoreKernel& kernel, const Tiling& tiling) {
    const AttentionForwardArgs args = forward_args(pad, p);
    if (!dispatch_on_tensor_cores<Real>(pad, kernel, tiling, args, {args.outp, args.qkv}))
        attention_forward2(pad, p, best_block_size(pad));
}

template <class Real>
static void attention_forward3(LaunchPad& pad, const AttentionForward<Real>& p, int block_size) {
    forward_on_tensor_cores(pad, p, FORWARD3, tilings(pad, block_size).forward);
}

template <class Real>
static void attention_forward4(LaunchPad& pad, const AttentionForward<Real>& p, int block_size) {
    forward_on_tensor_cores(pad, p, FORWARD4, tilings(pad, block_size).forward4);
}

template <class Real>
std::vector<KernelVersion<AttentionForward<Real>>> attention_forward_versions() {
    return {
        {"attention_forward2",
         "tiles of 64 queries x 64 keys, accumulators in registers",
         attention_forward2<Real>,
         {128, 64, 256, 512}},
        {"attention_forward3",
         "tensor cores; each subgroup owns whole rows of the scores",
         attention_forward3<Real>,
         {128, 64, 256}},
        {"attention_forward4",
         "tensor cores; no running maximum, and tiles that alternate",
         attention_forward4<Real>,
         {256, 128, 64}},
    };
}

// Version 4 runs heads again whose scores exceed those of the first keys by more than the storage type's
// range: rare in bf16 (69 in base e), but not in fp16 (10). Heads of more than 64 channels do not leave room
// for two workgroups on an SM, and neither do two copies of the accumulators. Its workgroups compute 128
// queries, so that they would have idle subgroups, or be few, with short sequences.
template <class Real>
static bool keeps_first_maximum(const LaunchPad& pad, const AttentionForward<Real>& p) {
    return std::is_same_v<Real, bf16> && attention_on_tensor_cores<Real>(pad, p.C, p.NH) &&
           p.C / p.NH <= 64 && p.T >= 256 && pad.limits().fragment<Real>().in_place &&
           pad.limits().max_block >= 256;
}

template <class Real>
void attention_forward(LaunchPad* pad, const AttentionForward<Real>& p) {
    if (!pad) return attention_forward_cpu(p);
    const auto versions = attention_forward_versions<Real>();
    if (keeps_first_maximum(*pad, p)) return launch<Real>(*pad, p, versions, "attention_forward4", 256);
    if (attention_on_tensor_cores<Real>(*pad, p.C, p.NH))
        return launch<Real>(*pad, p, versions, "attention_forward3", 128);
    launch<Real>(*pad, p, versions, "attention_forward2", best_block_size(*pad));
}

// Computes delta, which the other kernels of the backward pass read unless they compute it themselves, and
// waits for it.
template <class Real>
static void compute_delta(LaunchPad& pad, const AttentionBackwardArgs& args, uint32_t hs) {
    const uint32_t block = 128, width = wide_pack_width<Real>(hs, {args.dout, args.outp});
    const uint32_t heads = 4 * block / (hs / width);  // four packs per invocation
    pad.dispatch<Real>("attention_backward_delta", {ceil_div(uint64_t(args.B) * args.T * args.NH, heads)},
                       {block, width, hs, heads}, args, memory_traffic<Real>(2.0 * args.B * args.T * args.C));
    pad.barrier();
}

template <class Real>
static void attention_backward2(LaunchPad& pad, const AttentionBackward<Real>& p, int block_size) {
    const uint32_t hs = attention_head_size(p.C, p.NH), block = block_size, tile = tile_size(pad, block_size);
    const AttentionBackwardArgs args = backward_args(pad, p);
    const bool quads = pack_width<Real>(hs, {args.dqkv, args.dout, args.qkv}) == 4;
    const Groups groups = {uint64_t(p.B) * p.NH * ceil_div(p.T, tile)};
    check_version2(pad, p.T, tile);
    compute_delta<Real>(pad, args, hs);
    const ConcurrentGroup group(&pad);
    pad.dispatch<Real>("attention_backward2_dkv", groups, {block, hs, quads, tile}, args,
                       score_work(args, 4));
    pad.dispatch<Real>("attention_backward2_dq", groups, {block, hs, quads, tile}, args, score_work(args, 3));
}

template <class Real>
static void attention_backward3(LaunchPad& pad, const AttentionBackward<Real>& p, int block_size) {
    const AttentionBackwardArgs args = backward_args(pad, p);
    const uint32_t hs = attention_head_size(p.C, p.NH);
    const Tilings tiling = tilings(pad, block_size);
    const std::initializer_list<uint64_t> addresses = {args.dqkv, args.dout, args.qkv};
    compute_delta<Real>(pad, args, hs);
    const auto dispatch_both = [&] {
        const ConcurrentGroup group(&pad);
        return dispatch_on_tensor_cores<Real>(pad, BACKWARD3_DKV, tiling.dkv, args, addresses) &&
               dispatch_on_tensor_cores<Real>(pad, BACKWARD3_DQ, tiling.dq, args, addresses);
    };
    if (!dispatch_both()) attention_backward2(pad, p, best_backward_block_size(pad));
}

template <class Real>
std::vector<KernelVersion<AttentionBackward<Real>>> attention_backward_versions() {
    return {
        {"attention_backward2",
         "tiles of 64 queries x 64 keys, accumulators in registers",
         attention_backward2<Real>,
         {128, 64, 256, 512}},
        {"attention_backward3",
         "tensor cores; each subgroup owns whole rows of the scores",
         attention_backward3<Real>,
         {128, 64, 256}},
    };
}

template <class Real>
void attention_backward(LaunchPad* pad, const AttentionBackward<Real>& p) {
    if (!pad) return attention_backward_cpu(p);
    const ConcurrentGroup group(pad);
    const auto versions = attention_backward_versions<Real>();
    if (backward_on_tensor_cores<Real>(*pad, p.C, p.NH))
        return launch<Real>(*pad, p, versions, "attention_backward3", 128);
    launch<Real>(*pad, p, versions, "attention_backward2", best_backward_block_size(*pad));
}

#define INSTANTIATE(Real)                                          \
    INSTANTIATE_LAYER(attention_forward, AttentionForward, Real)   \
    INSTANTIATE_LAYER(attention_backward, AttentionBackward, Real) \
    template bool attention_on_tensor_cores<Real>(const LaunchPad&, int, int);
FOR_EACH_REAL(INSTANTIATE)
