// The storage types of parameters, activations and gradients: float, bf16 and fp16. The 16-bit ones hold bits
// alone; arithmetic is done in float. Layers are templates on the storage type.
#pragma once
#include <bit>
#include <cstdint>

// The upper half of a float: its exponent, and 8 significant bits.
struct bf16 {
    uint16_t bits;
    bf16() = default;
    explicit bf16(float v) {  // to nearest, ties to even; a NaN stays one
        const uint32_t u = std::bit_cast<uint32_t>(v);
        const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
        bits = uint16_t(nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
    operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
};

// IEEE 754 half precision: 5 bits of exponent, 11 significant bits; 65504 at most.
struct fp16 {
    uint16_t bits;
    fp16() = default;
    explicit fp16(float v) {  // to nearest, ties to even; too large becomes infinite
        const uint32_t u = std::bit_cast<uint32_t>(v), sign = (u >> 16) & 0x8000u,
                       magnitude = u & 0x7fffffffu;
        // below 2^-14: adding 1/2 leaves multiples of 2^-24, the subnormals' unit, in the last bits
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

// T(v) for loops under "omp simd": GCC does not vectorize those that construct a T themselves.
template <class T>
T round_to(float v) {
    return T(v);
}

// v rounded to one of its two neighbours in T, so that the mean over all values of `random` is v (fp16: down
// to 2^-32, what is smaller becomes 0): many small changes add up, where rounding to nearest would drop each.
// What T represents stays, as do infinities and NaN. Shaders have the same function, bit for bit: adamw.glsl.
template <class T>
T round_randomly(float v, uint32_t random);
template <>
inline float round_randomly<float>(float v, uint32_t) {
    return v;
}
template <>
inline bf16 round_randomly<bf16>(float v, uint32_t random) {
    const uint32_t u = std::bit_cast<uint32_t>(v), rounded = (u + (random & 0xffffu)) >> 16;
    const bf16 nearest(v);
    bf16 result;
    result.bits = (u & 0x7f800000u) == 0x7f800000u ? nearest.bits : uint16_t(rounded);
    return result;
}
template <>
inline fp16 round_randomly<fp16>(float v, uint32_t random) {
    const uint32_t u = std::bit_cast<uint32_t>(v), exponent = (u >> 23) & 0xffu;
    // 13 bits are cut off, more from what is subnormal in fp16; the first one may carry into the exponent
    const uint32_t cut = exponent < 113 ? 126 - exponent : 13, above = exponent < 113 ? 0 : exponent - 113;
    const uint32_t digits = (u & 0x7fffffu) | 0x800000u, shift = cut < 31 ? cut : 31;
    const uint32_t kept = (digits + (random & ((1u << shift) - 1))) >> shift;
    const uint32_t rounded = ((u >> 16) & 0x8000u) | (cut < 32 ? (above << 10) + kept : 0);
    const fp16 nearest(v);
    fp16 result;
    result.bits = exponent < 143 ? uint16_t(rounded) : nearest.bits;
    return result;
}

// Its name, as --precision takes it; also what the names of kernels that are built for it end on.
template <class T>
constexpr const char* real_name();
template <>
constexpr const char* real_name<float>() {
    return "fp32";
}
template <>
constexpr const char* real_name<bf16>() {
    return "bf16";
}
template <>
constexpr const char* real_name<fp16>() {
    return "fp16";
}

// Applies a layer's list of explicit instantiations to each storage type.
#define FOR_EACH_REAL(INSTANTIATE) INSTANTIATE(float) INSTANTIATE(bf16) INSTANTIATE(fp16)
