// What the versions of AdamW share: the update of one parameter (llmc/adamw.h), and the store of the result, which is
// rounded at random where the storage type has 16 bits, with the CPU's random bits (llmc/adamw.cpp, llmc/real.h).
#include "util.glsl"

layout(push_constant, scalar) uniform Push { AdamWArgs args; };

// The finalizer of MurmurHash3.
uint hash(uint x) {
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

// The factor of the gradients; false: nothing is to be changed.
bool gradient_scale(out float scale) {
    scale = 1;
    if (uint64_t(args.norm_and_scale) == 0) return true;
    scale = args.norm_and_scale.x[1];
    return is_finite(args.norm_and_scale.x[0]) && scale != 0;
}

// Updates m and v, and returns the new parameters.
vec4 update(vec4 param, inout vec4 m, inout vec4 v, vec4 g) {
    const AdamWStep s = args.step.x[0];
    m = s.beta1 * m + (1 - s.beta1) * g;
    v = s.beta2 * v + (1 - s.beta2) * g * g;
    const vec4 m_hat = m / s.beta1_correction, v_hat = v / s.beta2_correction;
    return param - s.learning_rate * (m_hat / (sqrt(v_hat) + s.eps) + args.weight_decay * param);
}

// Stores v as element or elements number i of p, which are the tensor's elements from `element` on.
#ifdef REAL_FP32
void store_random(Reals p, uint i, float v, uint64_t element) { store(p, i, v); }
void store_random4(Reals p, vec4 v, uint64_t element) { store4(p, 0, v); }
#else
uint round_randomly(float v, uint random) {
    const uint u = floatBitsToUint(v), exponent = (u >> 23) & 0xffu;
#ifdef REAL_BF16
    return exponent == 255 ? round_real(v) : (u + (random & 0xffffu)) >> 16;
#else
    const uint cut = exponent < 113 ? 126 - exponent : 13, above = exponent < 113 ? 0 : exponent - 113;
    const uint digits = (u & 0x7fffffu) | 0x800000u, shift = min(cut, 31);
    const uint kept = (digits + (random & ((1u << shift) - 1))) >> shift;
    return exponent < 143 ? ((u >> 16) & 0x8000u) | (cut < 32 ? (above << 10) + kept : 0) : round_real(v);
#endif
}
uint random_bits(uint64_t element) {
    const uint key = hash(args.step.x[0].seed ^ uint(element >> 32));
    return hash(uint(element) ^ key);
}
uint rounded(float v, uint64_t element) { return round_randomly(v, random_bits(element)); }
void store_random(Reals p, uint i, float v, uint64_t element) { p.x[i] = uint16_t(rounded(v, element)); }
void store_random4(Reals p, vec4 v, uint64_t element) {
    Reals4(uint64_t(p)).x[0] = uvec2(rounded(v.x, element) | rounded(v.y, element + 1) << 16,
                                     rounded(v.z, element + 2) | rounded(v.w, element + 3) << 16);
}
#endif
