#include "llmc/cpu/simd.h"

#include <algorithm>
#include <iterator>

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__x86_64__)
// Whether the CPU has AMX for bf16 and Linux grants its registers to this process. The registers are large,
// so a process must request them (Documentation/arch/x86/xstate.rst). Linux refuses if a thread's signal
// stack is too small for them.
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

int detect_clone_level() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return 4;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
        return 3;
#endif
    return 0;
}

static SimdLevel detect_level() {
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
    static const SimdLevel best = detect_level();
    return best;
}

static int chosen = -1;

SimdLevel simd_level() { return chosen < 0 ? best_simd_level() : SimdLevel(chosen); }

void choose_simd_level(SimdLevel level) { chosen = level; }

// By --simd, and for people; lowest first.
struct LevelName {
    SimdLevel level;
    const char *option, *name;
};
#if defined(__x86_64__)
static const LevelName level_names[] = {{SIMD_BASE, "sse2", "SSE2"},
                                        {SIMD_AVX2, "avx2", "AVX2"},
                                        {SIMD_AVX512, "avx512", "AVX-512"},
                                        {SIMD_BF16, "avx512-bf16", "AVX-512 BF16"},
                                        {SIMD_AMX, "amx", "AMX"}};
#elif defined(__aarch64__)
static const LevelName level_names[] = {{SIMD_BASE, "neon", "NEON"}, {SIMD_BF16, "neon-bf16", "NEON BF16"}};
#else
static const LevelName level_names[] = {{SIMD_BASE, "base", "the base instruction set"}};
#endif

std::string simd_option_names(SimdLevel highest) {
    std::string names = "auto";
    for (const LevelName& known : level_names)
        if (known.level <= highest) names += std::string(", ") + known.option;
    return names;
}

std::string choose_simd_by_name(const std::string& name) {
    const LevelName* known = std::find_if(std::begin(level_names), std::end(level_names),
                                          [&](const LevelName& l) { return name == l.option; });
    if (known == std::end(level_names) && name != "auto")
        return name + " is none of " + simd_option_names(SIMD_AMX);
    const SimdLevel best = best_simd_level(), level = name == "auto" ? best : known->level;
    if (level > best) return name + " is not available here; there are " + simd_option_names(best);
    choose_simd_level(level);
    return "";
}

const char* simd_level_name(SimdLevel level) {
    const char* name = level_names[0].name;
    for (const LevelName& known : level_names)
        if (known.level <= level) name = known.name;
    return name;
}
