// Code for several instruction sets in one program, which picks what the CPU has when it runs.
#pragma once

// SIMD_CLONES before a function makes the compiler build it for AVX-512, AVX2 and the base instruction set,
// and the program pick one when it starts: one binary runs on any x86-64 and is fast on new ones. The
// function must be a plain loop nest without OpenMP parallel regions (those are outlined and would lose the
// target); call it from them. Elsewhere (aarch64 has NEON in its base) it is nothing.
#if defined(__x86_64__) && defined(__linux__)
#define SIMD_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SIMD_CLONES
#endif

// Vectors of floats: plain arithmetic on them compiles to the widest instructions of the function's target.
// They are read and written with memcpy, which knows nothing of alignment or aliasing.
typedef float Float4 __attribute__((vector_size(16)));
typedef float Float8 __attribute__((vector_size(32)));
typedef float Float16 __attribute__((vector_size(64)));

// For products, whose kernels are chosen by hand. BASE: SSE2 or NEON. BF16: AVX512_BF16, or Arm's FEAT_BF16
// (looked for on Linux), which knows nothing between. AMX: its tiles of bf16, where Linux lets a process use
// them. Each has what those before it have.
enum SimdLevel { SIMD_BASE, SIMD_AVX2, SIMD_AVX512, SIMD_BF16, SIMD_AMX };

// The best that the CPU has.
SimdLevel best_simd_level();

// What products run on: the best, unless another was chosen.
SimdLevel simd_level();

// For tests, which walk all levels. One that the CPU lacks ends the program when a product runs.
void choose_simd_level(SimdLevel level);
