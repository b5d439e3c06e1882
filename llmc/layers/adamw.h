// AdamW (Loshchilov and Hutter 2019), as PyTorch's torch.optim.AdamW: Adam with decoupled weight decay.
#pragma once
#include "llmc/base/hash.h"
#include "llmc/launchpad/kernel_version.h"
#include "shaders/args.h"

// The hyperparameters of one step. Kernels read them from memory, so that a recorded step can be replayed. t
// counts from 1. The bias corrections are 1 / (1 - beta^t); the seed is a hash of t: other random bits in
// each step, the same in each run.
AdamWStep adamw_step(float learning_rate, float beta1, float beta2, float eps, int t);

// The random bits of the stochastic rounding of element i of a tensor are hash(uint32_t(i) ^ key), with a key
// for all elements whose indices have the same upper 32 bits.
inline uint32_t rounding_key(uint32_t seed, size_t i) { return hash(seed ^ uint32_t(i >> 32)); }

// With g = grads * norm_and_scale[1]:
//     m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
//     params -= learning_rate * (m beta1_correction / (sqrt(v beta2_correction) + eps) + weight_decay params)
// With master weights, master takes the place of params in this, and params receive the rounded result. If
// Real has 16 bits, params are rounded up or down at random (round_randomly() of base/real.h), by a hash of
// the step's seed and the element's index in its tensor, which is the same on every device. If Real is float,
// master must be null.
template <class Real>
struct AdamWUpdate {
    Real* params;       // (n): the elements of a tensor from number `first` on, as in all arrays here
    float* master;      // (n): fp32 weights; null: none
    float *m, *v;       // (n): moments
    const Real* grads;  // (n)
    size_t n;
    size_t first = 0;  // index of the first element in its tensor
    const AdamWStep*
        step;  // (1); on a GPU in the launchpad's memory, as is norm_and_scale: read when the kernel runs
    float weight_decay;
    const float* norm_and_scale;  // (2): see layers/global_norm.h; null: scale 1. A norm that is not finite,
                                  // or a scale of 0: nothing changes
};

// pad: the device to run on; null: the CPU.
template <class Real>
void adamw_update(LaunchPad* pad, const AdamWUpdate<Real>& p);

template <class Real>
std::vector<KernelVersion<AdamWUpdate<Real>>> adamw_update_versions();
