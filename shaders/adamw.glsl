// Shared by AdamW and Muon: the update of a parameter (llmc/layers/adamw.h), and the store of the result.
// 16-bit parameters are rounded stochastically, with the same random bits as on the CPU
// (llmc/layers/adamw.cpp, llmc/base/real.h). Include util.glsl or packs.glsl first.

#include "hash.glsl"

// Sets scale to the factor of the gradients. Returns false if the update is to be skipped.
bool gradient_scale(Floats norm_and_scale, out float scale) {
    scale = 1;
    if (uint64_t(norm_and_scale) == 0) return true;
    scale = norm_and_scale.x[1];
    return is_finite(norm_and_scale.x[0]) && scale != 0;
}

// Updates m and v, and returns the new parameters. Precise, because several kernels must compute
// bit-identical results, and a compiler may fuse different multiply-adds in each of them.
vec4 update(AdamWStep s, float weight_decay, vec4 param, inout vec4 m, inout vec4 v, vec4 g) {
    precise const vec4 new_m = s.beta1 * m + (1 - s.beta1) * g;
    precise const vec4 new_v = s.beta2 * v + (1 - s.beta2) * g * g;
    precise const vec4 m_hat = new_m * s.beta1_correction, v_hat = new_v * s.beta2_correction;
    precise const vec4 now = param - s.learning_rate * (m_hat / (sqrt(v_hat) + s.eps) + weight_decay * param);
    m = new_m;
    v = new_v;
    return now;
}

// store_random() stores v to p.x[i], and store_random4() to the first four elements of p. `element` is the
// index of the (first) element in its tensor, seed the step's.
#ifdef REAL_FP32
void store_random(Reals p, uint i, float v, uint seed, uint64_t element) { store(p, i, v); }
void store_random4(Reals p, vec4 v, uint seed, uint64_t element) { store4(p, 0, v); }
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
uint random_bits(uint seed, uint64_t element) {
    const uint key = hash(seed ^ uint(element >> 32));
    return hash(uint(element) ^ key);
}
uint rounded(float v, uint seed, uint64_t element) { return round_randomly(v, random_bits(seed, element)); }
uvec2 rounded4(vec4 v, uint seed, uint64_t element) {
    return uvec2(rounded(v.x, seed, element) | rounded(v.y, seed, element + 1) << 16,
                 rounded(v.z, seed, element + 2) | rounded(v.w, seed, element + 3) << 16);
}
void store_random(Reals p, uint i, float v, uint seed, uint64_t element) {
    p.x[i] = uint16_t(rounded(v, seed, element));
}
void store_random4(Reals p, vec4 v, uint seed, uint64_t element) {
    Reals4(uint64_t(p)).x[0] = rounded4(v, seed, element);
}
#endif
