// Adds the baselines to the table of kernels.
#include "dev/vulkan/baselines/baselines.h"
#include "llmc/kernels/kernel_cases.h"

template <class Params, class Config = int>
static void add() {
    added_versions<KernelVersion<Params, Config>>() = with_baselines(Versions<Params, Config>());
}

template <class Real>
static void add_layers() {
    add<AttentionForward<Real>>();
    add<AttentionBackward<Real>>();
    add<Dropout<Real>>();
    add<EncoderForward<Real>>();
    add<EncoderBackward<Real>>();
    add<FusedClassifier<Real>>();
    add<GeluForward<Real>>();
    add<GeluBackward<Real>>();
    add<GlobalNorm<Real>>();
    add<GradientSum<Real>>();
    add<LayerNormForward<Real>>();
    add<MatmulForward<Real>, Tile>();
    add<MatmulBackwardInput<Real>, Tile>();
    add<MatmulBackwardParameters<Real>, Tile>();
    add<MatmulDbias<Real>>();
}

void add_baselines() {
    add<SumLosses>();
    add_layers<float>();
    add_layers<bf16>();
    add_layers<fp16>();
}
