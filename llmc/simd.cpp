// What the CPU can do.
#include "llmc/simd.h"

#include <algorithm>

static SimdLevel limit = SIMD_AVX512_BF16;

static SimdLevel find_level() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16")) return SIMD_AVX512_BF16;
    if (__builtin_cpu_supports("avx512f")) return SIMD_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return SIMD_AVX2;
#endif
    return SIMD_BASE;
}

SimdLevel simd_level() {
    static const SimdLevel found = find_level();
    return std::min(found, limit);
}

void limit_simd(SimdLevel most) { limit = most; }
