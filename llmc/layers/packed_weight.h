// Weights packed as operand B of tensor-core GEMMs (GemmLayout::packed, shaders/packed_weight.glsl): a weight
// that many rows are multiplied with is worth rearranging, so that fragments are loaded without shared
// memory.
#pragma once
#include <vector>

#include "llmc/launchpad/launchpad.h"

// A weight, and the shape of operand B (K, N) that it becomes.
template <class Real>
struct WeightOperand {
    const Real* weight;  // N_major: (K, N); otherwise its transpose (N, K)
    int K, N;
    bool N_major;
};

// Whether the device and the sizes allow packing, and a GEMM of num_rows rows gains more from it than packing
// costs.
template <class Real>
bool packing_pays(const LaunchPad& pad, int num_rows, int K, int N);

// The same without regard to cost.
template <class Real>
bool can_pack(const LaunchPad& pad, int K, int N);

// Packs weights side by side into the launchpad's scratch memory, waits, and returns the results, operands B
// of GEMMs.
template <class Real>
std::vector<const Real*> pack_weights(LaunchPad& pad, Scratch slot,
                                      const std::vector<WeightOperand<Real>>& weights);
