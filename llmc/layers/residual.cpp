// Residual, alone and fused with LayerNorm, and dropout: CPU versions, GPU versions, their tables, and the
// functions that training calls.
#include "llmc/layers/residual.h"

#include <algorithm>

#include "llmc/base/ceil_div.h"
#include "llmc/base/hash.h"
#include "llmc/cpu/cpu_timer.h"
#include "llmc/cpu/simd.h"
#include "llmc/launchpad/packs.h"
#include "llmc/layers/layernorm.h"
#include "shaders/args.h"

template <class Real>
static SIMD_INLINE void add(Real* out, const Real* inp1, const Real* inp2, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) out[i] = round_to<Real>(float(inp1[i]) + float(inp2[i]));
}

template <class Real>
void residual_forward_cpu(const ResidualForward<Real>& p) {
    const CpuTimer timer("residual_forward", memory_traffic<Real>(3.0 * double(p.n)));
    const size_t chunk = 4096;  // elements of one task
#pragma omp parallel for
    for (size_t i = 0; i < p.n; i += chunk)
        simd<add<Real>>(p.out + i, p.inp1 + i, p.inp2 + i, std::min(chunk, p.n - i));
}

// Row by row, so that the sums are still in L1 when they are normalized.
template <class Real>
void fused_residual_layernorm_forward_cpu(const FusedResidualLayerNormForward<Real>& p) {
    const CpuTimer timer("fused_residual_layernorm_forward", memory_traffic<Real>(4.0 * p.num_rows * p.C));
#pragma omp parallel for
    for (int row = 0; row < p.num_rows; row++) {
        const size_t at = size_t(row) * p.C;
        simd<add<Real>>(p.residual + at, p.inp1 + at, p.inp2 + at, size_t(p.C));
        layernorm_row(p.normed + at, p.mean + row, p.rstd + row, p.residual + at, p.weight, p.bias, p.C);
    }
}

template <class Real>
static ResidualForwardArgs residual_args(LaunchPad& pad, const ResidualForward<Real>& p) {
    return {pad.at(p.out, p.n), pad.at(p.inp1, p.n), pad.at(p.inp2, p.n), p.n};
}

template <class Real>
static void residual_forward2(LaunchPad& pad, const ResidualForward<Real>& p, int block_size) {
    const ResidualForwardArgs args = residual_args(pad, p);
    const uint32_t width = wide_pack_width<Real>(0, {args.outp, args.inp1, args.inp2});
    pad.dispatch<Real>("residual_forward2", {ceil_div(p.n, uint64_t(block_size) * width)},
                       {uint32_t(block_size), width}, args, memory_traffic<Real>(3.0 * double(p.n)));
}

// Without the partials of inp2 and their bias.
template <class Real>
static FusedResidualLayernormForwardArgs fused_args(LaunchPad& pad,
                                                    const FusedResidualLayerNormForward<Real>& p) {
    const size_t num_rows = p.num_rows, C = p.C;
    return {pad.at(p.residual, num_rows * C),
            pad.at(p.normed, num_rows * C),
            pad.at(p.mean, num_rows),
            pad.at(p.rstd, num_rows),
            pad.at(p.inp1, num_rows * C),
            pad.at(p.inp2, num_rows * C),
            pad.at(p.weight, C),
            pad.at(p.bias, C),
            p.num_rows,
            p.C};
}

template <class Real>
static void fused_residual_layernorm_forward2(LaunchPad& pad, const FusedResidualLayerNormForward<Real>& p,
                                              int block_size) {
    const FusedResidualLayernormForwardArgs args = fused_args(pad, p);
    const uint32_t width = wide_pack_width<Real>(
        args.C, {args.residual, args.normed, args.inp1, args.inp2, args.weight, args.bias});
    const RowGrid grid = row_grid(pad.limits(), args.num_rows, args.C / width, block_size);
    if (row_fits(pad.limits(), grid, width))
        return pad.dispatch<Real>("fused_residual_layernorm_forward2", {grid.groups},
                                  {grid.block, width, grid.packs}, args,
                                  memory_traffic<Real>(4.0 * args.num_rows * args.C));
    residual_forward<Real>(
        &pad, {.out = p.residual, .inp1 = p.inp1, .inp2 = p.inp2, .n = size_t(p.num_rows) * p.C});
    pad.barrier();
    layernorm_forward<Real>(&pad, {.out = p.normed,
                                   .mean = p.mean,
                                   .rstd = p.rstd,
                                   .inp = p.residual,
                                   .weight = p.weight,
                                   .bias = p.bias,
                                   .num_rows = p.num_rows,
                                   .C = p.C});
}

template <class Real>
std::vector<KernelVersion<ResidualForward<Real>>> residual_forward_versions() {
    return {
        {"residual_forward2", "16-byte accesses", residual_forward2<Real>, {256, 64, 128, 512}},
    };
}

template <class Real>
std::vector<KernelVersion<FusedResidualLayerNormForward<Real>>> fused_residual_layernorm_forward_versions() {
    return {
        {"fused_residual_layernorm_forward2",
         "one subgroup per row, which stays in registers",
         fused_residual_layernorm_forward2<Real>,
         {128, 64, 256}},
    };
}

