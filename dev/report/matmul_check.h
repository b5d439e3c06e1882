// Checks the result of a GEMM without recomputing it if that would take too long: a few rows against the
// CPU's layer, and a checksum of every row.
#pragma once
#include <cstddef>

#include "dev/report/difference.h"

// out = inp weight^T, all on the host.
template <class Real>
struct GemmResult {
    const Real* out;     // (num_rows, OC)
    const Real* inp;     // (num_rows, C)
    const Real* weight;  // (OC,C)
    int num_rows, C, OC;
};

// Freivalds' check, in fp64: for random signs s, the sum over j of s_j out_ij must equal inp_i (weight^T s).
// Returns the largest error of any row: the root mean square over four sign vectors, relative to the norm of
// the row; infinite for a NaN. Rounding of the elements adds up to the row's relative L2 error, 1.6e-3 in
// bf16. One element that is wrong by the typical magnitude adds 1/sqrt(OC), 0.011 for OC = 8192.
template <class Real>
double checksum_error(const GemmResult<Real>& result);

struct GemmErrors {
    double relative = 0, largest = 0;  // as in Difference, over the rows compared
    double checksum = 0;               // over all rows
    int rows = 0;                      // number of rows compared
};

// want (num_rows, OC): the CPU's result. Null: up to GEMM_CHECK_ROWS rows from all over `out`, the first and
// the last among them, are computed by matmul_forward_cpu().
const int GEMM_CHECK_ROWS = 32;
template <class Real>
GemmErrors gemm_errors(const GemmResult<Real>& result, const Real* want);

// Throws Error, one line with type, size, error and limit, unless all errors are within difference_limits().
// The checksum has the limit of the largest error.
template <class Real>
void check_gemm(const GemmErrors& errors, int num_rows, int C, int OC);

// For tests: adds the root mean square of values (n) to one of them.
template <class Real>
void plant_wrong_element(Real* values, size_t n);
