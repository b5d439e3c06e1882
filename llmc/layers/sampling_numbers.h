// The integers that sampling computes with: shaders/sample_token1.comp has the same functions.
#pragma once
#include <algorithm>
#include <cmath>

#include "llmc/layers/sampler.h"

// SamplerOptions as the numbers that weights are compared with and multiplied by.
struct SamplingNumbers {
    float scale;               // log2(e) / temperature; 0: the likeliest token
    uint32_t top_k = 0;        // 0: all
    uint32_t top_p = 1 << 24;  // times 2^-24
    uint32_t min_weight = 0;   // lower weights become 0

    explicit SamplingNumbers(const SamplerOptions& options)
        : scale(options.temperature > 0 ? std::clamp(1.44269504f / options.temperature, 1e-30f, 1e30f) : 0),
          top_k(uint32_t(options.top_k)),
          top_p(uint32_t(std::lround(double(options.top_p) * (1 << 24)))),
          min_weight(uint32_t(std::ceil(double(options.min_p) * 2147483648.0))) {}
};

// 2^31 2^(-below * scale), rounded down; below >= 0 is how far a logit lies below the largest. The fraction's
// power is a Taylor polynomial of eighth order, whose error is below 2e-7.
inline uint32_t sampling_weight(float below, float scale) {
    const float octaves = below * scale;
    if (!(octaves < 32)) return 0;
    const uint32_t fixed = uint32_t(octaves * 67108864.0f), fraction = fixed << 6;  // 2^26
    auto times_fraction = [=](uint32_t v) { return uint32_t(uint64_t(v) * fraction >> 32); };
    // 2^31 ln(2)^k / k!
    const uint32_t coefficients[] = {2838u,      32755u,     330788u,     2863360u,   20654775u,
                                     119194166u, 515882496u, 1488522236u, 2147483648u};
    uint32_t power = 0;
    for (uint32_t c : coefficients) power = c - times_fraction(power);
    return power >> (fixed >> 26);
}

// sum * factor / 2^24, rounded down or up; sum < 2^63 - 2^24, factor <= 2^24.
inline uint64_t scaled_down(uint64_t sum, uint32_t factor) {
    return (sum >> 24) * factor + ((sum & 0xffffff) * factor >> 24);
}
inline uint64_t scaled_up(uint64_t sum, uint32_t factor) {
    return (sum >> 24) * factor + (((sum & 0xffffff) * factor + 0xffffff) >> 24);
}
