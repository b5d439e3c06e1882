// Attention of the newest rows: CPU version, GPU version, its table, and the choice that generation makes.
#include "llmc/cached_attention.h"

#include <algorithm>
#include <cmath>

#include "llmc/attention.h"
#include "llmc/simd.h"
#include "shaders/args.h"

// One head of one row: out (hs) of query q (hs) over `keys` rows, whose k and v (hs) lie `stride` elements
// apart. scores (keys) is scratch.
template <class T>
static inline void attend(T* out, float* scores, const T* q, const T* k, const T* v, int keys, size_t stride,
                          int hs) {
    float query[128], sums[128] = {};
    const float scale = 1.0f / std::sqrt(float(hs));
    for (int c = 0; c < hs; c++) query[c] = float(q[c]) * scale;
    float maximum = -INFINITY;
    for (int j = 0; j < keys; j++) {
        const T* key = k + j * stride;
        float score = 0;
#pragma omp simd reduction(+ : score)
        for (int c = 0; c < hs; c++) score += query[c] * float(key[c]);
        scores[j] = score;
        maximum = std::max(maximum, score);
    }
    float total = 0;
    for (int j = 0; j < keys; j++) {
        const T* value = v + j * stride;
        const float p = std::exp(scores[j] - maximum);
        total += p;
#pragma omp simd
        for (int c = 0; c < hs; c++) sums[c] += p * float(value[c]);
    }
    for (int c = 0; c < hs; c++) out[c] = T(sums[c] / total);
}

SIMD_CLONES static void attend_head(float* out, float* scores, const float* q, const float* k, const float* v,
                                    int keys, size_t stride, int hs) {
    attend(out, scores, q, k, v, keys, stride, hs);
}
SIMD_CLONES static void attend_head(bf16* out, float* scores, const bf16* q, const bf16* k, const bf16* v,
                                    int keys, size_t stride, int hs) {
    attend(out, scores, q, k, v, keys, stride, hs);
}
SIMD_CLONES static void attend_head(fp16* out, float* scores, const fp16* q, const fp16* k, const fp16* v,
                                    int keys, size_t stride, int hs) {
    attend(out, scores, q, k, v, keys, stride, hs);
}

template <class T>
void cached_attention_forward_cpu(T* out, const T* qkv, int first, int N, int C, int NH) {
    const int hs = attention_head_size(C, NH);
    const size_t stride = 3 * size_t(C);
#pragma omp parallel
    {
        std::vector<float> scores(size_t(first) + N);
#pragma omp for
        for (int64_t i = 0; i < int64_t(N) * NH; i++) {
            const size_t row = size_t(i / NH), head = size_t(i % NH) * hs;
            attend_head(out + row * C + head, scores.data(), qkv + (first + row) * stride + head,
                        qkv + C + head, qkv + 2 * size_t(C) + head, first + int(row) + 1, stride, hs);
        }
    }
}

template <class T>
static void cached_attention_forward1(LaunchPad& pad, T* out, const T* qkv, int first, int N, int C, int NH,
                                      int block_size) {
    const uint32_t hs = attention_head_size(C, NH);
    const size_t rows = size_t(first) + N;
    const CachedAttentionForwardArgs args = {
        pad.at(out, size_t(N) * C), pad.at(qkv, rows * 3 * C), first, N, C, NH};
    pad.dispatch<T>("cached_attention_forward1", {uint64_t(N) * NH}, {uint32_t(block_size), hs}, args,
                    moves<T>(2.0 * double(rows) * C));
}

template <class T>
std::vector<KernelVersion<CachedAttentionForward<T>>> cached_attention_forward_versions() {
    return {{"cached_attention_forward1",
             "one workgroup per row and head",
             cached_attention_forward1<T>,
             {64, 32, 128}}};
}

template <class T>
void cached_attention_forward(LaunchPad* pad, T* out, const T* qkv, int first, int N, int C, int NH) {
    if (!pad) return cached_attention_forward_cpu(out, qkv, first, N, C, NH);
    cached_attention_forward1(*pad, out, qkv, first, N, C, NH, 64);
}

#define INSTANTIATE(T)                                                                                  \
    template std::vector<KernelVersion<CachedAttentionForward<T>>> cached_attention_forward_versions(); \
    template void cached_attention_forward_cpu(T*, const T*, int, int, int, int);                       \
    template void cached_attention_forward(LaunchPad*, T*, const T*, int, int, int, int);
FOR_EACH_REAL(INSTANTIATE)
