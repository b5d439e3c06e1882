// LayerNorm over the last dimension (Ba et al. 2016), as PyTorch's nn.LayerNorm with eps = LAYERNORM_EPSILON:
//     out = (inp - mean) * rstd * weight + bias,   rstd = 1 / sqrt(variance + eps), variance with divisor C.
#pragma once
#include "llmc/launchpad/kernel_version.h"

// With `added`, of a residual connection: sum = inp + added, rounded to Real, takes the place of inp. The sum
// has no backward kernel, since both of its inputs share its gradient.
template <class Real>
struct LayerNormForward {
    Real* out;                    // (num_rows, C)
    float *mean, *rstd;           // (num_rows) outputs, which the backward pass needs
    const Real* inp;              // (num_rows, C)
    const Real* added = nullptr;  // (num_rows, C); null: nothing is added
    Real* sum = nullptr;          // (num_rows, C) with `added`; may be inp or added
    const Real *weight, *bias;    // (C)
    int num_rows, C;
};

// dinp = added + the gradient of inp; dweight and dbias are accumulated into.
template <class Real>
struct LayerNormBackward {
    Real* dinp;                // (num_rows, C)
    Real *dweight, *dbias;     // (C) +=
    const Real* added;         // (num_rows, C); may be dinp; null: nothing is added
    const Real* dout;          // (num_rows, C)
    const Real* inp;           // (num_rows, C) of the forward pass, as are mean and rstd
    const Real* weight;        // (C)
    const float *mean, *rstd;  // (num_rows)
    int num_rows, C;
};

// pad: the device to run on; null: the CPU.
template <class Real>
void layernorm_forward(LaunchPad* pad, const LayerNormForward<Real>& p);
template <class Real>
void layernorm_backward(LaunchPad* pad, const LayerNormBackward<Real>& p);

template <class Real>
std::vector<KernelVersion<LayerNormForward<Real>>> layernorm_forward_versions();
template <class Real>
std::vector<KernelVersion<LayerNormBackward<Real>>> layernorm_backward_versions();
