// Sums of gradients: the CPU version, the GPU version, and the dispatcher that training calls.
#include "llmc/layers/gradient_sum.h"

#include <algorithm>

#include "llmc/base/ceil_div.h"
#include "llmc/launchpad/packs.h"
#include "shaders/args.h"

static constexpr size_t SUM_BLOCK = 4096;  // accumulators stay in L1

// The sums of elements first to before `end`, at most SUM_BLOCK of them.
template <class Real>
static void sum_block(const GradientSum<Real>& p, size_t first, size_t end) {
    float sums[SUM_BLOCK];
    const size_t n = end - first;
    for (int k = 0; k < p.count; k++) {
        const Real* from = (k == p.own_index ? p.own : p.inp + k * p.stride) + first;
#pragma omp simd
        for (size_t i = 0; i < n; i++) sums[i] = (k ? sums[i] : 0.0f) + float(from[i]);
    }
    for (size_t i = 0; i < n; i++) p.out[first + i] = round_to<Real>(sums[i]);
    if (p.copy) std::copy_n(p.out + first, n, p.copy + first);
}

// In one parallel region, in which each thread gets neighbouring blocks; few elements are not worth one.
template <class Real>
static void gradient_sums_cpu(const std::vector<GradientSum<Real>>& all) {
    struct Block {
        const GradientSum<Real>* sum;
        size_t first, end;
    };
    std::vector<Block> blocks;
    double elements = 0;
    for (const GradientSum<Real>& p : all) {
        elements += double(p.n) * (p.count + 1);
        for (size_t first = 0; first < p.n; first += SUM_BLOCK)
            blocks.push_back({&p, first, std::min(p.n, first + SUM_BLOCK)});
    }
    const int64_t count = int64_t(blocks.size());
#pragma omp parallel for if (elements > 1 << 16)
    for (int64_t i = 0; i < count; i++) sum_block(*blocks[i].sum, blocks[i].first, blocks[i].end);
}

template <class Real>
static void gradient_sum2(LaunchPad& pad, const GradientSum<Real>& p, int block_size) {
    if (!p.n) return;
    GradientSumArgs args = {.outp = pad.at(p.out, p.n),
                            .copy = pad.at(p.copy, p.n),
                            .inp = pad.at(p.inp, (p.count - 1) * p.stride + p.n),
                            .own = pad.at(p.own, p.n),
                            .n = p.n,
                            .stride = p.stride,
                            .count = p.count,
                            .own_index = p.own_index};
    const uint32_t width = wide_pack_width<Real>(p.stride, {args.outp, args.copy, args.inp, args.own});
    const uint64_t most = 1024, groups = std::min(ceil_div(p.n, uint64_t(block_size) * width), most);
    args.groups = uint32_t(groups);
    const bool has_copy = p.copy != nullptr;
    const uint64_t packs = p.n / width, in_flight = 4;  // as in the kernel
    check_iterations(
        pad, "gradient_sum2",
        ceil_div(packs, in_flight * groups * block_size) * (p.count + 2) + width * (p.count + 2));
    pad.dispatch<Real>("gradient_sum2", {groups}, {uint32_t(block_size), width, has_copy}, args,
                       memory_traffic<Real>(double(p.n) * (p.count + 1 + has_copy)));
}

template <class Real>
std::vector<KernelVersion<GradientSum<Real>>> gradient_sum_versions() {
    return {{"gradient_sum2", "at most 1024 workgroups, in loops", gradient_sum2<Real>, {256, 64, 128, 512}}};
}

template <class Real>
void gradient_sum(LaunchPad* pad, const GradientSum<Real>& p) {
    gradient_sums<Real>(pad, {p});
}

template <class Real>
void gradient_sums(LaunchPad* pad, const std::vector<GradientSum<Real>>& all) {
    if (!pad) return gradient_sums_cpu(all);
    const ConcurrentGroup group(pad);
    for (const GradientSum<Real>& p : all)
        launch<Real>(*pad, p, gradient_sum_versions<Real>(), "gradient_sum2", 256);
}

#define INSTANTIATE(Real)                              \
    INSTANTIATE_LAYER(gradient_sum, GradientSum, Real) \
    template void gradient_sums(LaunchPad*, const std::vector<GradientSum<Real>>&);
FOR_EACH_REAL(INSTANTIATE)
