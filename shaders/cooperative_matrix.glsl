// Declarations for kernels that use cooperative matrices, to be included after util.glsl: the extensions, the
// element type of operands, and the fragment shape. The shape depends on the device (Limits::fragment() of
// the launchpad), so it is given by specialization constants. Operands of fp32 kernels are pieces of fp32
// values (matmul7.glsl), in bf16, or with PIECES_FP16 in fp16.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#pragma use_vulkan_memory_model
#if !defined(REAL_FP16) && !defined(PIECES_FP16)
#extension GL_EXT_bfloat16 : require
#define REAL bfloat16_t
#else
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define REAL float16_t
#endif

layout(constant_id = 1) const uint FM = 16;  // coopMatMulAdd: (FM, FN) += (FM, FK) (FK, FN)
layout(constant_id = 2) const uint FN = 16;
layout(constant_id = 3) const uint FK = 16;
layout(constant_id = 4) const int CONVERTS = CONVERTS_SOMEHOW;  // how conversions to operands round

#define FragmentA coopmat<REAL, gl_ScopeSubgroup, FM, FK, gl_MatrixUseA>
#define FragmentB coopmat<REAL, gl_ScopeSubgroup, FK, FN, gl_MatrixUseB>
#define FragmentSum coopmat<float, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator>
#ifdef REAL_FP32
#define FragmentResult FragmentSum
#else
#define FragmentResult coopmat<REAL, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator>
#endif

// Clears the bits that bf16 does not have, so that the conversion cannot round again. Unnecessary where
// conversions truncate.
float exact_in_bf16(uint v) {
    return uintBitsToFloat(CONVERTS == CONVERTS_TRUNCATING ? v : v & 0xffff0000u);
}
// Rounds to fp16 where the conversion may not.
float exact_in_fp16(float v) { return CONVERTS == CONVERTS_TO_NEAREST ? v : round_half(v); }

// Rounds accumulators to the storage type: to nearest, in bf16 with ties away from zero. NVIDIA's conversion
// to bf16 truncates, for whole fragments and for single components. This function therefore adds half a unit
// in the last place first. NaN and infinity are preserved.
FragmentResult round_fragment(FragmentSum sums) {
#ifdef REAL_BF16
    for (int e = 0; e < sums.length(); e++) {
        const float unit = uintBitsToFloat(floatBitsToUint(sums[e]) & 0xff800000u);  // its power of two
        sums[e] = exact_in_bf16(floatBitsToUint(fma(unit, 1.0 / 256, sums[e])));
    }
#elif defined(REAL_FP16)
    if (CONVERTS != CONVERTS_TO_NEAREST)
        for (int e = 0; e < sums.length(); e++) sums[e] = round_half(sums[e]);
#endif
    return FragmentResult(sums);
}
