// GEMMs of the linear layers without cooperative matrices, and the bias gradients: the parts that
// matmul.cpp chooses from. Other files include matmul.h.
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

// Split-K of a GEMM that sums over rows: `splits` parts of `rows` rows each.
struct RowSplits {
    int splits, rows;
};

// out (n) = the sum of the partials (splits, n), or += that. With one split, the kernel has written out
// itself.
template <class Real>
void reduce_partials(LaunchPad& pad, Real* out, const float* partials, size_t n, int splits, bool accumulate);

// What kernels without cooperative matrices take; without packed and pre.
template <class Real>
MatmulArgs matmul_args(LaunchPad& pad, const WeightGemm<Real>& g);
// scratch: for the partial sums, unless there is a single split.
template <class Real>
MatmulArgs dweight_args(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, float* scratch,
                        RowSplits split);

// --- version 3: register blocking and prefetching ---

constexpr Tile LARGE_TILE3 = {128, 128}, MEDIUM_TILE3 = {64, 64}, SMALL_TILE3 = {32, 64};
// Where registers are few (Limits::few_registers)
constexpr Tile LARGE_FRUGAL_TILE3 = {128, 64}, FRUGAL_TILE3 = {64, 32};

// The tiles that training takes for a GEMM (M,N), and for dweight.
Tile choose_tile3(const LaunchPad& pad, uint64_t M, uint64_t N);
Tile choose_dweight_tile3(const LaunchPad& pad, int num_rows, int C, int OC);

template <class Real>
void matmul3(LaunchPad& pad, const WeightGemm<Real>& g, Tile tile);
template <class Real>
void matmul_dweight3(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, Tile tile);

// How version 3 splits dweight, and the floats that its partial sums take with any tile.
RowSplits dweight_splits(int num_rows, int C, int OC, Tile tile);
size_t dweight3_floats(int num_rows, int C, int OC);

// Launches version 3 of dweight without its reduction. scratch: dweight3_floats().
template <class Real>
void dweight_partials(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, float* scratch,
                      RowSplits split, Tile tile);

// --- version 4: for software devices, where barriers are expensive ---

template <class Real>
void matmul4(LaunchPad& pad, const WeightGemm<Real>& g, Tile tile);
template <class Real>
void matmul_dweight4(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, Tile tile);

// --- bias gradients ---

constexpr int DBIAS_BLOCK = 256;

template <class Real>
void matmul_dbias2(LaunchPad& pad, const MatmulDbias<Real>& p, int block_size);

// How version 2 splits the rows.
template <class Real>
RowSplits dbias_splits(int num_rows, int OC, int block_size);

// Launches version 2 without its reduction. scratch: OC floats for each split, unless there is a single one.
template <class Real>
void dbias_partials(LaunchPad& pad, const MatmulDbias<Real>& p, float* scratch, RowSplits split,
                    int block_size);
