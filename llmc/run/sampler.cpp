// Subtracts the maximum before exp, so that no logit is too large.
#include "llmc/run/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "llmc/base/error.h"

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
static void keep_likeliest(std::vector<double>& weights, const SamplerOptions& options) {
    const size_t n = weights.size(), most = options.top_k > 0 ? std::min(n, size_t(options.top_k)) : n;
    std::vector<int> order(n);
    std::iota(order.begin(), order.end(), 0);
    auto likelier = [&](int a, int b) { return weights[a] != weights[b] ? weights[a] > weights[b] : a < b; };
    if (most < n) std::nth_element(order.begin(), order.begin() + most, order.end(), likelier);
    double sum = 0, enough = 0;
    for (size_t i = 0; i < most; i++) sum += weights[order[i]];
    size_t keep = options.top_p < 1 ? 0 : most;
    for (size_t sorted = 0; keep < most && (keep == 0 || enough < options.top_p * sum); keep++) {
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
    float maximum = checked_maximum(logits, n);
    if (options.temperature <= 0) return int(std::find(logits, logits + n, maximum) - logits);
    std::vector<double> weights(n);
    for (int i = 0; i < n; i++) weights[i] = std::exp(double(logits[i] - maximum) / options.temperature);
    if (options.top_k > 0 || options.top_p < 1) keep_likeliest(weights, options);
    for (double& weight : weights)
        if (weight < options.min_p) weight = 0;  // the likeliest token's weight is 1

    double threshold = coin * std::accumulate(weights.begin(), weights.end(), 0.0), sum = 0;
    int last = 0;  // taken if rounding leaves the threshold at the sum of all weights
    for (int i = 0; i < n; i++) {
        if (weights[i] == 0) continue;
        sum += weights[i];
        last = i;
        if (threshold < sum) return i;
    }
    return last;
}

void penalize_repetitions(float* logits, std::span<const int> tokens, float penalty) {
    if (penalty == 1) return;
    for (int token : std::set<int>(tokens.begin(), tokens.end()))
        logits[token] = logits[token] > 0 ? logits[token] / penalty : logits[token] * penalty;
}

uint32_t random_u32(uint64_t& state) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return uint32_t((state * 0x2545f4914f6cdd1d) >> 32);
}

float random_f32(uint64_t& state) { return float(random_u32(state) >> 8) * 0x1p-24f; }
