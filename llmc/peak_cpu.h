// What the CPU does at most, measured on it: the yardstick of dev/cpu/train_step.
#pragma once
#include "llmc/peak.h"

// Multiply-adds in registers, of all OpenMP threads together, in flops per second. Takes about `seconds`; the
// best of its tenths counts, since another program may be at work.
double cpu_fma_rate(double seconds = 0.05);

// The same for products of pairs of bf16 (AMX, AVX512_BF16, Arm's BF16); 0 where the CPU has no such
// instruction.
double cpu_bf16_rate(double seconds = 0.05);

// Reading and writing an array of 128 MiB in place, by all threads: bytes per second, both counted.
double cpu_memory_rate();

// Copying one array of `bytes` to another, each thread its own part of them again and again, so that small
// arrays show the caches: bytes per second, read and written ones both counted. Takes about `seconds`, and
// more for arrays that take longer.
double cpu_copy_rate(size_t bytes, double seconds = 0.02);
