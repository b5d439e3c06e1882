// What kernels on matrix cores include, after util.glsl: the extensions, the type of a matrix's elements, and the shape
// of the fragments that a subgroup multiplies, which differs from device to device (limits() of the launchpad has it).
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#pragma use_vulkan_memory_model
#ifdef REAL_BF16
#extension GL_EXT_bfloat16 : require
#define REAL bfloat16_t
#else
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define REAL float16_t
#endif

layout(constant_id = 1) const uint FM = 16;  // a fragment's product: (FM, FK) times (FK, FN)
layout(constant_id = 2) const uint FN = 16;
layout(constant_id = 3) const uint FK = 16;

#define FragmentA coopmat<REAL, gl_ScopeSubgroup, FM, FK, gl_MatrixUseA>
#define FragmentB coopmat<REAL, gl_ScopeSubgroup, FK, FN, gl_MatrixUseB>
#define FragmentSum coopmat<float, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator>
