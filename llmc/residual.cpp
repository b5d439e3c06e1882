// Residual and residual with LayerNorm: CPU versions, GPU versions, their tables, and the choice that
// training makes.
#include "llmc/residual.h"

#include <cmath>

#include "llmc/layernorm.h"
#include "llmc/packs.h"
#include "shaders/args.h"

template <class T>
void residual_forward_cpu(T* out, const T* inp1, const T* inp2, size_t n) {
#pragma omp parallel for simd
    for (size_t i = 0; i < n; i++) out[i] = round_to<T>(float(inp1[i]) + float(inp2[i]));
}

template <class T>
void fused_residual_layernorm_forward_cpu(T* residual, T* normed, float* mean, float* rstd, const T* inp1,
                                          const T* inp2, const T* weight, const T* bias, int N, int C) {
    residual_forward_cpu(residual, inp1, inp2, size_t(N) * C);
    layernorm_forward_cpu(normed, mean, rstd, residual, weight, bias, N, C);
}

template <class T>
static void residual_forward1(LaunchPad& pad, T* out, const T* inp1, const T* inp2, size_t n,
                              int block_size) {
    ResidualForwardArgs args = {pad.at(out, n), pad.at(inp1, n), pad.at(inp2, n), n};
    pad.dispatch<T>("residual_forward1", {blocks(n, block_size)}, {uint32_t(block_size)}, args,
                    moves<T>(3.0 * double(n)));
}

template <class T>
static void residual_forward2(LaunchPad& pad, T* out, const T* inp1, const T* inp2, size_t n,
                              int block_size) {
    ResidualForwardArgs args = {pad.at(out, n), pad.at(inp1, n), pad.at(inp2, n), n};
    const uint32_t width = wide_pack_width<T>(0, {args.outp, args.inp1, args.inp2});
    pad.dispatch<T>("residual_forward2", {blocks(n, uint64_t(block_size) * width)},
                    {uint32_t(block_size), width}, args, moves<T>(3.0 * double(n)));
}

template <class T>
static FusedResidualLayernormForwardArgs fused_args(LaunchPad& pad, T* residual, T* normed, float* mean,
                                                    float* rstd, const T* inp1, const T* inp2,
                                                    const T* weight, const T* bias, int N, int C) {
    const size_t n = N, c = C;
    return {pad.at(residual, n * c),
            pad.at(normed, n * c),
            pad.at(mean, n),
            pad.at(rstd, n),
            pad.at(inp1, n * c),
            pad.at(inp2, n * c),
            pad.at(weight, c),
            pad.at(bias, c),
            N,
            C};
}

template <class T>
static void fused_residual_layernorm_forward1(LaunchPad& pad, T* residual, T* normed, float* mean,
                                              float* rstd, const T* inp1, const T* inp2, const T* weight,
                                              const T* bias, int N, int C, int block_size) {
    auto args = fused_args(pad, residual, normed, mean, rstd, inp1, inp2, weight, bias, N, C);
    pad.dispatch<T>("fused_residual_layernorm_forward1", {blocks(N, block_size)}, {uint32_t(block_size)},
                    args, moves<T>(4.0 * N * C));
}

template <class T>
static void fused_residual_layernorm_forward2(LaunchPad& pad, T* residual, T* normed, float* mean,
                                              float* rstd, const T* inp1, const T* inp2, const T* weight,
                                              const T* bias, int N, int C, int block_size) {
    auto args = fused_args(pad, residual, normed, mean, rstd, inp1, inp2, weight, bias, N, C);
    const uint32_t width =
        wide_pack_width<T>(C, {args.residual, args.normed, args.inp1, args.inp2, args.weight, args.bias});
    const RowTeams teams = row_teams(pad.limits(), N, C / width, block_size);
    if (teams.packs > MAX_ROW_PACKS) {  // the row does not fit in registers
        residual_forward(&pad, residual, inp1, inp2, size_t(N) * C);
        pad.barrier();
        return layernorm_forward(&pad, normed, mean, rstd, residual, weight, bias, N, C);
    }
    pad.dispatch<T>("fused_residual_layernorm_forward2", {teams.groups}, {teams.block, width, teams.packs},
                    args, moves<T>(4.0 * N * C));
}

template <class T>
std::vector<KernelVersion<ResidualForward<T>>> residual_forward_versions() {
    return {
        {"residual_forward1", "one invocation per element", residual_forward1<T>, {256, 64, 128, 512}},
        {"residual_forward2", "16-byte accesses", residual_forward2<T>, {256, 64, 128, 512}},
    };
}

template <class T>
std::vector<KernelVersion<FusedResidualLayernormForward<T>>> fused_residual_layernorm_forward_versions() {
    return {
        {"fused_residual_layernorm_forward1",
         "one invocation per row",
         fused_residual_layernorm_forward1<T>,
         {32, 64, 128, 256}},
        {"fused_residual_layernorm_forward2",
         "one subgroup per row, held in registers",
         fused_residual_layernorm_forward2<T>,
         {128, 64, 256}},
    };
}

template <class T>
void residual_forward(LaunchPad* pad, T* out, const T* inp1, const T* inp2, size_t n) {
    if (!pad) return residual_forward_cpu(out, inp1, inp2, n);
    residual_forward2(*pad, out, inp1, inp2, n, 256);
}

template <class T>
void fused_residual_layernorm_forward(LaunchPad* pad, T* residual, T* normed, float* mean, float* rstd,
                                      const T* inp1, const T* inp2, const T* weight, const T* bias, int N,
                                      int C) {
    if (!pad)
        return fused_residual_layernorm_forward_cpu(residual, normed, mean, rstd, inp1, inp2, weight, bias, N,
                                                    C);
    if (pad->device().type == DeviceType::software)  // runs rows side by side in the lanes of a vector unit
        return fused_residual_layernorm_forward1(*pad, residual, normed, mean, rstd, inp1, inp2, weight, bias,
                                                 N, C, 64);
    fused_residual_layernorm_forward2(*pad, residual, normed, mean, rstd, inp1, inp2, weight, bias, N, C,
                                      128);
}

#define INSTANTIATE(T)                                                                                       \
    template std::vector<KernelVersion<ResidualForward<T>>> residual_forward_versions();                     \
    template std::vector<KernelVersion<FusedResidualLayernormForward<T>>>                                    \
    fused_residual_layernorm_forward_versions();                                                             \
    template void residual_forward_cpu(T*, const T*, const T*, size_t);                                      \
    template void fused_residual_layernorm_forward_cpu(T*, T*, float*, float*, const T*, const T*, const T*, \
                                                       const T*, int, int);                                  \
    template void residual_forward(LaunchPad*, T*, const T*, const T*, size_t);                              \
    template void fused_residual_layernorm_forward(LaunchPad*, T*, T*, float*, float*, const T*, const T*,   \
                                                   const T*, const T*, int, int);
FOR_EACH_REAL(INSTANTIATE)
