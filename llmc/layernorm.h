// LayerNorm over the last dimension, as PyTorch's nn.LayerNorm with eps = 1e-5:
//     out = (inp - mean) * rstd * weight + bias,   rstd = 1 / sqrt(variance + eps), variance with divisor C.
#pragma once
#include <vector>

#include "llmc/launchpad.h"
#include "llmc/partial_product.h"

// out (N,C); mean, rstd (N); inp (N,C); weight, bias (C). N = B*T rows.
// pad: where to run; null means the CPU.
template <class T>
void layernorm_forward(LaunchPad* pad, T* out, float* mean, float* rstd, const T* inp, const T* weight,
                       const T* bias, int N, int C);

// dinp (N,C) = added (N,C) plus the gradient of inp; added may be dinp itself, or null: nothing is added.
// dweight (C) and dbias (C) are added to. dout, inp (N,C); weight (C); mean, rstd (N) of the forward pass.
// scratch: layernorm_backward_scratch() floats, contents ignored; null where that is 0.
template <class T>
void layernorm_backward(LaunchPad* pad, T* dinp, T* dweight, T* dbias, float* scratch, const T* added,
                        const T* dout, const T* inp, const T* weight, const float* mean, const float* rstd,
                        int N, int C);
// The same of a product that may have been left unfinished, on the launchpad where its partials are; not in
// this scratch.
template <class T>
void layernorm_backward(LaunchPad* pad, T* dinp, T* dweight, T* dbias, float* scratch, const T* added,
                        const PartialProduct<T>& dout, const T* inp, const T* weight, const float* mean,
                        const float* rstd, int N, int C);
size_t layernorm_backward_scratch(const LaunchPad* pad, int N, int C);  // floats; pad null (CPU): 0

template <class T>
void layernorm_forward_cpu(T* out, float* mean, float* rstd, const T* inp, const T* weight, const T* bias,
                           int N, int C);
// One row of it: y, x, weight, bias (C).
void layernorm_row(float* y, float* mean, float* rstd, const float* x, const float* weight, const float* bias,
                   int C);
void layernorm_row(bf16* y, float* mean, float* rstd, const bf16* x, const bf16* weight, const bf16* bias,
                   int C);
void layernorm_row(fp16* y, float* mean, float* rstd, const fp16* x, const fp16* weight, const fp16* bias,
                   int C);
template <class T>
void layernorm_backward_cpu(T* dinp, T* dweight, T* dbias, const T* added, const T* dout, const T* inp,
                            const T* weight, const float* mean, const float* rstd, int N, int C);

template <class T>
using LayernormForward = void(LaunchPad& pad, T* out, float* mean, float* rstd, const T* inp, const T* weight,
                              const T* bias, int N, int C, int block_size);
template <class T>
using LayernormBackward = void(LaunchPad& pad, T* dinp, T* dweight, T* dbias, float* scratch, const T* added,
                               const T* dout, const T* inp, const T* weight, const float* mean,
                               const float* rstd, int N, int C, int block_size);
template <class T>
std::vector<KernelVersion<LayernormForward<T>>> layernorm_forward_versions();
template <class T>
std::vector<KernelVersion<LayernormBackward<T>>> layernorm_backward_versions();

// How kernels that hold a row in the registers of a subgroup are started, also by llmc/residual.cpp:
// workgroups of `block` invocations, each of which holds `packs` packs (shaders/packs.glsl). block_size
// becomes a multiple of the subgroup size; more than MAX_ROW_PACKS packs do not fit in registers.
struct RowTeams {
    uint64_t groups;
    uint32_t block, packs;
};
RowTeams row_teams(const Limits& limits, int N, uint64_t packs, int block_size);
const uint32_t MAX_ROW_PACKS = 32;
