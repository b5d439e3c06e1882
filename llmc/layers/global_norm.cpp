// The global gradient norm: the CPU version, the GPU versions with their table, and the dispatcher that
// training calls.
#include "llmc/layers/global_norm.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/ceil_div.h"
#include "llmc/cpu/simd.h"
#include "llmc/launchpad/packs.h"
#include "shaders/args.h"

static const size_t CHUNK = 16384;  // elements per partial sum; a multiple of 8

template <class Real>
static SIMD_INLINE double squares_of(const Real* x, size_t n) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) sum += double(float(x[i])) * double(float(x[i]));
    return sum;
}

// Deterministic for any number of threads: each chunk has a sum of its own, and these are added in order. All
// slices share one parallel region.
template <class Real>
static double sum_of_squares(const std::vector<GradientSlice<Real>>& gradients) {
    std::vector<GradientSlice<Real>> chunks;
    for (const GradientSlice<Real>& slice : gradients)
        for (size_t start = 0; start < slice.n; start += CHUNK)
            chunks.push_back({slice.data + start, std::min(CHUNK, slice.n - start)});
    std::vector<double> sums(chunks.size());
    const int64_t count = int64_t(chunks.size());
#pragma omp parallel for if (count > 4)
    for (int64_t i = 0; i < count; i++) sums[i] = simd<squares_of<Real>>(chunks[i].data, chunks[i].n);
    double total = 0;
    for (double sum : sums) total += sum;
    return total;
}

template <class Real>
void finish_global_norm(const GlobalNorm<Real>& p, double sum_of_squares) {
    const float weight = p.weight ? *p.weight : 1;
    const double unscale = double(p.unscale) * double(weight), norm = unscale * std::sqrt(sum_of_squares);
    const bool clips = p.max_norm > 0 && norm > double(p.max_norm);
    p.norm_and_scale[0] = float(norm);
    p.norm_and_scale[1] = float(clips ? unscale * double(p.max_norm) / norm : unscale);
    if (p.loss) *p.loss *= weight;
    if (!std::isfinite(p.norm_and_scale[0]) || (p.loss && !std::isfinite(*p.loss))) p.norm_and_scale[1] = 0;
}

template <class Real>
static size_t count_chunks(const std::vector<GradientSlice<Real>>& gradients) {
    size_t chunks = 0;
    for (const GradientSlice<Real>& slice : gradients) chunks += ceil_div(slice.n, CHUNK);
    return chunks;
}

// Sums the squares of each chunk of a slice into partials (chunks).
template <class Real>
static void sum_chunks(LaunchPad& pad, const GradientSlice<Real>& slice, float* partials, int config) {
    const size_t chunks = ceil_div(slice.n, CHUNK);
    const uint32_t block_size = uint32_t(config);
    const GlobalNormArgs args = {
        .partials = pad.at(partials, chunks), .grads = pad.at(slice.data, slice.n), .n = slice.n};
    const uint32_t width = wide_pack_width<Real>(CHUNK, {args.grads});
    const Work work = memory_traffic<Real>(double(slice.n));
    pad.dispatch<Real>("global_norm3", {chunks}, {block_size, width, CHUNK}, args, work);
}

// Sums the squares of all chunks, then adds the sums in one workgroup.
template <class Real>
static void global_norm3(LaunchPad& pad, const GlobalNorm<Real>& p, int config) {
    const size_t all_chunks = count_chunks(p.gradients);
    float* const scratch = all_chunks ? pad.scratch(Scratch::norm, all_chunks) : nullptr;
    float* partials = scratch;
    {
        const ConcurrentGroup group(&pad);  // the slices are independent of each other
        for (const GradientSlice<Real>& slice : p.gradients) {
            if (slice.n) sum_chunks(pad, slice, partials, config);
            partials += ceil_div(slice.n, CHUNK);
        }
    }
    const GlobalNormFinishArgs args = {.norm_and_scale = pad.at(p.norm_and_scale, 2),
                                       .partials = pad.at(scratch, all_chunks),
                                       .loss = pad.at(p.loss, 1),
                                       .weight = pad.at(p.weight, 1),
                                       .n = int(all_chunks),
                                       .max_norm = p.max_norm,
                                       .unscale = p.unscale};
    check_iterations(pad, "global_norm_finish", ceil_div(all_chunks, pad.limits().barrier_block));
    pad.dispatch<Real>("global_norm_finish", {1}, {pad.limits().barrier_block}, args);
}

template <class Real>
std::vector<KernelVersion<GlobalNorm<Real>>> global_norm_versions() {
    return {
        {"global_norm3",
         "one workgroup per chunk, 16-byte accesses",
         global_norm3<Real>,
         {256, 64, 512, 1024}},
    };
}

template <class Real>
void global_norm(LaunchPad* pad, const GlobalNorm<Real>& p) {
    if (!pad) return finish_global_norm(p, sum_of_squares(p.gradients));
    launch<Real>(*pad, p, global_norm_versions<Real>(), "global_norm3",
                 int(std::min(256u, pad->limits().barrier_block)));
}

#define INSTANTIATE(Real)                            \
    INSTANTIATE_LAYER(global_norm, GlobalNorm, Real) \
    template void finish_global_norm(const GlobalNorm<Real>&, double);
FOR_EACH_REAL(INSTANTIATE)
