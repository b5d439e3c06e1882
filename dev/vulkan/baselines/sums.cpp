// The baselines of layers that sum.
#include "dev/vulkan/baselines/join.h"
#include "llmc/launchpad/packs.h"

static void sum_losses1(LaunchPad& pad, const SumLosses& p, int block_size) {
    const SumLossesArgs args = {
        .total = pad.at(p.total, 1), .losses = pad.at(p.losses, p.n), .n = p.n, .scale = p.scale};
    pad.dispatch("sum_losses1", {1}, {uint32_t(block_size)}, args, memory_traffic<float>(p.n));
}

Versions<SumLosses> with_baselines(Versions<SumLosses> versions) {
    return join<SumLosses, int>({{"sum_losses1", "one invocation", sum_losses1, {1}}}, versions);
}

template <class Real>
static void gradient_sum1(LaunchPad& pad, const GradientSum<Real>& p, int block_size) {
    if (!p.n) return;
    const GradientSumArgs args = {.outp = pad.at(p.out, p.n),
                                  .copy = pad.at(p.copy, p.n),
                                  .inp = pad.at(p.inp, (p.count - 1) * p.stride + p.n),
                                  .own = pad.at(p.own, p.n),
                                  .n = p.n,
                                  .stride = p.stride,
                                  .count = p.count,
                                  .own_index = p.own_index};
    const uint32_t width = wide_pack_width<Real>(p.stride, {args.outp, args.copy, args.inp, args.own});
    const bool has_copy = p.copy != nullptr;
    pad.dispatch<Real>("gradient_sum1", {ceil_div(p.n, uint64_t(block_size) * width)},
                       {uint32_t(block_size), width, has_copy}, args,
                       memory_traffic<Real>(double(p.n) * (p.count + 1 + has_copy)));
}

template <class Real>
Versions<GradientSum<Real>> with_baselines(Versions<GradientSum<Real>> versions) {
    return join<GradientSum<Real>, int>(
        {{"gradient_sum1", "one invocation per 16 bytes", gradient_sum1<Real>, {256, 64, 128, 512}}},
        versions);
}

// One invocation sums the squares of CHUNK elements.
template <class Real>
static void global_norm1(LaunchPad& pad, const GlobalNorm<Real>& p, int block_size) {
    const uint32_t CHUNK = 16384;
    size_t all_chunks = 0;
    for (const GradientSlice<Real>& slice : p.gradients) all_chunks += ceil_div(slice.n, CHUNK);
    float* const scratch = all_chunks ? pad.scratch(Scratch::norm, all_chunks) : nullptr;
    float* partials = scratch;
    {
        const ConcurrentGroup group(&pad);  // the slices are independent of each other
        for (const GradientSlice<Real>& slice : p.gradients) {
            const size_t chunks = ceil_div(slice.n, CHUNK);
            if (!chunks) continue;
            const GlobalNormArgs args = {
                .partials = pad.at(partials, chunks), .grads = pad.at(slice.data, slice.n), .n = slice.n};
            pad.dispatch<Real>("global_norm1", {ceil_div(chunks, block_size)}, {uint32_t(block_size), CHUNK},
                               args, memory_traffic<Real>(double(slice.n)));
            partials += chunks;
        }
    }
    const GlobalNormFinishArgs args = {.norm_and_scale = pad.at(p.norm_and_scale, 2),
                                       .partials = pad.at(scratch, all_chunks),
                                       .loss = pad.at(p.loss, 1),
                                       .weight = pad.at(p.weight, 1),
                                       .n = int(all_chunks),
                                       .max_norm = p.max_norm,
                                       .unscale = p.unscale};
    pad.dispatch<Real>("global_norm_finish", {1}, {64}, args);
}

template <class Real>
Versions<GlobalNorm<Real>> with_baselines(Versions<GlobalNorm<Real>> versions) {
    return join<GlobalNorm<Real>, int>(
        {{"global_norm1", "one invocation per chunk of 16384 elements", global_norm1<Real>, {32, 8, 128}}},
        versions);
}

#define INSTANTIATE(Real)                                                           \
    template Versions<GlobalNorm<Real>> with_baselines(Versions<GlobalNorm<Real>>); \
    template Versions<GradientSum<Real>> with_baselines(Versions<GradientSum<Real>>);
FOR_EACH_REAL(INSTANTIATE)
#undef INSTANTIATE
