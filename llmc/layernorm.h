// LayerNorm over the last dimension, as PyTorch's nn.LayerNorm with eps = 1e-5:
//     out = (inp - mean) * rstd * weight + bias,   rstd = 1 / sqrt(variance + eps), variance with divisor C.
#pragma once
#include <vector>

#include "llmc/launchpad.h"

// out (N,C); mean, rstd (N); inp (N,C); weight, bias (C). N = B*T rows.
// pad: where to run; null means the CPU.
template <class T>
void layernorm_forward(LaunchPad* pad, T* out, float* mean, float* rstd, const T* inp, const T* weight, const T* bias,
                       int N, int C);

template <class T>
void layernorm_forward_cpu(T* out, float* mean, float* rstd, const T* inp, const T* weight, const T* bias, int N,
                           int C);

template <class T>
using LayernormForward = void(LaunchPad& pad, T* out, float* mean, float* rstd, const T* inp, const T* weight,
                              const T* bias, int N, int C, int block_size);
template <class T> std::vector<KernelVersion<LayernormForward<T>>> layernorm_forward_versions();
