// The baselines of elementwise layers: one invocation per element.
#include "dev/vulkan/baselines/join.h"

// One invocation for each of n elements.
template <class Real, class Args>
static void dispatch_elements(LaunchPad& pad, const char* kernel, uint64_t n, int block_size,
                              const Args& args, const Work& work) {
    pad.dispatch<Real>(kernel, {ceil_div(n, block_size)}, {uint32_t(block_size)}, args, work);
}

template <class Real>
static void gelu_forward1(LaunchPad& pad, const GeluForward<Real>& p, int block_size) {
    const GeluForwardArgs args = {.outp = pad.at(p.out, p.n), .inp = pad.at(p.inp, p.n), .n = p.n};
    dispatch_elements<Real>(pad, "gelu_forward1", p.n, block_size, args,
                            memory_traffic<Real>(2.0 * double(p.n)));
}

template <class Real>
static void gelu_backward1(LaunchPad& pad, const GeluBackward<Real>& p, int block_size) {
    const GeluBackwardArgs args = {
        .dinp = pad.at(p.dinp, p.n), .inp = pad.at(p.inp, p.n), .dout = pad.at(p.dout, p.n), .n = p.n};
    dispatch_elements<Real>(pad, "gelu_backward1", p.n, block_size, args,
                            memory_traffic<Real>(3.0 * double(p.n)));
}

template <class Real>
static void dropout1(LaunchPad& pad, const Dropout<Real>& p, int block_size) {
    const DropoutArgs args = {.outp = pad.at(p.out, p.n),
                              .inp = pad.at(p.inp, p.n),
                              .key = pad.at(p.key, 2),
                              .n = p.n,
                              .site = p.site,
                              .threshold = uint32_t(double(p.rate) * 0x1p32),
                              .scale = float(1 / (1 - double(p.rate)))};
    dispatch_elements<Real>(pad, "dropout1", p.n, block_size, args, memory_traffic<Real>(2.0 * double(p.n)));
}

template <class Real>
static void encoder_forward1(LaunchPad& pad, const EncoderForward<Real>& p, int block_size) {
    const size_t num_rows = size_t(p.B) * p.T, C = p.C;
    const EncoderForwardArgs args = {.outp = pad.at(p.out, num_rows * C),
                                     .inp = pad.at(p.inp, num_rows),
                                     .wte = pad.at(p.wte, C),
                                     .wpe = pad.at(p.wpe, p.T * C),
                                     .num_rows = int(num_rows),
                                     .T = p.T,
                                     .C = p.C};
    dispatch_elements<Real>(pad, "encoder_forward1", num_rows * C, block_size, args,
                            memory_traffic<Real>(2.0 * double(num_rows * C)));
}

// Every one has the same configs.
template <class Params>
static Versions<Params> join_elementwise(const char* name, void (*launch)(LaunchPad&, const Params&, int),
                                         const Versions<Params>& versions) {
    return join<Params, int>({{name, "one invocation per element", launch, {256, 64, 128, 512}}}, versions);
}

template <class Real>
Versions<GeluForward<Real>> with_baselines(Versions<GeluForward<Real>> versions) {
    return join_elementwise("gelu_forward1", gelu_forward1<Real>, versions);
}
template <class Real>
Versions<GeluBackward<Real>> with_baselines(Versions<GeluBackward<Real>> versions) {
    return join_elementwise("gelu_backward1", gelu_backward1<Real>, versions);
}
template <class Real>
Versions<Dropout<Real>> with_baselines(Versions<Dropout<Real>> versions) {
    return join_elementwise("dropout1", dropout1<Real>, versions);
}
template <class Real>
Versions<EncoderForward<Real>> with_baselines(Versions<EncoderForward<Real>> versions) {
    return join_elementwise("encoder_forward1", encoder_forward1<Real>, versions);
}

#define INSTANTIATE(Real)                                                               \
    template Versions<GeluForward<Real>> with_baselines(Versions<GeluForward<Real>>);   \
    template Versions<GeluBackward<Real>> with_baselines(Versions<GeluBackward<Real>>); \
    template Versions<Dropout<Real>> with_baselines(Versions<Dropout<Real>>);           \
    template Versions<EncoderForward<Real>> with_baselines(Versions<EncoderForward<Real>>);
FOR_EACH_REAL(INSTANTIATE)
#undef INSTANTIATE
