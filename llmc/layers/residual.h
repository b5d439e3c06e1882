// Residual connections: the sum of two tensors, alone and fused with the LayerNorm that follows it in GPT-2.
// There is no backward kernel: both inputs share the gradient of the sum.
#pragma once
#include "llmc/layers/kernel_version.h"

// out = inp1 + inp2
template <class Real>
struct ResidualForward {
    Real* out;                // (n); may be either input
    const Real *inp1, *inp2;  // (n)
    size_t n;
};

// residual = inp1 + inp2, rounded to Real; normed, mean, rstd = layernorm_forward of that
// (layers/layernorm.h).
template <class Real>
struct FusedResidualLayerNormForward {
    Real* residual;      // (num_rows, C); may be either input
    Real* normed;        // (num_rows, C)
    float *mean, *rstd;  // (num_rows)
    const Real* inp1;    // (num_rows, C)
    const Real* inp2;    // (num_rows, C); on the GPU it may be an unreduced GEMM result (gemm/split_k.h)
    const Real *weight, *bias;  // (C) of the LayerNorm
    int num_rows, C;
};

// pad: the device to run on; null: the CPU.
template <class Real>
void residual_forward(LaunchPad* pad, const ResidualForward<Real>& p);
template <class Real>
void fused_residual_layernorm_forward(LaunchPad* pad, const FusedResidualLayerNormForward<Real>& p);

template <class Real>
void residual_forward_cpu(const ResidualForward<Real>& p);
template <class Real>
void fused_residual_layernorm_forward_cpu(const FusedResidualLayerNormForward<Real>& p);

template <class Real>
std::vector<KernelVersion<ResidualForward<Real>>> residual_forward_versions();
template <class Real>
std::vector<KernelVersion<FusedResidualLayerNormForward<Real>>> fused_residual_layernorm_forward_versions();
