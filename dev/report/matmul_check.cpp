// Checks of GEMM results: see matmul_check.h.
#include "dev/report/matmul_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/layers/matmul.h"

using Signs = std::array<double, 4>;  // of one element, for each of the four checksums

// A hash of j.
static Signs signs(int j) {
    uint32_t h = uint32_t(j) * 2654435761u;
    h = (h ^ (h >> 15)) * 2246822519u;
    h = (h ^ (h >> 13)) * 3266489917u;
    return {h & 1u << 28 ? 1. : -1., h & 1u << 29 ? 1. : -1., h & 1u << 30 ? 1. : -1.,
            h & 1u << 31 ? 1. : -1.};
}

// weight (OC,C)^T times the four sign vectors: (C). Each thread sums a block of columns over all rows.
template <class Real>
static std::vector<Signs> signed_column_sums(const Real* weight, int C, int OC) {
    std::vector<Signs> sums(C, Signs{});
    const int block = 64;
#pragma omp parallel for
    for (int first = 0; first < C; first += block)
        for (int j = 0; j < OC; j++) {
            const Real* row = weight + size_t(j) * C;
            const Signs sign = signs(j);
            for (int k = first; k < std::min(first + block, C); k++)
                for (size_t s = 0; s < 4; s++) sums[k][s] += sign[s] * double(float(row[k]));
        }
    return sums;
}

// The checksum error of one row: out (OC), inp (C).
template <class Real>
static double row_error(const Real* out, const Real* inp, const std::vector<Signs>& row_signs,
                        const std::vector<Signs>& sums) {
    Signs errors = {};
    double squares = 0;
    for (size_t j = 0; j < row_signs.size(); j++) {
        const double v = double(float(out[j]));
        for (size_t s = 0; s < 4; s++) errors[s] += row_signs[j][s] * v;
        squares += v * v;
    }
    for (size_t k = 0; k < sums.size(); k++)
        for (size_t s = 0; s < 4; s++) errors[s] -= double(float(inp[k])) * sums[k][s];
    double sum = 0;
    for (double e : errors) sum += e * e / 4;
    return std::sqrt(sum / squares);
}

template <class Real>
double checksum_error(const GemmResult<Real>& r) {
    const std::vector<Signs> sums = signed_column_sums(r.weight, r.C, r.OC);
    std::vector<Signs> row_signs;
    for (int j = 0; j < r.OC; j++) row_signs.push_back(signs(j));
    double largest = 0;
#pragma omp parallel for reduction(max : largest)
    for (int i = 0; i < r.num_rows; i++) {
        const double error = row_error(r.out + size_t(i) * r.OC, r.inp + size_t(i) * r.C, row_signs, sums);
        largest = std::max(largest, error <= HUGE_VAL ? error : HUGE_VAL);  // false for a NaN
    }
    return largest;
}

template <class Real>
GemmErrors gemm_errors(const GemmResult<Real>& r, const Real* want) {
    GemmErrors errors;
    errors.checksum = checksum_error(r);
    Difference difference;
    if (want) {
        const size_t n = size_t(r.num_rows) * r.OC;
        errors.rows = r.num_rows;
        add_difference(difference, r.out, want, n, root_mean_square(want, n));
    } else {
        errors.rows = std::min(r.num_rows, GEMM_CHECK_ROWS);
        std::vector<Real> row(r.OC);
        for (int k = 0; k < errors.rows; k++) {
            const size_t i =
                errors.rows > 1 ? size_t(k) * size_t(r.num_rows - 1) / size_t(errors.rows - 1) : 0;
            matmul_forward_cpu<Real>({.out = row.data(),
                                      .inp = r.inp + i * r.C,
                                      .weight = r.weight,
                                      .num_rows = 1,
                                      .C = r.C,
                                      .OC = r.OC});
            add_difference(difference, r.out + i * r.OC, row.data(), r.OC,
                           root_mean_square(row.data(), r.OC));
        }
    }
    errors.relative = difference.relative();
    errors.largest = difference.largest;
    return errors;
}

template <class Real>
void check_gemm(const GemmErrors& errors, int num_rows, int C, int OC) {
    const DifferenceLimits limits = difference_limits<Real>();
    const std::string what =
        num_rows == C && C == OC
            ? format_string("%s GEMM of size %d", real_name<Real>(), C)
            : format_string("%s GEMM, M = %d, N = %d, K = %d", real_name<Real>(), num_rows, OC, C);
    check_limit(what, "relative L2 error", errors.relative, limits.relative);
    check_limit(what, "largest error of an element", errors.largest, limits.largest);
    check_limit(what, "largest error of a row's checksum", errors.checksum, limits.largest);
}

template <class Real>
void plant_wrong_element(Real* values, size_t n) {
    Real& chosen = values[2 * n / 3];
    chosen = Real(float(chosen) + float(root_mean_square(values, n)));
}

#define INSTANTIATE(Real)                                                  \
    template double checksum_error(const GemmResult<Real>&);               \
    template GemmErrors gemm_errors(const GemmResult<Real>&, const Real*); \
    template void check_gemm<Real>(const GemmErrors&, int, int, int);      \
    template void plant_wrong_element(Real*, size_t);
FOR_EACH_REAL(INSTANTIATE)
#undef INSTANTIATE
