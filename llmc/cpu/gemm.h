// GEMM on the CPU, which the linear layers run on.
#pragma once
#include <cstddef>

// Operand (rows, K): element (r, k) is p[r * ld + k], or p[k * ld + r] if transposed.
template <class Real>
struct Operand {
    const Real* p;
    size_t ld;
    bool transposed = false;
};

// Result (M, N): element (r, c) is p[r * ld + c], or p[c * ld + r] if transposed.
template <class Real>
struct Result {
    Real* p;
    size_t ld;
    bool transposed = false;
    bool accumulate = false;     // add to the result; otherwise its contents are ignored
    const Real* bias = nullptr;  // (M), added to each column; null: none
};

// c (M, N) = a (M, K) b (N, K)^T.
template <class Real>
struct Gemm {
    Result<Real> c;
    Operand<Real> a, b;
    size_t M, N, K;
};

// Accumulates in fp32. The order of summation depends only on K and on whether N exceeds four, so results are
// bit-identical for any number of threads. It is fastest if b has fewer elements than a, or is transposed.
template <class Real>
void gemm_cpu(const Gemm<Real>& gemm);
