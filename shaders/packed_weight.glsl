// Weights packed as operand B of cooperative-matrix GEMMs, written by pack_weight1.comp and read by
// matmul6.comp: fragments of FK x FN in the order [N / FN][K / FK]. Each invocation of a subgroup holds 8
// components of a fragment, in one 16-byte chunk. So it loads them straight into registers, and a subgroup
// reads contiguous memory. Which elements these are is the device's choice, but the same in both
// kernels.
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require

const uint FRAGMENT_COMPONENTS = 8;

#ifdef REAL_BF16
REAL low_half(uint u) { return uintBitsToBFloat16EXT(uint16_t(u & 0xffffu)); }
REAL high_half(uint u) { return uintBitsToBFloat16EXT(uint16_t(u >> 16)); }
uint join_halves(REAL low, REAL high) {
    return uint(bfloat16BitsToUintEXT(low)) | uint(bfloat16BitsToUintEXT(high)) << 16;
}
#else
REAL low_half(uint u) { return unpackFloat2x16(u).x; }
REAL high_half(uint u) { return unpackFloat2x16(u).y; }
uint join_halves(REAL low, REAL high) { return packFloat2x16(f16vec2(low, high)); }
#endif

FragmentB unpack_fragment(uvec4 packed) {
    FragmentB f;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        f[2 * i] = low_half(packed[i]);
        f[2 * i + 1] = high_half(packed[i]);
    }
    return f;
}
uvec4 pack_fragment(FragmentB f) {
    uvec4 packed;
    [[unroll]] for (uint i = 0; i < 4; i++) packed[i] = join_halves(f[2 * i], f[2 * i + 1]);
    return packed;
}
