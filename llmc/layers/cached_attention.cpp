// Attention of the newest rows: the CPU version, the GPU version, its table, and the function that generation
// calls.
#include "llmc/layers/cached_attention.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/ceil_div.h"
#include "llmc/cpu/simd.h"
#include "llmc/layers/attention.h"
#include "shaders/args.h"

// The rows of one head that its query attends to.
template <class Real>
struct Keys {
    const Real *k, *v;  // of the first row, (hs) each
    size_t stride;      // elements from one row to the next
    int count;
};

// out (hs) of one head of one row with query q (hs). scores (keys.count) is scratch.
template <class Real>
static SIMD_INLINE void attend(Real* out, float* scores, const Real* q, const Keys<Real>& keys, int hs) {
    float query[128], accumulators[128] = {};
    const float scale = 1.0f / std::sqrt(float(hs));
    for (int c = 0; c < hs; c++) query[c] = float(q[c]) * scale;
    float maximum = -INFINITY;
    for (int j = 0; j < keys.count; j++) {
        const Real* key = keys.k + j * keys.stride;
        float score = 0;
#pragma omp simd reduction(+ : score)
        for (int c = 0; c < hs; c++) score += query[c] * float(key[c]);
        scores[j] = score;
        maximum = std::max(maximum, score);
    }
    float total = 0;
    for (int j = 0; j < keys.count; j++) {
        const Real* value = keys.v + j * keys.stride;
        const float p = std::exp(scores[j] - maximum);
        total += p;
#pragma omp simd
        for (int c = 0; c < hs; c++) accumulators[c] += p * float(value[c]);
    }
    for (int c = 0; c < hs; c++) out[c] = Real(accumulators[c] / total);
}

SIMD_CLONES static void attend_head(float* out, float* scores, const float* q, const Keys<float>& keys,
                                    int hs) {
    attend(out, scores, q, keys, hs);
}
SIMD_CLONES static void attend_head(bf16* out, float* scores, const bf16* q, const Keys<bf16>& keys, int hs) {
    attend(out, scores, q, keys, hs);
}
SIMD_CLONES static void attend_head(fp16* out, float* scores, const fp16* q, const Keys<fp16>& keys, int hs) {
    attend(out, scores, q, keys, hs);
}

template <class Real>
void cached_attention_forward_cpu(const CachedAttentionForward<Real>& p) {
    const int hs = attention_head_size(p.C, p.NH);
    const size_t C = p.C, stride = 3 * C;
#pragma omp parallel
    {
        std::vector<float> scores(size_t(p.first) + p.num_rows);
#pragma omp for
        for (int64_t i = 0; i < int64_t(p.num_rows) * p.NH; i++) {
            const size_t row = size_t(i / p.NH), head = size_t(i % p.NH) * hs;
            const Keys<Real> keys = {.k = p.qkv + C + head,
                                     .v = p.qkv + 2 * C + head,
                                     .stride = stride,
                                     .count = p.first + int(row) + 1};
            attend_head(p.out + row * C + head, scores.data(), p.qkv + (p.first + row) * stride + head, keys,
                        hs);
        }
    }
}

template <class Real>
static void cached_attention_forward1(LaunchPad& pad, const CachedAttentionForward<Real>& p, int block_size) {
    const uint32_t hs = attention_head_size(p.C, p.NH);
    const size_t all_rows = size_t(p.first) + p.num_rows;
    const CachedAttentionForwardArgs args = {pad.at(p.out, size_t(p.num_rows) * p.C),
                                             pad.at(p.qkv, all_rows * 3 * p.C),
                                             p.first,
                                             p.num_rows,
                                             p.C,
                                             p.NH};
    check_iterations(pad, "cached_attention_forward1", ceil_div(all_rows, block_size) * (hs + 2));
    pad.dispatch<Real>("cached_attention_forward1", {uint64_t(p.num_rows) * p.NH}, {uint32_t(block_size), hs},
                       args, memory_traffic<Real>(2.0 * double(all_rows) * p.C));
}

template <class Real>
std::vector<KernelVersion<CachedAttentionForward<Real>>> cached_attention_forward_versions() {
    return {{"cached_attention_forward1",
             "one workgroup per row and head",
             cached_attention_forward1<Real>,
             {64, 32, 128}}};
}

template <class Real>
void cached_attention_forward(LaunchPad* pad, const CachedAttentionForward<Real>& p) {
    if (!pad) return cached_attention_forward_cpu(p);
    cached_attention_forward1(*pad, p, 64);
}

#define INSTANTIATE(Real)                                                                                  \
    template std::vector<KernelVersion<CachedAttentionForward<Real>>> cached_attention_forward_versions(); \
    template void cached_attention_forward_cpu(const CachedAttentionForward<Real>&);                       \
    template void cached_attention_forward(LaunchPad*, const CachedAttentionForward<Real>&);
FOR_EACH_REAL(INSTANTIATE)
