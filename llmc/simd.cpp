// What the CPU can do.
#include "llmc/simd.h"

#include <algorithm>

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

static SimdLevel limit = SIMD_BF16;

static SimdLevel find_level() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16")) return SIMD_BF16;
    if (__builtin_cpu_supports("avx512f")) return SIMD_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return SIMD_AVX2;
#elif defined(__aarch64__) && defined(__linux__)
    if (getauxval(AT_HWCAP2) & HWCAP2_BF16) return SIMD_BF16;
#endif
    return SIMD_BASE;
}

SimdLevel simd_level() {
    static const SimdLevel found = find_level();
    return std::min(found, limit);
}

void limit_simd(SimdLevel most) { limit = most; }
