// Detects the instruction sets of the CPU.
#include "llmc/cpu/simd.h"

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

struct OptionName {
    const char* name;
    SimdLevel level;
};
#if defined(__x86_64__)
static const OptionName option_names[] = {{"sse2", SIMD_BASE},
                                          {"avx2", SIMD_AVX2},
                                          {"avx512", SIMD_AVX512},
                                          {"avx512-bf16", SIMD_BF16},
                                          {"amx", SIMD_AMX}};
#elif defined(__aarch64__)
static const OptionName option_names[] = {{"neon", SIMD_BASE}, {"neon-bf16", SIMD_BF16}};
#else
static const OptionName option_names[] = {{"base", SIMD_BASE}};
#endif

std::string simd_option_names(SimdLevel highest) {
    std::string names = "auto";
    for (const OptionName& option : option_names)
        if (option.level <= highest) names += std::string(", ") + option.name;
    return names;
}

std::string choose_simd_by_name(const std::string& name) {
    if (name == "auto") {
        choose_simd_level(best_simd_level());
        return "";
    }
    for (const OptionName& option : option_names) {
        if (name != option.name) continue;
        if (option.level > best_simd_level())
            return name + " is not available here; there are " + simd_option_names(best_simd_level());
        choose_simd_level(option.level);
        return "";
    }
    return name + " is none of " + simd_option_names(SIMD_AMX);
}

const char* simd_level_name(SimdLevel level) {
#if defined(__x86_64__)
    const char* names[] = {"SSE2", "AVX2", "AVX-512", "AVX-512 BF16", "AMX"};
#elif defined(__aarch64__)
    const char* names[] = {"NEON", "NEON", "NEON", "NEON BF16", "NEON BF16"};
#else
    const char* names[] = {"the base instruction set", "", "", "", ""};
#endif
    return names[level];
}
