// The GEMMs of GPT-2's linear layers, for the benchmarks of both directions.
#pragma once
#include <type_traits>

#include "dev/vulkan/bench.h"

// Calls register_shape(num_rows, C, OC) for the four GEMMs of a layer and a chunk of the head of d12 at B=4
// T=64, B=4 T=1024 and B=64 T=1024, and in 16 bits for the layers of d24, d36 and d48 at B=16 T=1024.
template <class Real, class Register>
void register_linear_shapes(Register register_shape) {
    if (bench().small) return register_shape(128, 768, 768);
    const auto register_layer = [&](int num_rows, int C) {
        register_shape(num_rows, C, 3 * C);
        register_shape(num_rows, C, C);
        register_shape(num_rows, C, 4 * C);
        register_shape(num_rows, 4 * C, C);
    };
    for (int num_rows : {256, 4096, 65536}) register_layer(num_rows, 768);
    register_shape(5632, 768, 50304);
    if (std::is_same_v<Real, float>) return;
    for (int C : {1024, 1280, 1600}) register_layer(16384, C);
}
