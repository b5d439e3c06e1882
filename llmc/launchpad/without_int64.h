// Kernels for devices without 64-bit integers (shaderInt64).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

// Rewrites a kernel's SPIR-V: every 64-bit integer, signed or not, becomes a vector of two unsigned 32-bit
// ones, the lower half first. Pointers can be cast to such vectors and back. Throws Error for an operation
// with a 64-bit result that no kernel uses yet.
std::vector<uint32_t> without_int64(std::span<const uint32_t> spirv);
