// Integer division that rounds up.
#pragma once
#include <cstdint>

// The number of pieces of `size` that cover n, for example of workgroups for n invocations.
constexpr uint64_t ceil_div(uint64_t n, uint64_t size) { return (n + size - 1) / size; }
