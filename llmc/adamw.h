// AdamW, as PyTorch's torch.optim.AdamW: Adam with decoupled weight decay.
#pragma once
#include <vector>

#include "llmc/launchpad.h"
#include "shaders/args.h"

// What changes from step to step; kernels read it from memory, so that a recorded step can be replayed.
// t counts from 1. The corrections are 1 - beta^t; the seed is a hash of t: other random bits in each step,
// the same in each run.
AdamWStep adamw_step(float learning_rate, float beta1, float beta2, float eps, int t);

// With g = grads * norm_and_scale[1]:
//     m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
//     params -= learning_rate * ((m / beta1_correction) / (sqrt(v / beta2_correction) + eps) + weight_decay *
//     params)
// master (n): fp32 weights that the above is computed on in place of params, which become their rounded
// copies; or null. Where T has 16 bits, the new params are rounded up or down at random (round_randomly() of
// real.h), by bits that are a hash of the step's seed and the element's index, the same on every device;
// where T is float, master must be null. params, grads, m, v (n): elements of a tensor from number `first`
// on, which is what their index counts from; step and norm_and_scale (2; see
// global_norm.h) are read when the kernel runs: on a GPU they lie in the launchpad's memory. Null
// norm_and_scale means scale 1; a norm that is not finite or a scale of 0: nothing is changed. pad: where to
// run; null means the CPU.
template <class T>
void adamw_update(LaunchPad* pad, T* params, float* master, float* m, float* v, const T* grads, size_t n,
                  const AdamWStep* step, float weight_decay, const float* norm_and_scale, size_t first = 0);

// What adamw_update() would be given besides params, n and first 0, for kernels that look ahead at what it
// will make of a tensor.
template <class T>
struct AdamWDue {
    const float *master, *m, *v;
    const T* grads;
    const AdamWStep* step;
    float weight_decay;
    const float* norm_and_scale;
};

template <class T>
void adamw_update_cpu(T* params, float* master, float* m, float* v, const T* grads, size_t n,
                      const AdamWStep* step, float weight_decay, const float* norm_and_scale,
                      size_t first = 0);

template <class T>
using AdamWUpdate = void(LaunchPad& pad, T* params, float* master, float* m, float* v, const T* grads,
                         size_t n, const AdamWStep* step, float weight_decay, const float* norm_and_scale,
                         size_t first, int block_size);
template <class T>
std::vector<KernelVersion<AdamWUpdate<T>>> adamw_update_versions();
