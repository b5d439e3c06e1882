// Drawing a token from logits, and the small generator of coins that llm.c's sampling uses.
#pragma once
#include <cstdint>

struct SamplerOptions {
    float temperature = 1.0f;  // 0: always the likeliest token
    int top_k = 0;             // keep only the k likeliest tokens; 0: all
    float top_p = 1.0f;        // keep the fewest likeliest tokens whose probabilities add up to this; 1: all
};

// A token drawn from softmax(logits (n) / temperature), for coin in [0, 1): the first token, in order of
// number, at which the cumulative probability exceeds the coin. Error if a logit is NaN or +inf, or all are
// -inf.
int sample_token(const float* logits, int n, float coin, const SamplerOptions& options = {});

// xorshift64*, as llm.c: state must not be 0. random_f32 is in [0, 1), 24 bits. llm.c samples with state
// 1337.
uint32_t random_u32(uint64_t& state);
float random_f32(uint64_t& state);
