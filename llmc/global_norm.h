// The norm of all gradients together, and the factor that clips it.
#pragma once
#include <vector>

#include "llmc/launchpad.h"

template <class T>
struct GradientSlice {
    T* data;
    size_t n;  // elements
};

// norm_and_scale[0] = norm = unscale * sqrt(sum of the squares over all slices)
// norm_and_scale[1] = unscale * (max_norm / norm where norm > max_norm, else 1); max_norm <= 0 never clips.
// unscale: the gradients are 1 / unscale times too large, as loss scaling for fp16 makes them; norm and
// max_norm are of the true ones, and [1] times the gradients are the true ones, clipped. Where the norm is
// not finite (a gradient is NaN or infinite, or, on a GPU, the sum of squares passes 3.4e38),
// norm_and_scale[0] says so by being NaN or infinite, [1] is 0, and adamw_update() leaves everything as it
// is. loss (1), or null: where it is not finite, [1] is 0 likewise. norm_and_scale (2); scratch
// (global_norm_scratch() floats; unused on the CPU, where it may be null). Deterministic; sums of a billion
// elements are good to about 1e-6. Not to be called inside a group. pad: where to run; null means the CPU.
template <class T>
void global_norm(LaunchPad* pad, float* norm_and_scale, float* scratch,
                 const std::vector<GradientSlice<T>>& gradients, float max_norm, float unscale = 1,
                 const float* loss = nullptr);

// Floats of scratch memory that global_norm() needs for these slices (only their sizes count); 0 on the CPU.
template <class T>
size_t global_norm_scratch(const LaunchPad* pad, const std::vector<GradientSlice<T>>& gradients);

template <class T>
void global_norm_cpu(float* norm_and_scale, const std::vector<GradientSlice<T>>& gradients, float max_norm,
                     float unscale = 1, const float* loss = nullptr);

template <class T>
using GlobalNorm = void(LaunchPad& pad, float* norm_and_scale, float* scratch,
                        const std::vector<GradientSlice<T>>& gradients, float max_norm, float unscale,
                        const float* loss, int block_size);
template <class T>
std::vector<KernelVersion<GlobalNorm<T>>> global_norm_versions();
