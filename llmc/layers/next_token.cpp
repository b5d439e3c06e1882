#include "llmc/layers/next_token.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "llmc/base/ceil_div.h"
#include "llmc/layers/sampling_numbers.h"
#include "shaders/args.h"

template <class Real>
static void next_token_cpu(const NextToken<Real>& p) {
    const size_t V = p.V, C = p.C, words = seen_words(p.V);
    for (int b = 0; b < p.num_texts; b++) {
        const Real* stored = p.logits + size_t(b) * p.Vp;
        std::vector<float> logits(stored, stored + V);
        int* seen = p.seen + b * words;
        std::vector<int> tokens;
        for (int i = 0; i < p.V && p.penalty != 1; i++)
            if (seen[i / 32] >> i % 32 & 1) tokens.push_back(i);
        penalize_repetitions(logits.data(), tokens, p.penalty);
        const int token = sample_token(logits.data(), p.V, random_f32(p.random_states[b]), p.options);
        const int position = ++p.positions[b];
        p.tokens[size_t(b) * (p.T + 1) + position] = token;
        seen[token / 32] |= int(1u << token % 32);
        for (size_t c = 0; c < C && position < p.T; c++)
            p.stream[b * C + c] = float(p.wte[token * C + c]) + float(p.wpe[position * C + c]);
    }
}

template <class Real>
static void sample_token1(LaunchPad& pad, const NextToken<Real>& p, int block_size) {
    const size_t B = p.num_texts, V = p.V, Vp = p.Vp, C = p.C, T = p.T;
    const SamplingNumbers numbers(p.options);
    const SampleTokenArgs args = {pad.at(p.logits, B * Vp),
                                  pad.at(p.tokens, B * (T + 1)),
                                  pad.at(p.positions, B),
                                  p.penalty == 1 ? 0 : pad.at(p.seen, B * seen_words(p.V)),
                                  pad.at(p.weights, B * V),
                                  pad.at(p.random_states, B),
                                  pad.at(p.stream, B * C),
                                  pad.at(p.wte, Vp * C),
                                  pad.at(p.wpe, T * C),
                                  p.num_texts,
                                  p.V,
                                  p.Vp,
                                  p.C,
                                  p.T,
                                  numbers.scale,
                                  p.penalty,
                                  1 / p.penalty,
                                  numbers.top_k,
                                  numbers.top_p,
                                  numbers.min_weight};
    const uint32_t block = uint32_t(block_size);
    const uint64_t passes = 2 * 32 + 8;  // over the vocabulary: one for each bit of the cut and of the target
    check_iterations(pad, "sample_token1", ceil_div(V, block) * passes);
    pad.dispatch<Real>("sample_token1", {B}, {block}, args, memory_traffic<Real>(double(B) * double(V)));
}

template <class Real>
std::vector<KernelVersion<NextToken<Real>>> next_token_versions() {
    return {{"sample_token1", "one workgroup per text", sample_token1<Real>, {256}}};
}

template <class Real>
void next_token(LaunchPad* pad, const NextToken<Real>& p) {
    if (!pad) return next_token_cpu(p);
    const uint32_t subgroup = pad->limits().subgroup_size, most_subgroups = 256;  // as in the shader
    const uint32_t block =
        std::max(subgroup, std::min({pad->limits().max_block, 1024u, most_subgroups * subgroup,
                                     std::bit_ceil(uint32_t(p.V) / 8)}));
    launch<Real>(*pad, p, next_token_versions<Real>(), "sample_token1", int(block));
}

#define INSTANTIATE(Real) INSTANTIATE_LAYER(next_token, NextToken, Real)
FOR_EACH_REAL(INSTANTIATE)
