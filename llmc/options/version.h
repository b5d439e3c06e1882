// What --version prints.
#pragma once
#include <string>

// For example "train_gpt2 0.1.0, commit 844c8e2d0f11, g++ 12.2.0, CPU kernels for AVX-512 BF16". The
// instruction set is the best one that this machine's CPU and the GEMM kernels have in common.
std::string version_text(const char* program);
