// The storage types of parameters, activations and gradients: float, bf16 and fp16. The 16-bit types only
// store bits: arithmetic uses float. Layers are templates on the storage type, Real.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

// bfloat16, the upper half of a float: 8 bits of exponent, 8 significant bits.
struct bf16 {
    uint16_t bits;
    bf16() = default;
    explicit bf16(float v) {  // to nearest, ties to even; NaN stays NaN
        const uint32_t u = std::bit_cast<uint32_t>(v);
        // Selects before it narrows: vectors of 32 bits are then packed only once.
        const uint32_t rounded = v != v ? u | 0x400000u : u + 0x7fffu + ((u >> 16) & 1u);
        bits = uint16_t(rounded >> 16);
    }
    operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
};

// IEEE 754 half precision: 5 bits of exponent, 11 significant bits. The largest value is 65504.
struct fp16 {
    uint16_t bits;
    fp16() = default;
    explicit fp16(float v) {  // to nearest, ties to even; overflows to infinity
        const uint32_t u = std::bit_cast<uint32_t>(v), sign = (u >> 16) & 0x8000u,
                       magnitude = u & 0x7fffffffu;
        // below 2^-14: adding 1/2 leaves multiples of 2^-24, the spacing of subnormals, in the low bits
        const float half_added = std::bit_cast<float>(magnitude) + 0.5f;
        const uint32_t small = std::bit_cast<uint32_t>(half_added) - 0x3f000000u;
        const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
        const uint32_t large = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
        const uint32_t rounded = magnitude < 0x38800000u ? small : magnitude < 0x47800000u ? normal : large;
        bits = uint16_t(sign | rounded);
    }
    operator float() const {
        const uint32_t sign = uint32_t(bits & 0x8000u) << 16, exponent_max = (bits & 0x7c00u) == 0x7c00u;
        const float scaled = std::bit_cast<float>(uint32_t(bits & 0x7fffu) << 13) * 0x1p112f;
        const uint32_t u = std::bit_cast<uint32_t>(scaled) | (exponent_max ? 0x7f800000u : 0u);
        return std::bit_cast<float>(u | sign);
    }
};

static_assert(sizeof(bf16) == 2 && sizeof(fp16) == 2);

// Real(v) for loops under "omp simd": GCC does not vectorize loops that construct a Real directly.
template <class Real>
Real round_to(float v) {
    return Real(v);
}

// Stochastic rounding: rounds v to one of its two neighbours in Real, so that the mean over all values of
// `random` is v (in fp16 down to 2^-32; smaller values become 0). Many small changes then add up, while
// rounding to nearest would drop each of them. Values that Real represents, infinities and NaN do not change.
// The shaders' version is bit-identical: adamw.glsl.
template <class Real>
Real round_randomly(float v, uint32_t random);
template <>
inline float round_randomly<float>(float v, uint32_t) {
    return v;
}
template <>
inline bf16 round_randomly<bf16>(float v, uint32_t random) {
    const uint32_t u = std::bit_cast<uint32_t>(v);
    const uint32_t special = v != v ? u | 0x400000u : u;  // infinities, and NaN made quiet
    const uint32_t rounded = (u & 0x7f800000u) == 0x7f800000u ? special : u + (random & 0xffffu);
    bf16 result;
    result.bits = uint16_t(rounded >> 16);
    return result;
}
template <>
inline fp16 round_randomly<fp16>(float v, uint32_t random) {
    const uint32_t u = std::bit_cast<uint32_t>(v), exponent = (u >> 23) & 0xffu;
    // Drops 13 bits, or more if the result is subnormal. The leading bit of `digits` adds 1 to the exponent
    // of a normal result, so `above` is one less.
    const uint32_t cut = exponent < 113 ? 126 - exponent : 13, above = exponent < 113 ? 0 : exponent - 113;
    const uint32_t digits = (u & 0x7fffffu) | 0x800000u, shift = cut < 31 ? cut : 31;
    const uint32_t kept = (digits + (random & ((1u << shift) - 1))) >> shift;
    const uint32_t rounded = ((u >> 16) & 0x8000u) | (cut < 32 ? (above << 10) + kept : 0);
    const fp16 nearest(v);
    fp16 result;
    result.bits = exponent < 143 ? uint16_t(rounded) : nearest.bits;
    return result;
}

// The type's name, as --precision takes it. It is also the suffix of the kernels built for the type.
template <class Real>
constexpr const char* real_name() {
    static_assert(std::is_same_v<Real, float> || std::is_same_v<Real, bf16> || std::is_same_v<Real, fp16>);
    return std::is_same_v<Real, float> ? "fp32" : std::is_same_v<Real, bf16> ? "bf16" : "fp16";
}

// Expands INSTANTIATE, a layer's list of explicit instantiations, for each storage type.
#define FOR_EACH_REAL(INSTANTIATE) INSTANTIATE(float) INSTANTIATE(bf16) INSTANTIATE(fp16)
