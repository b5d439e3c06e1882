// Sums of gradients: the CPU version, the GPU version, and the dispatcher that training calls.
#include "llmc/layers/gradient_sum.h"

#include <algorithm>

#include "llmc/base/ceil_div.h"
#include "llmc/cpu/cpu_timer.h"
#include "llmc/launchpad/packs.h"
#include "shaders/args.h"

template <class Real>
static void gradient_sum_cpu(const GradientSum<Real>& p) {
    const CpuTimer timer("gradient_sum", memory_traffic<Real>(double(p.n) * (p.count + 1)));
    const size_t block = 4096;  // accumulators stay in L1
#pragma omp parallel for
    for (size_t first = 0; first < p.n; first += block) {
        float sums[block];
        const size_t end = std::min(p.n - first, block);
        for (int k = 0; k < p.count; k++) {
            const Real* from = (k == p.own_index ? p.own : p.inp + k * p.stride) + first;
#pragma omp simd
            for (size_t i = 0; i < end; i++) sums[i] = (k ? sums[i] : 0.0f) + float(from[i]);
        }
        for (size_t i = 0; i < end; i++) p.out[first + i] = round_to<Real>(sums[i]);
        if (p.copy) std::copy_n(p.out + first, end, p.copy + first);
    }
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
    if (!pad) return gradient_sum_cpu(p);
    gradient_sum2(*pad, p, 256);
}

#define INSTANTIATE(Real) INSTANTIATE_LAYER(gradient_sum, GradientSum, Real)
FOR_EACH_REAL(INSTANTIATE)
