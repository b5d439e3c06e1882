// LayerNorm: CPU version, GPU versions, their table, and the choice that training makes.
#include "llmc/layernorm.h"

#include <cmath>

#include "shaders/args.h"

template <class T>
void layernorm_forward_cpu(T* out, float* mean, float* rstd, const T* inp, const T* weight, const T* bias, int N,
                           int C) {
#pragma omp parallel for
    for (int row = 0; row < N; row++) {
        const T* x = inp + size_t(row) * C;
        T* y = out + size_t(row) * C;
        float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
        for (int c = 0; c < C; c++) sum += float(x[c]);
        const float m = sum / C;
#pragma omp simd reduction(+ : squares)
        for (int c = 0; c < C; c++) squares += (float(x[c]) - m) * (float(x[c]) - m);
        const float s = 1.0f / std::sqrt(squares / C + 1e-5f);
        for (int c = 0; c < C; c++) y[c] = T((float(x[c]) - m) * s * float(weight[c]) + float(bias[c]));
        mean[row] = m;
        rstd[row] = s;
    }
}

template <class T>
static LayernormForwardArgs forward_args(LaunchPad& pad, T* out, float* mean, float* rstd, const T* inp,
                                         const T* weight, const T* bias, int N, int C) {
    const size_t n = N, c = C;
    return {pad.at(out, n * c), pad.at(mean, n),   pad.at(rstd, n), pad.at(inp, n * c),
            pad.at(weight, c),  pad.at(bias, c), N,               C};
}

template <class T>
static void layernorm_forward1(LaunchPad& pad, T* out, float* mean, float* rstd, const T* inp, const T* weight,
                               const T* bias, int N, int C, int block_size) {
    LayernormForwardArgs args = forward_args(pad, out, mean, rstd, inp, weight, bias, N, C);
    pad.dispatch("layernorm_forward1", {blocks(N, block_size)}, {uint32_t(block_size)}, args);
}

template <class T>
static void layernorm_forward2(LaunchPad& pad, T* out, float* mean, float* rstd, const T* inp, const T* weight,
                               const T* bias, int N, int C, int block_size) {
    LayernormForwardArgs args = forward_args(pad, out, mean, rstd, inp, weight, bias, N, C);
    pad.dispatch("layernorm_forward2", {uint64_t(N)}, {uint32_t(block_size)}, args);
}

template <class T> std::vector<KernelVersion<LayernormForward<T>>> layernorm_forward_versions() {
    return {
        {"layernorm_forward1", "one invocation per row", layernorm_forward1<T>, {32, 64, 128, 256}},
        {"layernorm_forward2", "one workgroup per row, subgroup sums", layernorm_forward2<T>, {128, 32, 64, 256, 512}},
    };
}

template <class T>
void layernorm_forward(LaunchPad* pad, T* out, float* mean, float* rstd, const T* inp, const T* weight, const T* bias,
                       int N, int C) {
    if (!pad) return layernorm_forward_cpu(out, mean, rstd, inp, weight, bias, N, C);
    layernorm_forward2(*pad, out, mean, rstd, inp, weight, bias, N, C, 128);
}

template std::vector<KernelVersion<LayernormForward<float>>> layernorm_forward_versions();
template void layernorm_forward_cpu(float*, float*, float*, const float*, const float*, const float*, int, int);
template void layernorm_forward(LaunchPad*, float*, float*, float*, const float*, const float*, const float*, int, int);
