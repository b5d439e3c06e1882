// What the CPU can do.
#include "llmc/simd.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__x86_64__)
// Whether the CPU has AMX for bf16, and the kernel gives its registers to this process. They are large, so
// Linux keeps them only for processes that ask (Documentation/arch/x86/xstate.rst); it refuses where a
// thread's signal stack is too small for them.
static bool may_use_amx() {
#ifdef __linux__
    const long ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18;
    const unsigned AMX_BF16 = 1u << 22, AMX_TILE = 1u << 24;
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BF16) && (d & AMX_TILE) &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
#else
    return false;
#endif
}
#endif

static SimdLevel find_level() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16"))
        return may_use_amx() ? SIMD_AMX : SIMD_BF16;
    if (__builtin_cpu_supports("avx512f")) return SIMD_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return SIMD_AVX2;
#elif defined(__aarch64__) && defined(__linux__)
    if (getauxval(AT_HWCAP2) & HWCAP2_BF16) return SIMD_BF16;
#endif
    return SIMD_BASE;
}

SimdLevel best_simd_level() {
    static const SimdLevel best = find_level();
    return best;
}

static int chosen = -1;

SimdLevel simd_level() { return chosen < 0 ? best_simd_level() : SimdLevel(chosen); }

void choose_simd_level(SimdLevel level) { chosen = level; }
