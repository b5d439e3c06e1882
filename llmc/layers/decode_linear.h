// A linear layer of the newest row of each of a few texts, which are generated side by side:
//     out = weight x + bias, or GELU(weight x + bias), or stream += weight x + bias
// x is inp, or the LayerNorm of the residual stream. The weight is read once for all texts, and that is the
// time it takes. The residual stream is fp32. A text's result does not depend on the number of texts.
#pragma once
#include "llmc/launchpad/kernel_version.h"

enum class DecodeEpilogue { store, gelu, add };

template <class Real>
struct DecodeLinear {
    Real* out = nullptr;                           // (OC) at out + b * text_stride + positions[b] * OC
    float* stream;                                 // (B,C) if inp is null; (B,OC) for the epilogue add
    const Real* inp = nullptr;                     // (B,C); null: the LayerNorm of the stream
    const Real *gain = nullptr, *shift = nullptr;  // (C) of the LayerNorm
    const Real *weight, *bias = nullptr;           // (OC,C), (OC); null: none
    const int* positions = nullptr;                // (B); null: 0
    size_t text_stride = 0;
    int num_texts, C, OC;  // num_texts is B
    DecodeEpilogue epilogue = DecodeEpilogue::store;
};

// pad: the device to run on; null: the CPU.
template <class Real>
void decode_linear(LaunchPad* pad, const DecodeLinear<Real>& p);

template <class Real>
std::vector<KernelVersion<DecodeLinear<Real>>> decode_linear_versions();
