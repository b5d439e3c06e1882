// Tokens for benchmarks of layers whose speed depends on how often each token occurs.
#pragma once
#include <cmath>
#include <random>
#include <vector>

// Tokens distributed like words: the frequency of token k is about proportional to 1 / (k + 3).
inline std::vector<int> word_like_tokens(size_t count, int V) {
    std::mt19937 generator(1);
    std::uniform_real_distribution<double> uniform(0, 1);
    std::vector<int> tokens(count);
    for (int& t : tokens) t = int(3 * std::pow((V + 3) / 3.0, uniform(generator)) - 3);
    return tokens;
}
