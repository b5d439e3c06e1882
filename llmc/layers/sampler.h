// Sampling a token from logits, and the small random number generator that llm.c samples with.
//
// Probabilities are integers: a token's weight is 2^31 exp((logit - maximum) / temperature), rounded down by
// arithmetic that is exact on every device. Sums of integers do not depend on their order, so CPU and GPU
// draw the same token from the same logits.
#pragma once
#include <cstdint>
#include <span>

struct SamplerOptions {
    float temperature = 1.0f;  // 0: always the likeliest token
    int top_k = 0;             // only the k likeliest tokens; 0: all
    float top_p = 1.0f;        // only the fewest likeliest tokens whose probabilities add up to this; 1: all
    float min_p = 0.0f;        // only tokens at least this times as likely as the likeliest; 0: all
};

// A token from softmax(logits (n) / temperature): the first one, in order of token number, whose cumulative
// probability exceeds coin, a random number in [0, 1) of which 24 bits count. Throws Error if a logit is NaN
// or +inf, or all are -inf.
int sample_token(const float* logits, int n, float coin, const SamplerOptions& options = {});

// Makes the tokens of a text less likely to come again, as CTRL does (arXiv 1909.05858): divides positive
// logits by the penalty, and multiplies negative ones. 1: no change.
void penalize_repetitions(float* logits, std::span<const int> tokens, float penalty);

// llm.c's xorshift64*. state must not be 0; llm.c starts with 1337. random_f32 is in [0, 1) and has 24 bits.
uint32_t random_u32(uint64_t& state);
float random_f32(uint64_t& state);
