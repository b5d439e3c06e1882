// Residual and residual with LayerNorm: CPU versions, GPU versions, their tables, and the choice that
// training makes.
#include "llmc/residual.h"

#include <algorithm>
#include <cmath>

#include "llmc/cpu_times.h"
#include "llmc/layernorm.h"
#include "llmc/packs.h"
#include "llmc/simd.h"
#include "shaders/args.h"

template <class T>
static inline void add_all(T* out, const T* inp1, const T* inp2, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) out[i] = round_to<T>(float(inp1[i]) + float(inp2[i]));
}
SIMD_CLONES static void add(float* out, const float* inp1, const float* inp2, size_t n) {
    add_all(out, inp1, inp2, n);
}
SIMD_CLONES static void add(bf16* out, const bf16* inp1, const bf16* inp2, size_t n) {
    add_all(out, inp1, inp2, n);
}
SIMD_CLONES static void add(fp16* out, const fp16* inp1, const fp16* inp2, size_t n) {
    add_all(out, inp1, inp2, n);
}

template <class T>
void residual_forward_cpu(T* out, const T* inp1, const T* inp2, size_t n) {
    const CpuTimer timer("residual_forward", moves<T>(3.0 * double(n)));
    const size_t piece = 4096;  // elements; each a task for a thread
#pragma omp parallel for
    for (size_t i = 0; i < n; i += piece) add(out + i, inp1 + i, inp2 + i, std::min(piece, n - i));
}

// Row by row, so that the sums are still in the cache when they are normalized.
template <class T>
void fused_residual_layernorm_forward_cpu(T* residual, T* normed, float* mean, float* rstd, const T* inp1,
                                          const T* inp2, const T* weight, const T* bias, int N, int C) {
    const CpuTimer timer("fused_residual_layernorm_forward", moves<T>(4.0 * N * C));
#pragma omp parallel for
    for (int row = 0; row < N; row++) {
        const size_t at = size_t(row) * C;
        add(residual + at, inp1 + at, inp2 + at, size_t(C));
        layernorm_row(normed + at, mean + row, rstd + row, residual + at, weight, bias, C);
    }
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
            0,
            0,
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

// Starts version 2; false where a row does not fit in registers.
template <class T>
static bool launch_fused2(LaunchPad& pad, const FusedResidualLayernormForwardArgs& args, int slices,
                          int block_size) {
    const uint32_t width = wide_pack_width<T>(args.C, {args.residual, args.normed, args.inp1, args.inp2,
                                                       args.product_bias, args.weight, args.bias});
    const RowTeams teams = row_teams(pad.limits(), args.N, args.C / width, block_size);
    if (teams.packs > MAX_ROW_PACKS) return false;
    const double elements = double(args.N) * args.C;
    Work work = moves<T>(4 * elements);
    if (slices > 1) work.bytes += elements * (4.0 * slices - sizeof(T));  // they are read in place of inp2
    pad.dispatch<T>("fused_residual_layernorm_forward2", {teams.groups},
                    {teams.block, width, uint32_t(slices), teams.packs, args.product_bias != 0}, args, work);
    return true;
}

template <class T>
static void fused_residual_layernorm_forward2(LaunchPad& pad, T* residual, T* normed, float* mean,
                                              float* rstd, const T* inp1, const T* inp2, const T* weight,
                                              const T* bias, int N, int C, int block_size) {
    auto args = fused_args(pad, residual, normed, mean, rstd, inp1, inp2, weight, bias, N, C);
    if (launch_fused2<T>(pad, args, 1, block_size)) return;
    residual_forward(&pad, residual, inp1, inp2, size_t(N) * C);
    pad.barrier();
    layernorm_forward(&pad, normed, mean, rstd, residual, weight, bias, N, C);
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

template <class T>
void fused_residual_layernorm_forward(LaunchPad* pad, T* residual, T* normed, float* mean, float* rstd,
                                      const T* inp1, const PartialProduct<T>& inp2, const T* weight,
                                      const T* bias, int N, int C) {
    if (inp2.slices > 1) {
        auto args = fused_args(*pad, residual, normed, mean, rstd, inp1, inp2.value, weight, bias, N, C);
        args.partials = pad->at(inp2.partials, size_t(inp2.slices) * N * C);
        args.product_bias = pad->at(inp2.bias, size_t(C));
        // a subgroup to a workgroup, so that few rows reach every part of a large GPU
        if (launch_fused2<T>(*pad, args, inp2.slices, 32)) return;
        finish_product(*pad, inp2, N, C);
        pad->barrier();
    }
    fused_residual_layernorm_forward<T>(pad, residual, normed, mean, rstd, inp1, inp2.value, weight, bias, N,
                                        C);
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
                                                   const T*, const T*, int, int);                            \
    template void fused_residual_layernorm_forward(LaunchPad*, T*, T*, float*, float*, const T*,             \
                                                   const PartialProduct<T>&, const T*, const T*, int, int);
FOR_EACH_REAL(INSTANTIATE)
