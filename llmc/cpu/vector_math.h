// The exponential and the logarithm of the CPU versions, and their scaled stores. The functions are plain
// expressions, so loops around them vectorize; loops around std::exp do not with every compiler.
#pragma once
#include <bit>
#include <cstdint>

#include "llmc/base/real.h"
#include "llmc/cpu/simd.h"

// to (n) = from * factor, rounded. Inline, so that it is compiled for the instruction set of the caller.
template <class Real>
SIMD_INLINE void store_scaled(Real* to, const float* from, int n, float factor) {
#pragma omp simd
    for (int i = 0; i < n; i++) to[i] = round_to<Real>(from[i] * factor);
}

// p = 2^r for |r| <= 1/2, a minimax polynomial; for a float or a vector of floats.
template <class Value>
SIMD_INLINE void exp2_polynomial(const Value& r, Value& p) {
    const Value rr = r * r;
    p = 1.53458120e-4f * rr + (1.33999312e-3f * r + 9.61848896e-3f);
    p = p * rr + (5.55032878e-2f * r + 0.240226469f);
    p = p * rr + (0.693147206f * r + 1.0f);
}

// 2^x for x < 127, within 2 units in the last place. Below -126, where the result would not be a normal
// float, it returns 0. NaN gives NaN. Computes 2^n 2^r with n = round(x).
SIMD_INLINE float exp2_fast(float x) {
    const float shifted = x + 12582912.0f;  // 1.5 * 2^23: the low bits of `shifted` hold n
    float p;
    exp2_polynomial(x - (shifted - 12582912.0f), p);
    const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + 0x3f800000u);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(p * power) & -uint32_t(!(x < -126.0f)));
}

// log(x) for normal x > 0, within 2 units in the last place. NaN and infinity give NaN. Computes n log 2 +
// log m with m from sqrt(1/2) to sqrt(2), and log m as the series of 2 atanh(s), s = (m - 1) / (m + 1).
SIMD_INLINE float log_fast(float x) {
    const uint32_t sqrt_half = 0x3f3504f3u, above = std::bit_cast<uint32_t>(x) - sqrt_half;
    const float n = float(int32_t(above) >> 23);
    const float m = std::bit_cast<float>((above & 0x7fffffu) + sqrt_half);
    const float s = (m - 1.0f) / (m + 1.0f), z = s * s;
    const float series = z * (1.0f / 3 + z * (1.0f / 5 + z * (1.0f / 7 + z * (1.0f / 9))));
    return n * 0.693147181f + (2.0f * s + 2.0f * s * series) + (x - x);
}

// x = exp2_fast(x) for a vector of floats, with the same results. It does not return the vector, because how
// functions return wide vectors depends on the instruction set.
template <class Vector>
SIMD_INLINE void exp2_fast_vector(Vector& x) {
    typedef uint32_t Bits __attribute__((vector_size(sizeof(Vector))));
    const Vector shifted = x + 12582912.0f;
    const Vector r = x - (shifted - 12582912.0f);
    Vector p;
    exp2_polynomial(r, p);
    const Vector power = (Vector)(((Bits)shifted << 23) + 0x3f800000);
    x = (Vector)((Bits)(p * power) & ~(Bits)(x < -126.0f));
}
