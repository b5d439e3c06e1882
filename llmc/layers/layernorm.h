// LayerNorm over the last dimension (Ba et al. 2016), as PyTorch's nn.LayerNorm with eps = 1e-5:
//     out = (inp - mean) * rstd * weight + bias,   rstd = 1 / sqrt(variance + eps), variance with divisor C.
#pragma once
#include "llmc/launchpad/kernel_version.h"

template <class Real>
struct LayerNormForward {
    Real* out;                  // (num_rows, C)
    float *mean, *rstd;         // (num_rows) outputs, which the backward pass needs
    const Real* inp;            // (num_rows, C)
    const Real *weight, *bias;  // (C)
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
void layernorm_forward_cpu(const LayerNormForward<Real>& p);
template <class Real>
void layernorm_backward_cpu(const LayerNormBackward<Real>& p);

// One row of layernorm_forward_cpu(): y, x, weight, bias (C); mean, rstd (1).
template <class Real>
void layernorm_row(Real* y, float* mean, float* rstd, const Real* x, const Real* weight, const Real* bias,
                   int C);

template <class Real>
std::vector<KernelVersion<LayerNormForward<Real>>> layernorm_forward_versions();
template <class Real>
std::vector<KernelVersion<LayerNormBackward<Real>>> layernorm_backward_versions();

// Grid of kernels that keep a row in the registers of one subgroup: workgroups of `block` invocations, each
// of which holds `packs` packs (shaders/packs.glsl) of its row. More than MAX_ROW_PACKS packs do not fit in
// registers.
struct RowGrid {
    uint64_t groups;
    uint32_t block, packs;
};
const uint32_t MAX_ROW_PACKS = 32, MAX_FRUGAL_ROW_ELEMENTS = 48;  // the latter where registers are few
// block_size is rounded to a multiple of the subgroup size.
RowGrid row_grid(const Limits& limits, int num_rows, uint64_t packs_per_row, int block_size);
inline bool row_fits(const Limits& limits, const RowGrid& grid, uint32_t width) {
    return limits.few_registers ? grid.packs * width <= MAX_FRUGAL_ROW_ELEMENTS : grid.packs <= MAX_ROW_PACKS;
}
