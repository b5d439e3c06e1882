// Whether a product out (N,OC) = inp (N,C) weight (OC,C)^T is right, without computing it a second time where
// that would take too long: a few rows against those of the CPU's layer, and a checksum of every row.
#pragma once
#include <cstddef>

#include "dev/report/difference.h"

// The largest error of a row's checksums, sum over j of s_j out_ij with random signs s, which must be those
// of inp_i (weight^T s), in fp64 throughout (Freivalds' check): root mean square of four, relative to the
// row's norm. Rounding of the single elements adds up to the row's relative L2 error there, 1.6e-3 in bf16;
// one element that is wrong by the usual magnitude of results makes 1/sqrt(OC), 0.011 of 8192. Infinite where
// there is a NaN.
template <class T>
double checksum_error(const T* out, const T* inp, const T* weight, int N, int C, int OC);

struct MatmulErrors {
    double relative = 0, largest = 0;  // as Difference has them, of the rows that were compared
    double checksum = 0;               // of all rows
    int rows = 0;                      // that were compared
};

// want: all of the product as the CPU computed it; null: rows are taken from all over `out`,
// MATMUL_CHECK_ROWS at most, the first and the last among them, and computed by matmul_forward_cpu.
const int MATMUL_CHECK_ROWS = 32;
template <class T>
MatmulErrors matmul_errors(const T* out, const T* want, const T* inp, const T* weight, int N, int C, int OC);

// Error with one line that names type, size, error and limit, unless all are within difference_limits; the
// checksum's limit is that of the largest error.
template <class T>
void check_matmul(const MatmulErrors& errors, int N, int C, int OC);

// For tests: makes one element of values (n) wrong by their root mean square.
template <class T>
void plant_wrong_element(T* values, size_t n);
