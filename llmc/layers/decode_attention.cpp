// Attention of the newest rows: the CPU version, the GPU version, its table, and the function that generation
// calls.
#include "llmc/layers/decode_attention.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/ceil_div.h"
#include "llmc/cpu/simd.h"
#include "llmc/launchpad/packs.h"
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

template <class Real>
static void decode_attention_cpu(const DecodeAttention<Real>& p) {
    const int hs = attention_head_size(p.C, p.NH);
    const size_t C = p.C;
#pragma omp parallel
    {
        std::vector<float> scores(p.T);
#pragma omp for
        for (int i = 0; i < p.num_texts * p.NH; i++) {
            const size_t text = size_t(i / p.NH), head = size_t(i % p.NH) * hs,
                         at = size_t(p.positions[text]);
            const Real* qkv = p.cache + text * p.T * 3 * C + head;
            const Keys<Real> keys = {.k = qkv + C, .v = qkv + 2 * C, .stride = 3 * C, .count = int(at) + 1};
            simd<attend<Real>>(p.out + text * C + head, scores.data(), qkv + at * 3 * C, keys, hs);
        }
    }
}

template <class Real>
static void decode_attention1(LaunchPad& pad, const DecodeAttention<Real>& p, int block_size) {
    const size_t C = p.C, B = p.num_texts;
    const uint32_t hs = attention_head_size(p.C, p.NH), subgroup = pad.limits().subgroup_size;
    const DecodeAttentionArgs args = {pad.at(p.out, B * C),
                                      pad.at(p.cache, B * p.T * 3 * C),
                                      pad.at(p.positions, B),
                                      p.num_texts,
                                      p.T,
                                      p.C,
                                      p.NH};
    const uint32_t width = wide_pack_width<Real>(hs, {args.outp, args.cache});
    const uint32_t least =
        uint32_t(ceil_div(hs / width, subgroup)) * subgroup;  // an invocation for each pack of a head
    const uint32_t block = std::max(std::min(uint32_t(block_size), pad.limits().max_block), least);
    check_iterations(pad, "decode_attention1", ceil_div(p.T, block) * (ceil_div(hs, width) + 2));
    pad.dispatch<Real>("decode_attention1", {uint64_t(B) * p.NH}, {block, width, hs}, args,
                       memory_traffic<Real>(double(B) * p.T * 2.0 * double(C)));
}

template <class Real>
std::vector<KernelVersion<DecodeAttention<Real>>> decode_attention_versions() {
    return {
        {"decode_attention1", "one workgroup per text and head", decode_attention1<Real>, {256, 64, 512}}};
}

template <class Real>
void decode_attention(LaunchPad* pad, const DecodeAttention<Real>& p) {
    if (!pad) return decode_attention_cpu(p);
    launch<Real>(*pad, p, decode_attention_versions<Real>(), "decode_attention1", 256);
}

#define INSTANTIATE(Real) INSTANTIATE_LAYER(decode_attention, DecodeAttention, Real)
FOR_EACH_REAL(INSTANTIATE)
