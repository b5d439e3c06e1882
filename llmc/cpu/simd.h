// Support for several instruction sets in one program, selected at run time.
#pragma once
#include <string>

// The level of x86-64 whose instructions the CPU has: 4 (AVX-512), 3 (AVX2), or 0 for less.
int detect_clone_level();
inline int clone_level() {
    static const int level = detect_clone_level();
    return level;
}

// SIMD_INLINE declares a function that runs through simd<>, and those that it calls: they are compiled for
// the clone's instructions only if they are inlined into it.
#define SIMD_INLINE inline __attribute__((always_inline))

// simd<function>(arguments) runs a function that is compiled for AVX-512, AVX2 and the base instruction set,
// on the best that the CPU has. One binary then runs on any x86-64 CPU and is fast on recent ones. The
// function is a plain loop nest without OpenMP parallel regions, because the compiler outlines those and
// drops the target: use simd<> inside such a region instead. On other platforms it calls the function
// (aarch64 has NEON in its base).
template <auto function>
struct SimdClones;
template <class Result, class... Parameters, Result (*function)(Parameters...)>
struct SimdClones<function> {
    Result operator()(Parameters... p) const {
#if defined(__x86_64__)
        if (clone_level() == 4) return v4(p...);
        if (clone_level() == 3) return v3(p...);
#endif
        return base(p...);
    }

   private:
#if defined(__x86_64__)
    __attribute__((target("arch=x86-64-v4"))) static Result v4(Parameters... p) { return function(p...); }
    __attribute__((target("arch=x86-64-v3"))) static Result v3(Parameters... p) { return function(p...); }
#endif
    __attribute__((noinline)) static Result base(Parameters... p) { return function(p...); }
};
template <auto function>
inline constexpr SimdClones<function> simd;

// Vectors of floats. Plain arithmetic on them compiles to the widest instructions of the function's target.
// Load and store them with memcpy, which assumes neither alignment nor aliasing.
typedef float Float4 __attribute__((vector_size(16)));
typedef float Float8 __attribute__((vector_size(32)));
typedef float Float16 __attribute__((vector_size(64)));

// Instruction sets of the GEMM microkernels, each a superset of those before it:
//   SIMD_BASE    SSE2 or NEON
//   SIMD_AVX2    AVX2 and FMA; not on Arm
//   SIMD_AVX512  AVX-512 F; not on Arm
//   SIMD_BF16    AVX512_BF16, or Arm's FEAT_BF16 (detected on Linux only)
//   SIMD_AMX     AMX tiles of bf16, if Linux lets the process use them; not on Arm
enum SimdLevel { SIMD_BASE, SIMD_AVX2, SIMD_AVX512, SIMD_BF16, SIMD_AMX };

// The highest level that the CPU supports.
SimdLevel best_simd_level();

// "AVX2", "AMX" and so on.
const char* simd_level_name(SimdLevel level);

// The level that GEMMs use: the best one, unless choose_simd_level() selected another.
SimdLevel simd_level();

// A level that the CPU lacks crashes the program at the next GEMM.
void choose_simd_level(SimdLevel level);

// The names that --simd takes on this platform, lowest first, of levels up to `highest`: "auto, sse2, avx2".
std::string simd_option_names(SimdLevel highest);

// Selects the level with this option name; "auto" is the best one. Returns an empty string, or why it cannot:
// no level has this name, or the CPU lacks it.
std::string choose_simd_by_name(const std::string& name);
