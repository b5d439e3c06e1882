// Sampling: the token for each random number, huge logits, temperature, top-k and top-p; the random numbers.
#include "llmc/layers/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/layers/sampling_numbers.h"

static int sample(const std::vector<float>& logits, float coin, const SamplerOptions& options = {}) {
    return sample_token(logits.data(), int(logits.size()), coin, options);
}

TEST(SamplingNumbers, SumsAreScaledDownOrUp) {
    const uint32_t half = 1 << 23, one = 1 << 24;
    for (const uint64_t sum : {uint64_t(0), uint64_t(1), uint64_t(0xffffff), uint64_t(1) << 40}) {
        EXPECT_EQ(scaled_down(sum, one), sum);
        EXPECT_EQ(scaled_up(sum, one), sum);
        EXPECT_EQ(scaled_down(sum, half), sum / 2);
        EXPECT_EQ(scaled_up(sum, half), (sum + 1) / 2);
    }
    EXPECT_EQ(scaled_down(1, 1), 0u);
    EXPECT_EQ(scaled_up(1, 1), 1u);
    EXPECT_EQ(scaled_up((uint64_t(5) << 24) + 1, 3), 16u);
}

TEST(Sampler, FollowsTheCumulativeProbability) {
    std::vector<float> logits = {std::log(0.1f), std::log(0.2f), std::log(0.3f), std::log(0.4f)};
    EXPECT_EQ(sample(logits, 0.0f), 0);
    EXPECT_EQ(sample(logits, 0.0999f), 0);
    EXPECT_EQ(sample(logits, 0.1001f), 1);
    EXPECT_EQ(sample(logits, 0.2999f), 1);
    EXPECT_EQ(sample(logits, 0.5999f), 2);
    EXPECT_EQ(sample(logits, 0.6001f), 3);
    EXPECT_EQ(sample(logits, 0.99999994f), 3);
    EXPECT_EQ(sample({0.0f, 0.0f}, 0.5f), 1);  // at the boundary: an interval has no upper end
}

TEST(Sampler, HugeAndTinyLogits) {
    for (float shift : {-3e38f, -1000.0f, 100.0f, 3e38f}) {
        EXPECT_EQ(sample({shift, shift}, 0.25f), 0) << shift;
        EXPECT_EQ(sample({shift, shift}, 0.75f), 1) << shift;
    }
    EXPECT_EQ(sample({-3e38f, 3e38f}, 0.0f), 1);
    EXPECT_EQ(sample({-INFINITY, 1.0f, -INFINITY}, 0.0f), 1);
    EXPECT_EQ(sample({-INFINITY, 1.0f, -INFINITY}, 0.99999994f), 1);
}

TEST(Sampler, RefusesUndefinedSoftmax) {
    EXPECT_THROW(sample({0.0f, NAN}, 0.5f), Error);
    EXPECT_THROW(sample({0.0f, INFINITY}, 0.5f), Error);
    EXPECT_THROW(sample({-INFINITY, -INFINITY}, 0.5f), Error);
    EXPECT_THROW(sample({}, 0.5f), Error);
}

// Compares the tokens drawn with many random numbers to the tokens that sorting the whole vocabulary keeps.
TEST(Sampler, KeepsTheLikeliestOfALargeVocabulary) {
    const int n = 600;
    uint64_t state = 7;
    std::vector<float> logits(n);
    for (float& logit : logits) logit = std::floor(random_f32(state) * 40) / 10;  // many are equal
    std::vector<int> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
    for (const auto& [top_k, top_p] :
         {std::pair{0, 0.1f}, {0, 0.9f}, {0, 0.999f}, {300, 1.0f}, {300, 0.5f}, {5, 0.9f}}) {
        double sum = 0, enough = 0;
        const int most = top_k ? top_k : n;
        for (int i = 0; i < most; i++) sum += std::exp(double(logits[order[i]]));
        std::set<int> kept, drawn;
        for (int i = 0; i < most && enough < top_p * sum; i++) {
            kept.insert(order[i]);
            enough += std::exp(double(logits[order[i]]));
        }
        for (int coin = 0; coin < 1 << 12; coin++)
            drawn.insert(sample(logits, float(coin) / (1 << 12), {1.0f, top_k, top_p}));
        EXPECT_TRUE(std::includes(kept.begin(), kept.end(), drawn.begin(), drawn.end()))
            << top_k << " " << top_p;
        EXPECT_GE(drawn.size(), kept.size() * 2 / 3) << top_k << " " << top_p;
    }
}

