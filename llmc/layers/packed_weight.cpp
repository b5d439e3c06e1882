// Packs weights for tensor-core GEMMs.
#include "llmc/layers/packed_weight.h"

#include "llmc/base/ceil_div.h"
#include "llmc/layers/tensor_core.h"
#include "shaders/args.h"

// Components of an operand fragment that an invocation has, in one chunk of 16 bytes; FRAGMENT_COMPONENTS of
// packed_weight.glsl.
static const uint32_t FRAGMENT_COMPONENTS = 8;
// How far loads of matmul6.comp run past the end: STEPS_AHEAD, and the steps of the last iteration beyond K.
static const uint32_t FRAGMENTS_PAST_END = 4 + 7;

// Without in_place, operands may be duplicated among invocations, and have more than 8 components.
template <class Real>
bool can_pack(const LaunchPad& pad, int K, int N) {
    const FragmentShape f = pad.limits().fragment<Real>();
    return f && f.in_place && f.K * f.N == FRAGMENT_COMPONENTS * pad.limits().subgroup_size && K % f.K == 0 &&
           N % f.N == 0 && N % 8 == 0 && K % 8 == 0 && has_tile<Real>(pad, GemmLayout::packed);
}

// On an H200 packing takes 4 us and its traffic, and a GEMM whose tiles fill the device gains an eighth.
template <class Real>
bool packing_pays(const LaunchPad& pad, int num_rows, int K, int N) {
    const uint64_t tiles = ceil_div(num_rows, 128) * ceil_div(N, 256);
    return num_rows >= 4096 && tiles >= pad.limits().compute_units && can_pack<Real>(pad, K, N);
}

template <class Real>
static void pack_weight(LaunchPad& pad, Real* packed, const WeightOperand<Real>& b) {
    const FragmentShape f = pad.limits().fragment<Real>();
    const uint32_t lanes = pad.limits().subgroup_size, block = 4 * lanes;
    const size_t size = size_t(b.K) * b.N;
    const PackWeightArgs args = {
        .outp = pad.at(packed, size), .inp = pad.at(b.weight, size), .K = b.K, .N = b.N};
    const uint64_t fragments = size / (f.K * f.N);
    pad.dispatch<Real>("pack_weight1", {ceil_div(fragments, block / lanes)},
                       {block, f.M, f.N, f.K, uint32_t(f.conversion), b.N_major, lanes}, args,
                       memory_traffic<Real>(2.0 * double(size)));
}

template <class Real>
std::vector<const Real*> pack_weights(LaunchPad& pad, Scratch slot,
                                      const std::vector<WeightOperand<Real>>& weights) {
    const FragmentShape f = pad.limits().fragment<Real>();
    size_t size = FRAGMENTS_PAST_END * f.K * f.N;
    for (const WeightOperand<Real>& b : weights) size += size_t(b.K) * b.N;
    Real* packed = reinterpret_cast<Real*>(pad.scratch(slot, size * sizeof(Real) / sizeof(float)));
    std::vector<Real*> results;
    for (const WeightOperand<Real>& b : weights) {
        results.push_back(packed);
        packed += size_t(b.K) * b.N;
    }
    const ConcurrentGroup group(&pad);
    for (size_t i = 0; i < weights.size(); i++) pack_weight(pad, results[i], weights[i]);
    pad.barrier();
    return {results.begin(), results.end()};
}

#define INSTANTIATE(Real)                                               \
    template bool can_pack<Real>(const LaunchPad&, int, int);           \
    template bool packing_pays<Real>(const LaunchPad&, int, int, int);  \
    template std::vector<const Real*> pack_weights(LaunchPad&, Scratch, \
                                                   const std::vector<WeightOperand<Real>>&);
FOR_EACH_REAL(INSTANTIATE)
