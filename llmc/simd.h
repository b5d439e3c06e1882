// SIMD_CLONES before a function makes the compiler build it for AVX-512, AVX2 and the base instruction set,
// and the program pick one when it starts: one binary runs on any x86-64 and is fast on new ones. The
// function must be a plain loop nest without OpenMP parallel regions (those are outlined and would lose the
// target); call it from them. Elsewhere (aarch64 has NEON in its base) it is nothing.
#pragma once

#if defined(__x86_64__) && defined(__linux__)
#define SIMD_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SIMD_CLONES
#endif
