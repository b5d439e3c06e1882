// The classifier and the sum of its losses: the CPU versions, the GPU versions with their tables, and the
// dispatchers that training calls.
#include "llmc/layers/classifier.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/ceil_div.h"
#include "llmc/cpu/cpu_timer.h"
#include "llmc/cpu/simd.h"
#include "llmc/cpu/vector_math.h"
#include "llmc/layers/packs.h"
#include "shaders/args.h"

SIMD_CLONES static float row_max(const float* x, int n) {
    float largest = x[0];
#pragma omp simd reduction(max : largest)
    for (int i = 0; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

SIMD_CLONES static float row_exp_sum(const float* x, int n, float largest) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) sum += exp_fast(x[i] - largest);
    return sum;
}

SIMD_CLONES static void exp_scaled(float* x, int n, float largest, float factor) {
#pragma omp simd
    for (int i = 0; i < n; i++) x[i] = exp_fast(x[i] - largest) * factor;
}

template <class From, class To>
static inline void convert_all(To* to, const From* from, int n) {
#pragma omp simd
    for (int i = 0; i < n; i++) to[i] = round_to<To>(float(from[i]));
}
SIMD_CLONES static void convert(float* to, const bf16* from, int n) { convert_all(to, from, n); }
SIMD_CLONES static void convert(float* to, const fp16* from, int n) { convert_all(to, from, n); }
SIMD_CLONES static void convert(bf16* to, const float* from, int n) { convert_all(to, from, n); }
SIMD_CLONES static void convert(fp16* to, const float* from, int n) { convert_all(to, from, n); }

// A row is processed in tiles of this many logits. Those of 16-bit types are converted into an fp32 buffer,
// and the gradients back; those in fp32 are processed in place.
static const int TILE = 1024;

static float* load_tile(float*, float* x, int) { return x; }
static void store_tile(float*, const float*, int) {}
template <class Real>
static float* load_tile(float* buffer, Real* x, int n) {
    convert(buffer, x, n);
    return buffer;
}
template <class Real>
static void store_tile(Real* x, const float* tile, int n) {
    convert(x, tile, n);
}

// Returns the loss of a row; with write_gradients, x becomes the gradients.
template <class Real>
static float classify_row(Real* x, int target, const FusedClassifier<Real>& p) {
    const int V = p.V;
    float buffer[TILE];
    float largest = float(x[0]);
    for (int i = 0; i < V; i += TILE) {
        const int n = std::min(TILE, V - i);
        const float tile_max = row_max(load_tile(buffer, x + i, n), n);
        largest = tile_max > largest ? tile_max : largest;
    }
    double sum = 0;
    for (int i = 0; i < V; i += TILE) {
        const int n = std::min(TILE, V - i);
        sum += double(row_exp_sum(load_tile(buffer, x + i, n), n, largest));
    }
    const float loss = float(std::log(sum) + double(largest) - double(float(x[target])));
    if (!p.write_gradients) return loss;
    for (int i = 0; i < V; i += TILE) {
        const int n = std::min(TILE, V - i);
        float* gradients = load_tile(buffer, x + i, n);
        exp_scaled(gradients, n, largest, float(double(p.dloss) / sum));
        if (i <= target && target < i + n) gradients[target - i] -= p.dloss;
        store_tile(x + i, gradients, n);
    }
    std::fill(x + V, x + p.Vp, Real(0.0f));
    return loss;
}

// One access to each logit for the losses, another for the gradients.
template <class Real>
static Work classifier_work(const FusedClassifier<Real>& p) {
    return memory_traffic<Real>((1.0 + p.write_gradients) * p.num_rows * p.V);
}

template <class Real>
void fused_classifier_cpu(const FusedClassifier<Real>& p) {
    const CpuTimer timer("fused_classifier", classifier_work(p));
    const int num_rows = p.num_rows;
#pragma omp parallel for
    for (int row = 0; row < num_rows; row++)
        p.losses[row] = classify_row(p.logits + size_t(row) * p.Vp, p.targets[row], p);
}

