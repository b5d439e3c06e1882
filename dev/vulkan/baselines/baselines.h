// Kernel versions that no program launches: the plain port of each layer to the GPU. Tests and benchmarks
// compare the layers' versions with them. Their shaders are in this folder, and programs do not embed them.
#pragma once
#include "llmc/layers/attention.h"
#include "llmc/layers/classifier.h"
#include "llmc/layers/dropout.h"
#include "llmc/layers/encoder.h"
#include "llmc/layers/gelu.h"
#include "llmc/layers/global_norm.h"
#include "llmc/layers/gradient_sum.h"
#include "llmc/layers/layernorm.h"
#include "llmc/layers/matmul.h"

template <class Params, class Config = int>
using Versions = std::vector<KernelVersion<Params, Config>>;

// The table `versions` of a layer, after the layer's baselines. A test or benchmark that shall cover all
// versions iterates over the result.
Versions<SumLosses> with_baselines(Versions<SumLosses> versions);
template <class Real>
Versions<AttentionForward<Real>> with_baselines(Versions<AttentionForward<Real>> versions);
template <class Real>
Versions<AttentionBackward<Real>> with_baselines(Versions<AttentionBackward<Real>> versions);
template <class Real>
Versions<Dropout<Real>> with_baselines(Versions<Dropout<Real>> versions);
template <class Real>
Versions<EncoderForward<Real>> with_baselines(Versions<EncoderForward<Real>> versions);
template <class Real>
Versions<EncoderBackward<Real>> with_baselines(Versions<EncoderBackward<Real>> versions);
template <class Real>
Versions<FusedClassifier<Real>> with_baselines(Versions<FusedClassifier<Real>> versions);
template <class Real>
Versions<GeluForward<Real>> with_baselines(Versions<GeluForward<Real>> versions);
template <class Real>
Versions<GeluBackward<Real>> with_baselines(Versions<GeluBackward<Real>> versions);
template <class Real>
Versions<GlobalNorm<Real>> with_baselines(Versions<GlobalNorm<Real>> versions);
template <class Real>
Versions<GradientSum<Real>> with_baselines(Versions<GradientSum<Real>> versions);
template <class Real>
Versions<LayerNormForward<Real>> with_baselines(Versions<LayerNormForward<Real>> versions);
template <class Real>
Versions<MatmulForward<Real>, Tile> with_baselines(Versions<MatmulForward<Real>, Tile> versions);
template <class Real>
Versions<MatmulBackwardInput<Real>, Tile> with_baselines(Versions<MatmulBackwardInput<Real>, Tile> versions);
template <class Real>
Versions<MatmulBackwardParameters<Real>, Tile> with_baselines(
    Versions<MatmulBackwardParameters<Real>, Tile> versions);
template <class Real>
Versions<MatmulDbias<Real>> with_baselines(Versions<MatmulDbias<Real>> versions);

// Adds them to the table of kernels, llmc/kernels/kernel_cases.h.
void add_baselines();
