// The gradients' norm: CPU version, GPU versions, their table, and the choice that training makes.
#include "llmc/global_norm.h"

#include <algorithm>
#include <cmath>

#include "llmc/cpu_times.h"
#include "llmc/packs.h"
#include "llmc/simd.h"
#include "shaders/args.h"

static const size_t PIECE = 16384;  // elements whose squares one partial sum holds; a multiple of 8

template <class T>
static inline double squares_of(const T* x, size_t n) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) sum += double(float(x[i])) * double(float(x[i]));
    return sum;
}

SIMD_CLONES static double sum_of_squares(const float* x, size_t n) { return squares_of(x, n); }
SIMD_CLONES static double sum_of_squares(const bf16* x, size_t n) { return squares_of(x, n); }
SIMD_CLONES static double sum_of_squares(const fp16* x, size_t n) { return squares_of(x, n); }

template <class T>
void global_norm_cpu(float* norm_and_scale, const std::vector<GradientSlice<T>>& gradients, float max_norm,
                     float unscale, const float* loss) {
    size_t elements = 0;
    for (const GradientSlice<T>& slice : gradients) elements += slice.n;
    const CpuTimer timer("global_norm", moves<T>(double(elements)));
    double total = 0;
    std::vector<double> sums;  // one for each piece: any number of threads adds in the same order
    for (const GradientSlice<T>& slice : gradients) {
        const int64_t pieces = int64_t(blocks(slice.n, PIECE));
        sums.resize(size_t(pieces));
#pragma omp parallel for
        for (int64_t i = 0; i < pieces; i++) {
            const size_t start = size_t(i) * PIECE;
            sums[size_t(i)] = sum_of_squares(slice.data + start, std::min(PIECE, slice.n - start));
        }
        for (double sum : sums) total += sum;
    }
    const double norm = double(unscale) * std::sqrt(total);
    norm_and_scale[0] = float(norm);
    norm_and_scale[1] =
        max_norm > 0 && norm > double(max_norm) ? float(unscale * double(max_norm) / norm) : unscale;
    if (!std::isfinite(norm_and_scale[0]) || (loss && !std::isfinite(*loss))) norm_and_scale[1] = 0;
}

template <class T>
static size_t count_pieces(const std::vector<GradientSlice<T>>& gradients) {
    size_t pieces = 0;
    for (const GradientSlice<T>& slice : gradients) pieces += blocks(slice.n, PIECE);
    return pieces;
}

template <class T>
size_t global_norm_scratch(const LaunchPad* pad, const std::vector<GradientSlice<T>>& gradients) {
    return pad ? count_pieces(gradients) : 0;
}

// Sums the squares of each piece with the kernel of the given version, then everything with one workgroup.
template <class T>
static void launch(LaunchPad& pad, int version, float* norm_and_scale, float* scratch,
                   const std::vector<GradientSlice<T>>& gradients, float max_norm, float unscale,
                   const float* loss, int block_size) {
    const size_t all_pieces = count_pieces(gradients);
    const uint32_t block = uint32_t(block_size);
    pad.begin_group();  // slices are independent of each other
    float* partials = scratch;
    for (const GradientSlice<T>& slice : gradients) {
        const size_t pieces = blocks(slice.n, PIECE);
        if (!pieces) continue;
        const GlobalNormArgs args = {pad.at(partials, pieces), pad.at(slice.data, slice.n), slice.n};
        const uint32_t width = wide_pack_width<T>(PIECE, {args.grads});
        if (version == 3 && width > 1)
            pad.dispatch<T>("global_norm3", {pieces}, {block, width, PIECE}, args, moves<T>(double(slice.n)));
        else if (version == 1)
            pad.dispatch<T>("global_norm1", {blocks(pieces, block)}, {block, PIECE}, args,
                            moves<T>(double(slice.n)));
        else
            pad.dispatch<T>("global_norm2", {pieces}, {block, PIECE}, args, moves<T>(double(slice.n)));
        partials += pieces;
    }
    pad.end_group();
    const GlobalNormFinishArgs args = {pad.at(norm_and_scale, 2),
                                       all_pieces ? pad.at(scratch, all_pieces) : 0,
                                       pad.at(loss, 1),
                                       int(all_pieces),
                                       max_norm,
                                       unscale};
    const bool barriers_are_cheap = pad.device().type != DeviceType::software;
    const uint32_t finish_block = barriers_are_cheap ? std::min(1024u, pad.limits().max_block) : 64u;
    pad.dispatch<T>("global_norm_finish", {1}, {finish_block}, args);
}

template <class T>
static void global_norm1(LaunchPad& pad, float* norm_and_scale, float* scratch,
                         const std::vector<GradientSlice<T>>& gradients, float max_norm, float unscale,
                         const float* loss, int block_size) {
    launch(pad, 1, norm_and_scale, scratch, gradients, max_norm, unscale, loss, block_size);
}

template <class T>
static void global_norm2(LaunchPad& pad, float* norm_and_scale, float* scratch,
                         const std::vector<GradientSlice<T>>& gradients, float max_norm, float unscale,
                         const float* loss, int block_size) {
    launch(pad, 2, norm_and_scale, scratch, gradients, max_norm, unscale, loss, block_size);
}

template <class T>
static void global_norm3(LaunchPad& pad, float* norm_and_scale, float* scratch,
                         const std::vector<GradientSlice<T>>& gradients, float max_norm, float unscale,
                         const float* loss, int block_size) {
    launch(pad, 3, norm_and_scale, scratch, gradients, max_norm, unscale, loss, block_size);
}

template <class T>
std::vector<KernelVersion<GlobalNorm<T>>> global_norm_versions() {
    return {
        {"global_norm1", "one invocation per piece of 16384 elements", global_norm1<T>, {32, 8, 128}},
        {"global_norm2", "one workgroup per piece", global_norm2<T>, {256, 64, 512, 1024}},
        {"global_norm3", "16-byte accesses", global_norm3<T>, {256, 64, 512, 1024}},
    };
}

template <class T>
void global_norm(LaunchPad* pad, float* norm_and_scale, float* scratch,
                 const std::vector<GradientSlice<T>>& gradients, float max_norm, float unscale,
                 const float* loss) {
    if (!pad) return global_norm_cpu(norm_and_scale, gradients, max_norm, unscale, loss);
    if (pad->device().type == DeviceType::software)  // no barriers: 28 ms where version 3 takes 38
        return global_norm1(*pad, norm_and_scale, scratch, gradients, max_norm, unscale, loss, 8);
    global_norm3(*pad, norm_and_scale, scratch, gradients, max_norm, unscale, loss, 256);
}

#define INSTANTIATE(T)                                                                                       \
    template std::vector<KernelVersion<GlobalNorm<T>>> global_norm_versions();                               \
    template size_t global_norm_scratch(const LaunchPad*, const std::vector<GradientSlice<T>>&);             \
    template void global_norm_cpu(float*, const std::vector<GradientSlice<T>>&, float, float, const float*); \
    template void global_norm(LaunchPad*, float*, float*, const std::vector<GradientSlice<T>>&, float,       \
                              float, const float*);
FOR_EACH_REAL(INSTANTIATE)
