// The classifier and the sum of its losses: CPU versions, GPU versions, their tables, and the choice that
// training makes.
#include "llmc/classifier.h"

#include <algorithm>
#include <cmath>

#include "llmc/cpu_times.h"
#include "llmc/packs.h"
#include "llmc/simd.h"
#include "llmc/vector_math.h"
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

// A row is taken in pieces of so many logits: those of 16-bit types are converted into a buffer, and back.
static const int PIECE = 1024;

static float* open_piece(float*, float* x, int) { return x; }
static void close_piece(float*, const float*, int) {}
template <class T>
static float* open_piece(float* buffer, T* x, int n) {
    convert(buffer, x, n);
    return buffer;
}
template <class T>
static void close_piece(T* x, const float* piece, int n) {
    convert(x, piece, n);
}

// Returns its loss; with write_gradients, x becomes the gradients.
template <class T>
static float classify_row(T* x, int target, float dloss, int V, int Vp, bool write_gradients) {
    float buffer[PIECE];
    float largest = float(x[0]);
    for (int i = 0; i < V; i += PIECE) {
        const int n = std::min(PIECE, V - i);
        const float most = row_max(open_piece(buffer, x + i, n), n);
        largest = most > largest ? most : largest;
    }
    double sum = 0;
    for (int i = 0; i < V; i += PIECE) {
        const int n = std::min(PIECE, V - i);
        sum += double(row_exp_sum(open_piece(buffer, x + i, n), n, largest));
    }
    const float loss = float(std::log(sum) + double(largest) - double(float(x[target])));
    if (!write_gradients) return loss;
    for (int i = 0; i < V; i += PIECE) {
        const int n = std::min(PIECE, V - i);
        float* gradients = open_piece(buffer, x + i, n);
        exp_scaled(gradients, n, largest, float(double(dloss) / sum));
        if (i <= target && target < i + n) gradients[target - i] -= dloss;
        close_piece(x + i, gradients, n);
    }
    std::fill(x + V, x + Vp, T(0.0f));
    return loss;
}

template <class T>
void fused_classifier_cpu(T* logits, float* losses, const int* targets, float dloss, int N, int V, int Vp,
                          bool write_gradients) {
    const CpuTimer timer("fused_classifier", moves<T>((1.0 + write_gradients) * N * V));
#pragma omp parallel for
    for (int row = 0; row < N; row++)
        losses[row] = classify_row(logits + size_t(row) * Vp, targets[row], dloss, V, Vp, write_gradients);
}

template <class T>
static FusedClassifierArgs classifier_args(LaunchPad& pad, T* logits, float* losses, const int* targets,
                                           float dloss, int N, int V, int Vp, bool write_gradients) {
    const size_t n = N;
    return {pad.at(logits, n * Vp), pad.at(losses, n), pad.at(targets, n), dloss, N, V, Vp, write_gradients};
}

template <class T>
static void fused_classifier1(LaunchPad& pad, T* logits, float* losses, const int* targets, float dloss,
                              int N, int V, int Vp, bool write_gradients, int block_size) {
    FusedClassifierArgs args =
        classifier_args(pad, logits, losses, targets, dloss, N, V, Vp, write_gradients);
    pad.dispatch<T>("fused_classifier1", {blocks(N, block_size)}, {uint32_t(block_size)}, args,
                    moves<T>((1.0 + write_gradients) * N * V));
}

template <class T>
static void fused_classifier2(LaunchPad& pad, T* logits, float* losses, const int* targets, float dloss,
                              int N, int V, int Vp, bool write_gradients, int block_size) {
    FusedClassifierArgs args =
        classifier_args(pad, logits, losses, targets, dloss, N, V, Vp, write_gradients);
    pad.dispatch<T>("fused_classifier2", {uint64_t(N)}, {uint32_t(block_size)}, args,
                    moves<T>((1.0 + write_gradients) * N * V));
}

template <class T>
static void fused_classifier3(LaunchPad& pad, T* logits, float* losses, const int* targets, float dloss,
                              int N, int V, int Vp, bool write_gradients, int block_size) {
    FusedClassifierArgs args =
        classifier_args(pad, logits, losses, targets, dloss, N, V, Vp, write_gradients);
    const uint32_t width = wide_pack_width<T>(Vp, {args.logits});
    if (width == 1)
        return fused_classifier2(pad, logits, losses, targets, dloss, N, V, Vp, write_gradients, block_size);
    pad.dispatch<T>("fused_classifier3", {uint64_t(N)}, {uint32_t(block_size), width}, args,
                    moves<T>((1.0 + write_gradients) * N * V));
}

template <class T>
std::vector<KernelVersion<FusedClassifier<T>>> fused_classifier_versions() {
    return {
        {"fused_classifier1", "one invocation per row", fused_classifier1<T>, {8, 32, 128}},
        {"fused_classifier2", "one workgroup per row, online softmax", fused_classifier2<T>, {1024, 32, 256}},
        {"fused_classifier3", "16-byte accesses", fused_classifier3<T>, {512, 32, 256, 1024}},
    };
}

template <class T>
void fused_classifier(LaunchPad* pad, T* logits, float* losses, const int* targets, float dloss, int N, int V,
                      int Vp, bool write_gradients) {
    if (!pad) return fused_classifier_cpu(logits, losses, targets, dloss, N, V, Vp, write_gradients);
    if (pad->device().type == DeviceType::software)
        return fused_classifier1(*pad, logits, losses, targets, dloss, N, V, Vp, write_gradients, 8);
    const int block_size = int(std::min(512u, pad->limits().max_block));
    fused_classifier3(*pad, logits, losses, targets, dloss, N, V, Vp, write_gradients, block_size);
}

void sum_losses_cpu(float* total, const float* losses, int n, float scale) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += double(losses[i]);
    total[0] += float(double(scale) * sum);
}

static SumLossesArgs sum_args(LaunchPad& pad, float* total, const float* losses, int n, float scale) {
    return {pad.at(total, 1), pad.at(losses, n), n, scale};
}

static void sum_losses1(LaunchPad& pad, float* total, const float* losses, int n, float scale,
                        int block_size) {
    pad.dispatch("sum_losses1", {1}, {uint32_t(block_size)}, sum_args(pad, total, losses, n, scale),
                 moves<float>(n));
}

static void sum_losses2(LaunchPad& pad, float* total, const float* losses, int n, float scale,
                        int block_size) {
    pad.dispatch("sum_losses2", {1}, {uint32_t(block_size)}, sum_args(pad, total, losses, n, scale),
                 moves<float>(n));
}

std::vector<KernelVersion<SumLosses>> sum_losses_versions() {
    return {
        {"sum_losses1", "one invocation", sum_losses1, {1}},
        {"sum_losses2", "one workgroup", sum_losses2, {1024, 64, 256}},
    };
}

void sum_losses(LaunchPad* pad, float* total, const float* losses, int n, float scale) {
    if (!pad) return sum_losses_cpu(total, losses, n, scale);
    const uint32_t block_size = pad->device().type == DeviceType::software ? 64 : 1024;
    sum_losses2(*pad, total, losses, n, scale, int(std::min(block_size, pad->limits().max_block)));
}

#define INSTANTIATE(T)                                                                      \
    template std::vector<KernelVersion<FusedClassifier<T>>> fused_classifier_versions();    \
    template void fused_classifier_cpu(T*, float*, const int*, float, int, int, int, bool); \
    template void fused_classifier(LaunchPad*, T*, float*, const int*, float, int, int, int, bool);
FOR_EACH_REAL(INSTANTIATE)