template <class Real>
static FusedClassifierArgs classifier_args(LaunchPad& pad, const FusedClassifier<Real>& p) {
    const size_t num_rows = p.num_rows;
    return {.logits = pad.at(p.logits, num_rows * p.Vp),
            .losses = pad.at(p.losses, num_rows),
            .targets = pad.at(p.targets, num_rows),
            .dloss = p.dloss,
            .num_rows = p.num_rows,
            .V = p.V,
            .Vp = p.Vp,
            .write_gradients = p.write_gradients};
}

template <class Real>
static void fused_classifier1(LaunchPad& pad, const FusedClassifier<Real>& p, int block_size) {
    pad.dispatch<Real>("fused_classifier1", {ceil_div(p.num_rows, block_size)}, {uint32_t(block_size)},
                       classifier_args(pad, p), classifier_work(p));
}

template <class Real>
static void fused_classifier2(LaunchPad& pad, const FusedClassifier<Real>& p, int block_size) {
    pad.dispatch<Real>("fused_classifier2", {uint64_t(p.num_rows)}, {uint32_t(block_size)},
                       classifier_args(pad, p), classifier_work(p));
}

template <class Real>
static void fused_classifier3(LaunchPad& pad, const FusedClassifier<Real>& p, int block_size) {
    const FusedClassifierArgs args = classifier_args(pad, p);
    const uint32_t width = wide_pack_width<Real>(p.Vp, {args.logits});
    if (width == 1) return fused_classifier2(pad, p, block_size);
    pad.dispatch<Real>("fused_classifier3", {uint64_t(p.num_rows)}, {uint32_t(block_size), width}, args,
                       classifier_work(p));
}

template <class Real>
std::vector<KernelVersion<FusedClassifier<Real>>> fused_classifier_versions() {
    return {
        {"fused_classifier1", "one invocation per row", fused_classifier1<Real>, {8, 32, 128}},
        {"fused_classifier2",
         "one workgroup per row, online softmax",
         fused_classifier2<Real>,
         {1024, 32, 256}},
        {"fused_classifier3", "16-byte accesses", fused_classifier3<Real>, {512, 32, 256, 1024}},
    };
}

template <class Real>
void fused_classifier(LaunchPad* pad, const FusedClassifier<Real>& p) {
    if (!pad) return fused_classifier_cpu(p);
    if (pad->device().type == DeviceType::software) return fused_classifier1(*pad, p, 8);
    fused_classifier3(*pad, p, int(std::min(512u, pad->limits().max_block)));
}

void sum_losses_cpu(const SumLosses& p) {
    double sum = 0;
    for (int i = 0; i < p.n; i++) sum += double(p.losses[i]);
    p.total[0] += float(double(p.scale) * sum);
}

static SumLossesArgs sum_args(LaunchPad& pad, const SumLosses& p) {
    return {.total = pad.at(p.total, 1), .losses = pad.at(p.losses, p.n), .n = p.n, .scale = p.scale};
}

static void sum_losses1(LaunchPad& pad, const SumLosses& p, int block_size) {
    pad.dispatch("sum_losses1", {1}, {uint32_t(block_size)}, sum_args(pad, p), memory_traffic<float>(p.n));
}

static void sum_losses2(LaunchPad& pad, const SumLosses& p, int block_size) {
    pad.dispatch("sum_losses2", {1}, {uint32_t(block_size)}, sum_args(pad, p), memory_traffic<float>(p.n));
}

std::vector<KernelVersion<SumLosses>> sum_losses_versions() {
    return {
        {"sum_losses1", "one invocation", sum_losses1, {1}},
        {"sum_losses2", "one workgroup", sum_losses2, {1024, 64, 256}},
    };
}

void sum_losses(LaunchPad* pad, const SumLosses& p) {
    if (!pad) return sum_losses_cpu(p);
    const uint32_t block_size = pad->device().type == DeviceType::software ? 64 : 1024;
    sum_losses2(*pad, p, int(std::min(block_size, pad->limits().max_block)));
}

#define INSTANTIATE(Real)                                                                   \
    template std::vector<KernelVersion<FusedClassifier<Real>>> fused_classifier_versions(); \
    template void fused_classifier_cpu(const FusedClassifier<Real>&);                       \
    template void fused_classifier(LaunchPad*, const FusedClassifier<Real>&);
FOR_EACH_REAL(INSTANTIATE)
