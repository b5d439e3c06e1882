// The norm of all gradients together, and the factor that clips it.
#pragma once
#include "llmc/launchpad/kernel_version.h"

template <class Real>
struct GradientSlice {
    Real* data;
    size_t n;  // elements
};

// norm_and_scale[0] = norm = weight * unscale * sqrt(sum of the squares over all slices)
// norm_and_scale[1] = weight * unscale * (max_norm / norm if norm > max_norm, else 1)
// loss *= weight
//
// If the norm is not finite (a gradient is NaN or infinite or, on a GPU, the sum of squares exceeds 3.4e38),
// [0] is NaN or infinite, [1] is 0, and adamw_update() changes nothing. Deterministic; sums of a billion
// elements are accurate to about 1e-6.
template <class Real>
struct GlobalNorm {
    float* norm_and_scale;  // (2)
    const std::vector<GradientSlice<Real>>& gradients;
    float max_norm;                 // 0 or less: never clips
    float unscale = 1;              // the gradients are 1 / unscale times too large: loss scaling for fp16
    float* loss = nullptr;          // (1); if it is not finite, [1] is 0; null: not looked at
    const float* weight = nullptr;  // (1): a factor that loss and gradients lack; null: 1
};

// pad: the device to run on; null: the CPU. Not to be called inside a group.
template <class Real>
void global_norm(LaunchPad* pad, const GlobalNorm<Real>& p);

// Computes norm_and_scale, on the CPU, from the sum of the squares of all gradients.
template <class Real>
void finish_global_norm(const GlobalNorm<Real>& p, double sum_of_squares);

template <class Real>
std::vector<KernelVersion<GlobalNorm<Real>>> global_norm_versions();
