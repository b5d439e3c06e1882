// Residual connections: the sum of two tensors, alone and fused with the LayerNorm that follows it in GPT-2,
// and dropout of what joins the residual stream. The sum has no backward kernel: both inputs share its
// gradient. Dropout is its own.
#pragma once
#include <array>

#include "llmc/launchpad/kernel_version.h"

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
    Real* residual;             // (num_rows, C); may be either input
    Real* normed;               // (num_rows, C)
    float *mean, *rstd;         // (num_rows)
    const Real* inp1;           // (num_rows, C)
    const Real* inp2;           // (num_rows, C)
    const Real *weight, *bias;  // (C) of the LayerNorm
    int num_rows, C;
};

// Dropout sets a random share of the elements to zero and scales the others, so that the mean stays: out = 0
// for the dropped elements, inp / (1 - rate) for the others. The backward pass is the same function of the
// gradient. An element's random bits are a hash of its index and the key, so the mask is computed anew
// instead of being kept, and it is the same on CPU and GPU.
template <class Real>
struct Dropout {
    Real* out;            // (n); may be inp
    const Real* inp;      // (n)
    const uint32_t* key;  // (2) dropout_key(); in memory, since it changes and kernels are recorded once
    uint32_t site;        // where in the model, below 65536: each place has a mask of its own
    float rate;           // probability that an element is dropped, at least 0 and below 1
    size_t n;
};

// The key of the masks of one micro-step in one process.
std::array<uint32_t, 2> dropout_key(uint64_t seed, int step, int micro_step, int process);

// pad: the device to run on; null: the CPU.
template <class Real>
void residual_forward(LaunchPad* pad, const ResidualForward<Real>& p);
template <class Real>
void fused_residual_layernorm_forward(LaunchPad* pad, const FusedResidualLayerNormForward<Real>& p);
template <class Real>
void dropout(LaunchPad* pad, const Dropout<Real>& p);

template <class Real>
void residual_forward_cpu(const ResidualForward<Real>& p);
template <class Real>
void fused_residual_layernorm_forward_cpu(const FusedResidualLayerNormForward<Real>& p);
template <class Real>
void dropout_cpu(const Dropout<Real>& p);

template <class Real>
std::vector<KernelVersion<ResidualForward<Real>>> residual_forward_versions();
template <class Real>
std::vector<KernelVersion<FusedResidualLayerNormForward<Real>>> fused_residual_layernorm_forward_versions();
template <class Real>
std::vector<KernelVersion<Dropout<Real>>> dropout_versions();
