// Residual connections: the sum of two tensors, alone and together with the LayerNorm that follows it in
// GPT-2. The backward pass is no kernel: both inputs share the gradient of the sum.
#pragma once
#include <vector>

#include "llmc/launchpad.h"
#include "llmc/partial_product.h"

// out (n) = inp1 (n) + inp2 (n); out may be either input. pad: where to run; null means the CPU.
template <class T>
void residual_forward(LaunchPad* pad, T* out, const T* inp1, const T* inp2, size_t n);

// residual (N,C) = inp1 + inp2; normed (N,C), mean, rstd (N) = layernorm of residual with weight, bias (C):
// see llmc/layernorm.h; of the residual as T holds it. residual may be either input.
template <class T>
void fused_residual_layernorm_forward(LaunchPad* pad, T* residual, T* normed, float* mean, float* rstd,
                                      const T* inp1, const T* inp2, const T* weight, const T* bias, int N,
                                      int C);

// The same of a product that may have been left unfinished, on the launchpad where its partials are.
template <class T>
void fused_residual_layernorm_forward(LaunchPad* pad, T* residual, T* normed, float* mean, float* rstd,
                                      const T* inp1, const PartialProduct<T>& inp2, const T* weight,
                                      const T* bias, int N, int C);

template <class T>
void residual_forward_cpu(T* out, const T* inp1, const T* inp2, size_t n);
template <class T>
void fused_residual_layernorm_forward_cpu(T* residual, T* normed, float* mean, float* rstd, const T* inp1,
                                          const T* inp2, const T* weight, const T* bias, int N, int C);

template <class T>
using ResidualForward = void(LaunchPad& pad, T* out, const T* inp1, const T* inp2, size_t n, int block_size);
template <class T>
using FusedResidualLayernormForward = void(LaunchPad& pad, T* residual, T* normed, float* mean, float* rstd,
                                           const T* inp1, const T* inp2, const T* weight, const T* bias,
                                           int N, int C, int block_size);
template <class T>
std::vector<KernelVersion<ResidualForward<T>>> residual_forward_versions();
template <class T>
std::vector<KernelVersion<FusedResidualLayernormForward<T>>> fused_residual_layernorm_forward_versions();
