// The linear layers on the CPU, as GEMMs (cpu/gemm.h). Results do not depend on the number of threads.
#include <algorithm>

#include "llmc/cpu/gemm.h"
#include "llmc/cpu/simd.h"
#include "llmc/layers/matmul.h"

// out^T = weight inp^T: as operand a, the weights need no transposing.
template <class Real>
void matmul_forward_cpu(const MatmulForward<Real>& p) {
    const size_t num_rows = p.num_rows, C = p.C, OC = p.OC;
    gemm_cpu<Real>({.c = {.p = p.out, .ld = OC, .transposed = true, .bias = p.bias},
                    .a = {.p = p.weight, .ld = C},
                    .b = {.p = p.inp, .ld = C},
                    .M = OC,
                    .N = num_rows,
                    .K = C});
}

template <class Real>
void matmul_dinp_cpu(const MatmulBackwardInput<Real>& p) {
    const size_t num_rows = p.num_rows, C = p.C, OC = p.OC;
    gemm_cpu<Real>({.c = {.p = p.dinp, .ld = C},
                    .a = {.p = p.dout, .ld = OC},
                    .b = {.p = p.weight, .ld = C, .transposed = true},
                    .M = num_rows,
                    .N = C,
                    .K = OC});
}

template <class Real>
void matmul_dweight_cpu(const MatmulBackwardParameters<Real>& p) {
    const size_t num_rows = p.num_rows, C = p.C, OC = p.OC;
    gemm_cpu<Real>({.c = {.p = p.dweight, .ld = C, .accumulate = p.accumulate},
                    .a = {.p = p.dout, .ld = OC, .transposed = true},
                    .b = {.p = p.inp, .ld = C, .transposed = true},
                    .M = OC,
                    .N = C,
                    .K = num_rows});
}

// Columns that a thread sums at a time: whole cache lines, and the accumulators fit in registers.
static const int DBIAS_COLUMNS = 64;

// dbias += column sums of dout (num_rows, n), with n at most DBIAS_COLUMNS.
template <class Real>
static SIMD_INLINE void sum_columns(Real* dbias, const Real* dout, int num_rows, size_t ld, int n) {
    float sums[DBIAS_COLUMNS] = {};
    for (int row = 0; row < num_rows; row++, dout += ld)
#pragma omp simd
        for (int c = 0; c < n; c++) sums[c] += float(dout[c]);
    for (int c = 0; c < n; c++) dbias[c] = Real(float(dbias[c]) + sums[c]);
}
// A constant column count keeps the accumulators in registers.
template <class Real>
static SIMD_INLINE void sum_column_block(Real* dbias, const Real* dout, int num_rows, size_t ld, int n) {
    if (n == DBIAS_COLUMNS) return sum_columns(dbias, dout, num_rows, ld, DBIAS_COLUMNS);
    sum_columns(dbias, dout, num_rows, ld, n);
}

template <class Real>
void matmul_dbias_cpu(const MatmulDbias<Real>& p) {
#pragma omp parallel for
    for (int first = 0; first < p.OC; first += DBIAS_COLUMNS)
        simd<sum_column_block<Real>>(p.dbias + first, p.dout + first, p.num_rows, size_t(p.OC),
                                     std::min(DBIAS_COLUMNS, p.OC - first));
}

#define INSTANTIATE(Real)                                                    \
    template void matmul_forward_cpu(const MatmulForward<Real>&);            \
    template void matmul_dinp_cpu(const MatmulBackwardInput<Real>&);         \
    template void matmul_dweight_cpu(const MatmulBackwardParameters<Real>&); \
    template void matmul_dbias_cpu(const MatmulDbias<Real>&);
FOR_EACH_REAL(INSTANTIATE)
