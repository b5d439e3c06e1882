// What matmul.cpp and dev/vulkan/baselines/ share: the operands of a linear layer's GEMM, and the arguments
// of kernels without cooperative matrices.
#pragma once
#include "llmc/layers/matmul.h"
#include "shaders/args.h"

// A GEMM with the weight of a linear layer: out (M, N) = a (M, K) B + bias, where operand B (K, N) is the
// weight in the backward pass, and its transpose in the forward pass.
template <class Real>
struct WeightGemm {
    Real* out;
    const Real *a, *weight, *packed, *bias, *pre;
    int M, N, K;
    bool backward;
};
template <class Real>
WeightGemm<Real> weight_gemm(const MatmulForward<Real>& p) {
    return {p.out, p.inp, p.weight, p.packed, p.bias, p.pre, p.num_rows, p.OC, p.C, false};
}
template <class Real>
WeightGemm<Real> weight_gemm(const MatmulBackwardInput<Real>& p) {
    return {p.dinp, p.dout, p.weight, p.packed, nullptr, p.pre, p.num_rows, p.C, p.OC, true};
}

// Without packed and pre.
template <class Real>
MatmulArgs matmul_args(LaunchPad& pad, const WeightGemm<Real>& g) {
    const size_t M = g.M, N = g.N, K = g.K;
    return {.outp = pad.at(g.out, M * N),
            .a = pad.at(g.a, M * K),
            .b = pad.at(g.weight, N * K),
            .bias = pad.at(g.bias, N),
            .M = g.M,
            .N = g.N,
            .K = g.K,
            .splits = 1,
            .k_per_split = g.K};
}

// Split-K of a GEMM that sums over rows: `splits` parts of `rows` rows each.
struct RowSplits {
    int splits, rows;
};

// scratch: for the partial sums, unless there is a single split.
template <class Real>
MatmulArgs dweight_args(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, float* scratch,
                        RowSplits split) {
    const size_t n = p.num_rows, c = p.C, oc = p.OC;
    return {.outp = pad.at(p.dweight, oc * c),
            .partials = split.splits > 1 ? pad.at(scratch, split.splits * oc * c) : 0,
            .a = pad.at(p.dout, n * oc),
            .b = pad.at(p.inp, n * c),
            .M = p.OC,
            .N = p.C,
            .K = p.num_rows,
            .splits = split.splits,
            .k_per_split = split.rows,
            .accumulate = p.accumulate};
}