template <class Real>
void residual_forward(LaunchPad* pad, const ResidualForward<Real>& p) {
    if (!pad) return residual_forward_cpu(p);
    residual_forward2(*pad, p, 256);
}

template <class Real>
void fused_residual_layernorm_forward(LaunchPad* pad, const FusedResidualLayerNormForward<Real>& p) {
    if (!pad) return fused_residual_layernorm_forward_cpu(p);
    // few rows spread over all SMs of a large GPU with one subgroup per workgroup
    fused_residual_layernorm_forward2(*pad, p, p.num_rows <= 1024 ? 32 : 128);
}

// --- dropout ---

// The finalizer of splitmix64 (Steele, Lea and Flood 2014): a bijection, so different inputs stay different.
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

std::array<uint32_t, 2> dropout_key(uint64_t seed, int step, int micro_step, int process) {
    uint64_t key = mix(seed);
    for (const int number : {step, micro_step, process}) key = mix(key ^ uint32_t(number));
    return {uint32_t(key), uint32_t(key >> 32)};
}

// An element is dropped if its random bits are below this.
static uint32_t threshold_of(float rate) { return uint32_t(double(rate) * 0x1p32); }
static float scale_of(float rate) { return float(1 / (1 - double(rate))); }

// A chunk whose element indices all have the same upper 32 bits; `first` are the lower 32 of the first
// element. shaders/dropout.glsl computes the same.
struct Mask {
    uint32_t first, inner_key, outer_key, threshold;
    float scale;
};

template <class Real>
static SIMD_INLINE void drop(Real* out, const Real* inp, size_t n, Mask m) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = hash(hash((m.first + uint32_t(i)) ^ m.inner_key) ^ m.outer_key);
        out[i] = round_to<Real>(bits < m.threshold ? 0.0f : float(inp[i]) * m.scale);
    }
}

template <class Real>
static Work dropout_work(const Dropout<Real>& p) {
    return memory_traffic<Real>(2.0 * double(p.n));
}

template <class Real>
void dropout_cpu(const Dropout<Real>& p) {
    const CpuTimer timer("dropout", dropout_work(p));
    const size_t chunk = 4096;  // elements of one task
#pragma omp parallel for
    for (size_t i = 0; i < p.n; i += chunk) {
        const Mask mask = {.first = uint32_t(i),
                           .inner_key = hash(p.key[0] ^ (p.site + (uint32_t(i >> 32) << 16))),
                           .outer_key = p.key[1],
                           .threshold = threshold_of(p.rate),
                           .scale = scale_of(p.rate)};
        simd<drop<Real>>(p.out + i, p.inp + i, std::min(chunk, p.n - i), mask);
    }
}

template <class Real>
static DropoutArgs dropout_args(LaunchPad& pad, const Dropout<Real>& p) {
    return {.outp = pad.at(p.out, p.n),
            .inp = pad.at(p.inp, p.n),
            .key = pad.at(p.key, 2),
            .n = p.n,
            .site = p.site,
            .threshold = threshold_of(p.rate),
            .scale = scale_of(p.rate)};
}

template <class Real>
static void dropout2(LaunchPad& pad, const Dropout<Real>& p, int block_size) {
    const DropoutArgs args = dropout_args(pad, p);
    const uint32_t width = wide_pack_width<Real>(0, {args.outp, args.inp});
    pad.dispatch<Real>("dropout2", {ceil_div(p.n, uint64_t(block_size) * width)},
                       {uint32_t(block_size), width}, args, dropout_work(p));
}

template <class Real>
std::vector<KernelVersion<Dropout<Real>>> dropout_versions() {
    return {
        {"dropout2", "16-byte accesses", dropout2<Real>, {256, 64, 128, 512}},
    };
}

template <class Real>
void dropout(LaunchPad* pad, const Dropout<Real>& p) {
    if (!pad) return dropout_cpu(p);
    dropout2(*pad, p, 256);
}

#define INSTANTIATE(Real)                                                                                   \
    template std::vector<KernelVersion<ResidualForward<Real>>> residual_forward_versions();                 \
    template std::vector<KernelVersion<FusedResidualLayerNormForward<Real>>>                                \
    fused_residual_layernorm_forward_versions();                                                            \
    template void residual_forward_cpu(const ResidualForward<Real>&);                                       \
    template void residual_forward(LaunchPad*, const ResidualForward<Real>&);                               \
    template void fused_residual_layernorm_forward_cpu(const FusedResidualLayerNormForward<Real>&);         \
    template void fused_residual_layernorm_forward(LaunchPad*, const FusedResidualLayerNormForward<Real>&); \
    template std::vector<KernelVersion<Dropout<Real>>> dropout_versions();                                  \
    template void dropout_cpu(const Dropout<Real>&);                                                        \
    template void dropout(LaunchPad*, const Dropout<Real>&);
FOR_EACH_REAL(INSTANTIATE)
