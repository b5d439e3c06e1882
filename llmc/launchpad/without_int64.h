// Kernels for devices without 64-bit integers (shaderInt64).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

// A kernel's SPIR-V with every 64-bit integer, signed or not, as two unsigned 32-bit ones, the lower first,
// which is also how a device address may be written. Throws Error for an operation on 64-bit integers that
// no kernel has yet.
std::vector<uint32_t> without_int64(std::span<const uint32_t> spirv);
