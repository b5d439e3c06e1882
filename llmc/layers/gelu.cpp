// GELU: the CPU versions, the GPU versions with their tables, and the dispatchers that training calls.
#include "llmc/layers/gelu.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "llmc/base/ceil_div.h"
#include "llmc/cpu/simd.h"
#include "llmc/cpu/vector_math.h"
#include "llmc/launchpad/packs.h"
#include "shaders/args.h"

static const float SCALE = 0.7978845608f, CUBE = 0.044715f;  // sqrt(2/pi), and the coefficient of x^3

// With u = sqrt(2/pi) (x + 0.044715 x^3): exp(-2 |u|) and sigmoid(2 u) = (1 + tanh(u)) / 2 = 1 / (1 + exp(-2
// u)), from which GELU and its derivative follow. The relative error of GELU is 3e-7 at most for x >= -1.
// Below, the rounding of u is amplified, up to 4e-6 at x = -6. xx is x^2, which may be infinite.
struct GeluParts {
    float exponential, sigmoid;
};
static SIMD_INLINE GeluParts gelu_parts(float x, float xx) {
    const float scale = 2 * std::numbers::log2e_v<float> * SCALE;
    const float e = exp2_fast(-std::abs(x * (scale + scale * CUBE * xx)));
    return {e, (x < 0 ? e : 1) / (1 + e)};
}

template <class Real>
static SIMD_INLINE void gelu_values(Real* out, const Real* inp, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float x = float(inp[i]);
        out[i] = round_to<Real>(x * gelu_parts(x, x * x).sigmoid);
    }
}

template <class Real>
static SIMD_INLINE void gelu_slopes(Real* dinp, const Real* inp, const Real* dout, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float x = float(inp[i]), xx = x * x < 100 ? x * x : 100;  // finite: it is multiplied with 0
        const GeluParts p = gelu_parts(x, xx);
        // sigmoid * (1 - sigmoid)
        const float sigmoid_slope = p.exponential / ((1 + p.exponential) * (1 + p.exponential));
        const float slope = p.sigmoid + 2 * (x * sigmoid_slope) * (SCALE + 3 * SCALE * CUBE * xx);
        dinp[i] = round_to<Real>(float(dout[i]) * slope);
    }
}

static const size_t CPU_BLOCK = 4096;  // elements that a thread processes at once

template <class Real>
static void gelu_forward_cpu(const GeluForward<Real>& p) {
#pragma omp parallel for
    for (size_t i = 0; i < p.n; i += CPU_BLOCK)
        simd<gelu_values<Real>>(p.out + i, p.inp + i, std::min(CPU_BLOCK, p.n - i));
}

template <class Real>
static void gelu_backward_cpu(const GeluBackward<Real>& p) {
#pragma omp parallel for
    for (size_t i = 0; i < p.n; i += CPU_BLOCK)
        simd<gelu_slopes<Real>>(p.dinp + i, p.inp + i, p.dout + i, std::min(CPU_BLOCK, p.n - i));
}

template <class Real>
static void gelu_forward2(LaunchPad& pad, const GeluForward<Real>& p, int block_size) {
    const GeluForwardArgs args = {.outp = pad.at(p.out, p.n), .inp = pad.at(p.inp, p.n), .n = p.n};
    const uint32_t width = wide_pack_width<Real>(0, {args.outp, args.inp});
    pad.dispatch<Real>("gelu_forward2", {ceil_div(p.n, uint64_t(block_size) * width)},
                       {uint32_t(block_size), width}, args, memory_traffic<Real>(2.0 * double(p.n)));
}

template <class Real>
static void gelu_backward2(LaunchPad& pad, const GeluBackward<Real>& p, int block_size) {
    const GeluBackwardArgs args = {
        .dinp = pad.at(p.dinp, p.n), .inp = pad.at(p.inp, p.n), .dout = pad.at(p.dout, p.n), .n = p.n};
    const uint32_t width = wide_pack_width<Real>(0, {args.dinp, args.inp, args.dout});
    pad.dispatch<Real>("gelu_backward2", {ceil_div(p.n, uint64_t(block_size) * width)},
                       {uint32_t(block_size), width}, args, memory_traffic<Real>(3.0 * double(p.n)));
}

template <class Real>
std::vector<KernelVersion<GeluForward<Real>>> gelu_forward_versions() {
    return {
        {"gelu_forward2", "16-byte accesses", gelu_forward2<Real>, {256, 64, 128, 512}},
    };
}

template <class Real>
std::vector<KernelVersion<GeluBackward<Real>>> gelu_backward_versions() {
    return {
        {"gelu_backward2", "16-byte accesses", gelu_backward2<Real>, {256, 64, 128, 512}},
    };
}

template <class Real>
void gelu_forward(LaunchPad* pad, const GeluForward<Real>& p) {
    if (!pad) return gelu_forward_cpu(p);
    launch<Real>(*pad, p, gelu_forward_versions<Real>(), "gelu_forward2", 256);
}

template <class Real>
void gelu_backward(LaunchPad* pad, const GeluBackward<Real>& p) {
    if (!pad) return gelu_backward_cpu(p);
    launch<Real>(*pad, p, gelu_backward_versions<Real>(), "gelu_backward2", 256);
}

#define INSTANTIATE(Real)                              \
    INSTANTIATE_LAYER(gelu_forward, GeluForward, Real) \
    INSTANTIATE_LAYER(gelu_backward, GeluBackward, Real)
FOR_EACH_REAL(INSTANTIATE)