TEST(Sampler, Options) {
    std::vector<float> logits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
    for (float coin : {0.0f, 0.5f, 0.999f}) {
        EXPECT_EQ(sample(logits, coin, {0.0f, 0, 1.0f}), 1);
        EXPECT_EQ(sample(logits, coin, {1.0f, 1, 1.0f}), 1);
        EXPECT_EQ(sample(logits, coin, {1.0f, 0, 0.3f}), 1);
        EXPECT_EQ(sample(logits, coin, {1.0f, 0, 0.0f}), 1);
    }
    EXPECT_EQ(sample(logits, 0.0f, {1.0f, 2, 1.0f}), 1);  // 1 and 3 remain, 4 : 3
    EXPECT_EQ(sample(logits, 0.57f, {1.0f, 2, 1.0f}), 1);
    EXPECT_EQ(sample(logits, 0.58f, {1.0f, 2, 1.0f}), 3);
    EXPECT_EQ(sample(logits, 0.57f, {1.0f, 0, 0.69f}), 1);  // the same two reach 0.7
    EXPECT_EQ(sample(logits, 0.58f, {1.0f, 0, 0.69f}), 3);
    EXPECT_EQ(sample(logits, 0.999f, {1.0f, 99, 1.0f}), 3);
    EXPECT_EQ(sample(logits, 0.03f, {1e-3f, 0, 1.0f}), 1);  // nearly greedy
    EXPECT_EQ(sample(logits, 0.24f, {1e9f, 0, 1.0f}), 0);   // nearly uniform
    EXPECT_EQ(sample(logits, 0.76f, {1e9f, 0, 1.0f}), 3);
}

// Equal tokens whose probabilities add up to exactly top-p: no further one is kept, and the lower ones win.
TEST(Sampler, TopPIsReachedExactly) {
    const std::vector<float> equal(4, 0.0f);
    for (const auto& [top_p, last] : {std::pair{0.25f, 0}, {0.5f, 1}, {0.75f, 2}, {0.76f, 3}}) {
        EXPECT_EQ(sample(equal, 0.0f, {1.0f, 0, top_p}), 0) << top_p;
        EXPECT_EQ(sample(equal, 0.999f, {1.0f, 0, top_p}), last) << top_p;
    }
}

TEST(Sampler, MinPIsRelativeToTheLikeliest) {
    const std::vector<float> logits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
    for (const auto& [min_p, first, last] :
         {std::tuple{0.0f, 0, 3}, {0.24f, 0, 3}, {0.26f, 1, 3}, {0.6f, 1, 3}, {0.76f, 1, 1}, {1.0f, 1, 1}}) {
        EXPECT_EQ(sample(logits, 0.0f, {1.0f, 0, 1.0f, min_p}), first) << min_p;
        EXPECT_EQ(sample(logits, 0.999f, {1.0f, 0, 1.0f, min_p}), last) << min_p;
    }
    EXPECT_EQ(sample(logits, 0.5f, {1.0f, 0, 1.0f, 0.51f}), 1);  // 1 and 3 remain, 4 : 3
    EXPECT_EQ(sample(logits, 0.58f, {1.0f, 0, 1.0f, 0.51f}), 3);
}

TEST(Sampler, RepetitionPenalty) {
    std::vector<float> logits = {3.0f, -3.0f, 0.0f, 2.0f};
    const std::vector<int> tokens = {0, 1, 0, 2};
    penalize_repetitions(logits.data(), tokens, 1.0f);
    EXPECT_EQ(logits, (std::vector<float>{3.0f, -3.0f, 0.0f, 2.0f}));
    penalize_repetitions(logits.data(), tokens, 1.5f);  // each token once
    EXPECT_EQ(logits, (std::vector<float>{2.0f, -4.5f, 0.0f, 2.0f}));
}

TEST(Sampler, RandomNumbers) {
    uint64_t state = 1337;  // from an xorshift64* in Python with the same state
    EXPECT_EQ(random_u32(state), 989205090u);
    EXPECT_EQ(random_u32(state), 818269915u);
    double sum = 0;
    for (int i = 0; i < 100000; i++) {
        float coin = random_f32(state);
        ASSERT_TRUE(coin >= 0 && coin < 1);
        sum += coin;
    }
    EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}
