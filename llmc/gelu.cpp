// GELU: CPU versions, GPU versions, their tables, and the choice that training makes.
#include "llmc/gelu.h"

#include <algorithm>
#include <cmath>

#include "llmc/cpu_times.h"
#include "llmc/packs.h"
#include "llmc/simd.h"
#include "llmc/vector_math.h"
#include "shaders/args.h"

static const float SCALE = 0.7978845608f, CUBE = 0.044715f;  // sqrt(2/pi), and the factor of x^3

// The tanh of GELU's definition, as (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)): GELU comes out with a relative
// error of 3e-7 at most from -1 on; below, the rounding of u itself grows it to 3e-6 at -6. exp(-2 |u|) and 1
// / (1 + exp(-2 u)), from which GELU and its derivative follow; xx is x^2, capped where it no longer matters,
// so that no finite x meets an infinity.
struct GeluParts {
    float decay, share;
};
static inline GeluParts gelu_parts(float x, float xx) {
    const float u = x * (SCALE + SCALE * CUBE * xx), e = exp_fast(-2 * std::abs(u));
    return {e, (u < 0 ? e : 1) / (1 + e)};
}
static inline float capped_square(float x) { return x * x < 100 ? x * x : 100; }

template <class T>
static inline void gelu_values(T* out, const T* inp, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float x = float(inp[i]);
        out[i] = round_to<T>(x * gelu_parts(x, capped_square(x)).share);
    }
}

template <class T>
static inline void gelu_slopes(T* dinp, const T* inp, const T* dout, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float x = float(inp[i]), xx = capped_square(x);
        const GeluParts p = gelu_parts(x, xx);
        const float bell = p.decay / ((1 + p.decay) * (1 + p.decay));  // share * (1 - share)
        const float slope = p.share + 2 * (x * bell) * (SCALE + 3 * SCALE * CUBE * xx);
        dinp[i] = round_to<T>(float(dout[i]) * slope);
    }
}

SIMD_CLONES static void gelu_block(float* out, const float* inp, size_t n) { gelu_values(out, inp, n); }
SIMD_CLONES static void gelu_block(bf16* out, const bf16* inp, size_t n) { gelu_values(out, inp, n); }
SIMD_CLONES static void gelu_block(fp16* out, const fp16* inp, size_t n) { gelu_values(out, inp, n); }
SIMD_CLONES static void slope_block(float* dinp, const float* inp, const float* dout, size_t n) {
    gelu_slopes(dinp, inp, dout, n);
}
SIMD_CLONES static void slope_block(bf16* dinp, const bf16* inp, const bf16* dout, size_t n) {
    gelu_slopes(dinp, inp, dout, n);
}
SIMD_CLONES static void slope_block(fp16* dinp, const fp16* inp, const fp16* dout, size_t n) {
    gelu_slopes(dinp, inp, dout, n);
}

static const size_t CPU_BLOCK = 4096;  // elements that a thread takes at once

template <class T>
void gelu_forward_cpu(T* out, const T* inp, size_t n) {
    const CpuTimer timer("gelu_forward", moves<T>(2.0 * double(n)));
#pragma omp parallel for
    for (size_t i = 0; i < n; i += CPU_BLOCK) gelu_block(out + i, inp + i, std::min(CPU_BLOCK, n - i));
}

template <class T>
void gelu_backward_cpu(T* dinp, const T* inp, const T* dout, size_t n) {
    const CpuTimer timer("gelu_backward", moves<T>(3.0 * double(n)));
#pragma omp parallel for
    for (size_t i = 0; i < n; i += CPU_BLOCK)
        slope_block(dinp + i, inp + i, dout + i, std::min(CPU_BLOCK, n - i));
}

template <class T>
static void gelu_forward1(LaunchPad& pad, T* out, const T* inp, size_t n, int block_size) {
    GeluForwardArgs args = {pad.at(out, n), pad.at(inp, n), n};
    pad.dispatch<T>("gelu_forward1", {blocks(n, block_size)}, {uint32_t(block_size)}, args,
                    moves<T>(2.0 * double(n)));
}

template <class T>
static void gelu_forward2(LaunchPad& pad, T* out, const T* inp, size_t n, int block_size) {
    GeluForwardArgs args = {pad.at(out, n), pad.at(inp, n), n};
    const uint32_t width = wide_pack_width<T>(0, {args.outp, args.inp});
    pad.dispatch<T>("gelu_forward2", {blocks(n, uint64_t(block_size) * width)}, {uint32_t(block_size), width},
                    args, moves<T>(2.0 * double(n)));
}

template <class T>
static void gelu_backward1(LaunchPad& pad, T* dinp, const T* inp, const T* dout, size_t n, int block_size) {
    GeluBackwardArgs args = {pad.at(dinp, n), pad.at(inp, n), pad.at(dout, n), n};
    pad.dispatch<T>("gelu_backward1", {blocks(n, block_size)}, {uint32_t(block_size)}, args,
                    moves<T>(3.0 * double(n)));
}

template <class T>
static void gelu_backward2(LaunchPad& pad, T* dinp, const T* inp, const T* dout, size_t n, int block_size) {
    GeluBackwardArgs args = {pad.at(dinp, n), pad.at(inp, n), pad.at(dout, n), n};
    const uint32_t width = wide_pack_width<T>(0, {args.dinp, args.inp, args.dout});
    pad.dispatch<T>("gelu_backward2", {blocks(n, uint64_t(block_size) * width)},
                    {uint32_t(block_size), width}, args, moves<T>(3.0 * double(n)));
}

template <class T>
std::vector<KernelVersion<GeluForward<T>>> gelu_forward_versions() {
    return {
        {"gelu_forward1", "one invocation per element", gelu_forward1<T>, {256, 64, 128, 512}},
        {"gelu_forward2", "16-byte accesses", gelu_forward2<T>, {256, 64, 128, 512}},
    };
}

template <class T>
std::vector<KernelVersion<GeluBackward<T>>> gelu_backward_versions() {
    return {
        {"gelu_backward1", "one invocation per element", gelu_backward1<T>, {256, 64, 128, 512}},
        {"gelu_backward2", "16-byte accesses", gelu_backward2<T>, {256, 64, 128, 512}},
    };
}

template <class T>
void gelu_forward(LaunchPad* pad, T* out, const T* inp, size_t n) {
    if (!pad) return gelu_forward_cpu(out, inp, n);
    gelu_forward2(*pad, out, inp, n, 256);
}

template <class T>
void gelu_backward(LaunchPad* pad, T* dinp, const T* inp, const T* dout, size_t n) {
    if (!pad) return gelu_backward_cpu(dinp, inp, dout, n);
    gelu_backward2(*pad, dinp, inp, dout, n, 256);
}

#define INSTANTIATE(T)                                                             \
    template std::vector<KernelVersion<GeluForward<T>>> gelu_forward_versions();   \
    template std::vector<KernelVersion<GeluBackward<T>>> gelu_backward_versions(); \
    template void gelu_forward_cpu(T*, const T*, size_t);                          \
    template void gelu_backward_cpu(T*, const T*, const T*, size_t);               \
    template void gelu_forward(LaunchPad*, T*, const T*, size_t);                  \
    template void gelu_backward(LaunchPad*, T*, const T*, const T*, size_t);
FOR_EACH_REAL(INSTANTIATE)
