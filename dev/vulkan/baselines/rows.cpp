// The baselines of layers that work on rows: one invocation per row.
#include "dev/vulkan/baselines/join.h"

template <class Real>
static void layernorm_forward1(LaunchPad& pad, const LayerNormForward<Real>& p, int block_size) {
    const size_t num_rows = p.num_rows, C = p.C;
    const LayernormForwardArgs args = {.outp = pad.at(p.out, num_rows * C),
                                       .mean = pad.at(p.mean, num_rows),
                                       .rstd = pad.at(p.rstd, num_rows),
                                       .inp = pad.at(p.inp, num_rows * C),
                                       .added = pad.at(p.added, num_rows * C),
                                       .sum = pad.at(p.sum, num_rows * C),
                                       .weight = pad.at(p.weight, C),
                                       .bias = pad.at(p.bias, C),
                                       .num_rows = p.num_rows,
                                       .C = p.C};
    pad.dispatch<Real>("layernorm_forward1", {ceil_div(p.num_rows, block_size)},
                       {uint32_t(block_size), p.added != nullptr}, args,
                       memory_traffic<Real>(2.0 * p.num_rows * p.C));
}

template <class Real>
static void fused_classifier1(LaunchPad& pad, const FusedClassifier<Real>& p, int block_size) {
    const size_t num_rows = p.num_rows;
    const FusedClassifierArgs args = {.logits = pad.at(p.logits, num_rows * p.Vp),
                                      .losses = pad.at(p.losses, num_rows),
                                      .targets = pad.at(p.targets, num_rows),
                                      .dloss = p.dloss,
                                      .num_rows = p.num_rows,
                                      .V = p.V,
                                      .Vp = p.Vp,
                                      .write_gradients = p.write_gradients};
    pad.dispatch<Real>("fused_classifier1", {ceil_div(p.num_rows, block_size)}, {uint32_t(block_size)}, args,
                       memory_traffic<Real>((1.0 + p.write_gradients) * p.num_rows * p.V));
}

// One invocation per channel of a token, and of a position.
template <class Real>
static void encoder_backward1(LaunchPad& pad, const EncoderBackward<Real>& p, int config) {
    const size_t num_rows = size_t(p.B) * p.T, C = p.C;
    const uint32_t block = uint32_t(config), one = 1;
    const EncoderBackwardArgs args = {.dwte = pad.at(p.dwte, C),
                                      .dwpe = pad.at(p.dwpe, p.T * C),
                                      .dout = pad.at(p.dout, num_rows * C),
                                      .buckets = pad.at(p.buckets, encoder_bucket_ints(int(num_rows))),
                                      .B = p.B,
                                      .T = p.T,
                                      .C = p.C,
                                      .grid_buckets = int(num_rows)};
    pad.dispatch<Real>("encoder_backward1", {ceil_div(num_rows * C, block)}, {block}, args);
    pad.dispatch<Real>("encoder_backward_position", {ceil_div(p.T * C, block)}, {block, one}, args,
                       memory_traffic<Real>((p.B + 2.0) * p.T * p.C));
}

template <class Real>
Versions<LayerNormForward<Real>> with_baselines(Versions<LayerNormForward<Real>> versions) {
    return join<LayerNormForward<Real>, int>(
        {{"layernorm_forward1", "one invocation per row", layernorm_forward1<Real>, {32, 64, 128, 256}}},
        versions);
}
template <class Real>
Versions<FusedClassifier<Real>> with_baselines(Versions<FusedClassifier<Real>> versions) {
    return join<FusedClassifier<Real>, int>(
        {{"fused_classifier1", "one invocation per row", fused_classifier1<Real>, {8, 32, 128}}}, versions);
}
template <class Real>
Versions<EncoderBackward<Real>> with_baselines(Versions<EncoderBackward<Real>> versions) {
    return join<EncoderBackward<Real>, int>({{"encoder_backward1",
                                              "one invocation per channel of a token",
                                              encoder_backward1<Real>,
                                              {256, 32, 64, 128}}},
                                            versions);
}

#define INSTANTIATE(Real)                                                                       \
    template Versions<LayerNormForward<Real>> with_baselines(Versions<LayerNormForward<Real>>); \
    template Versions<FusedClassifier<Real>> with_baselines(Versions<FusedClassifier<Real>>);   \
    template Versions<EncoderBackward<Real>> with_baselines(Versions<EncoderBackward<Real>>);
FOR_EACH_REAL(INSTANTIATE)
#undef INSTANTIATE
