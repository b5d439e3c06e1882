// Measured peak rates of the CPU.
#pragma once
#include "llmc/launchpad/peak.h"

// Flops per second of fused multiply-adds in registers, on all OpenMP threads together. Takes about
// `seconds`, in several batches, and returns the best one, because other programs may disturb some.
double cpu_fma_rate(double seconds = 0.05);

// The same for instructions that multiply pairs of bf16 (AMX, AVX512_BF16, Arm's BF16). Returns 0 if the CPU
// has none.
double cpu_bf16_rate(double seconds = 0.05);

// Memory bandwidth, read + write, in bytes per second: all threads update an array of 128 MiB in place.
double cpu_memory_rate();

// Copy bandwidth, read + write, in bytes per second, between two arrays of `bytes`. Each thread repeatedly
// copies a part of its own, so small arrays measure the caches. Takes about `seconds`, or longer for arrays
// whose copies take longer.
double cpu_copy_rate(size_t bytes, double seconds = 0.02);
