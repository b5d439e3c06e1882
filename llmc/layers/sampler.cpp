#include "llmc/layers/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/layers/sampling_numbers.h"

// The largest of logits (n). Throws Error if their softmax is undefined.
static float checked_maximum(const float* logits, int n) {
    float maximum = -INFINITY;
    for (int i = 0; i < n; i++) {
        if (std::isnan(logits[i])) fail("cannot sample: the logit of token %d is not a number", i);
        maximum = std::max(maximum, logits[i]);
    }
    if (!std::isfinite(maximum)) fail("cannot sample: the largest of %d logits is %f", n, maximum);
    return maximum;
}

// Zeroes the weights of the tokens that top_k and top_p exclude; the lower token wins a tie. Sorts at most
// about twice as many tokens as it keeps, which are few of a vocabulary of 50,000.
static void keep_likeliest(std::vector<uint32_t>& weights, const SamplingNumbers& numbers) {
    const size_t n = weights.size(), most = numbers.top_k > 0 ? std::min(n, size_t(numbers.top_k)) : n;
    std::vector<int> order(n);
    std::iota(order.begin(), order.end(), 0);
    auto likelier = [&](int a, int b) { return weights[a] != weights[b] ? weights[a] > weights[b] : a < b; };
    if (most < n) std::nth_element(order.begin(), order.begin() + most, order.end(), likelier);
    uint64_t sum = 0, enough = 0;
    for (size_t i = 0; i < most; i++) sum += weights[order[i]];
    const uint64_t target = scaled_up(sum, numbers.top_p);
    size_t keep = numbers.top_p < 1 << 24 ? 0 : most;
    for (size_t sorted = 0; keep < most && (keep == 0 || enough < target); keep++) {
        if (keep == sorted) {
            const size_t next = std::min(most, 2 * sorted + 256);
            std::partial_sort(order.begin() + sorted, order.begin() + next, order.begin() + most, likelier);
            sorted = next;
        }
        enough += weights[order[keep]];
    }
    for (size_t i = keep; i < n; i++) weights[order[i]] = 0;
}

int sample_token(const float* logits, int n, float coin, const SamplerOptions& options) {
    const float maximum = checked_maximum(logits, n);
    if (options.temperature <= 0) return int(std::find(logits, logits + n, maximum) - logits);
    const SamplingNumbers numbers(options);
    std::vector<uint32_t> weights(n);
    for (int i = 0; i < n; i++) weights[i] = sampling_weight(maximum - logits[i], numbers.scale);
    if (numbers.top_k > 0 || numbers.top_p < 1 << 24) keep_likeliest(weights, numbers);
    for (uint32_t& weight : weights)
        if (weight < numbers.min_weight) weight = 0;

    const uint64_t total = std::accumulate(weights.begin(), weights.end(), uint64_t(0));
    const uint64_t threshold = scaled_down(total, uint32_t(coin * 0x1p24f));  // below total
    uint64_t sum = 0;
    int token = 0;
    while ((sum += weights[token]) <= threshold) token++;
    return token;
}

void penalize_repetitions(float* logits, std::span<const int> tokens, float penalty) {
    if (penalty == 1) return;
    const float reciprocal = 1 / penalty;
    for (int token : std::set<int>(tokens.begin(), tokens.end()))
        logits[token] *= logits[token] > 0 ? reciprocal : penalty;
}

uint32_t random_u32(uint64_t& state) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return uint32_t((state * 0x2545f4914f6cdd1d) >> 32);
}

float random_f32(uint64_t& state) { return float(random_u32(state) >> 8) * 0x1p-24f; }
