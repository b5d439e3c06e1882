// The exponential function of the CPU versions. It is a plain expression, so loops around it vectorize; loops
// around std::exp do not with every compiler.
#pragma once
#include <bit>
#include <cstdint>

// exp(x) for x < 88, within 2 units in the last place. Below -87, where the result approaches the smallest
// normal float, it returns 0. NaN gives NaN. Computes 2^n exp(r) with n = round(x / log 2) and
// |r| <= log(2) / 2, using the polynomial of Cephes' expf.
inline float exp_fast(float x) {
    const float shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the low bits of `shifted` hold n
    const float n = shifted - 12582912.0f;
    // log 2 in two parts; the first multiplication is exact
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + 0x3f800000u);
    const uint32_t keep = -uint32_t(!(x < -87.0f));  // all ones or zero; a branch would prevent vectorization
    return std::bit_cast<float>(std::bit_cast<uint32_t>(p * power) & keep);
}
