// Differences between results: see check.h.
#include "llmc/kernels/check.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "llmc/base/error.h"

double Difference::relative() const { return std::sqrt(error_squares / squares); }

template <class Real>
void add_difference(Difference& sum, const Real* got, const Real* want, size_t n, double scale) {
    double squares = 0, error_squares = 0, largest = 0;
#pragma omp parallel for reduction(+ : squares, error_squares) reduction(max : largest)
    for (size_t i = 0; i < n; i++) {
        const double g = double(float(got[i])), w = double(float(want[i])), error = std::abs(g - w);
        squares += w * w;
        error_squares += error * error;
        const double relative = error / (std::abs(w) + scale);
        largest = std::max(largest, relative <= HUGE_VAL ? relative : HUGE_VAL);  // false for a NaN
    }
    sum.squares += squares;
    sum.error_squares += error_squares;
    sum.largest = std::max(sum.largest, largest);
}

template <class Real>
double root_mean_square(const Real* values, size_t n) {
    double squares = 0;
#pragma omp parallel for reduction(+ : squares)
    for (size_t i = 0; i < n; i++) squares += double(float(values[i])) * double(float(values[i]));
    return std::sqrt(squares / double(n));
}

void check_limit(const std::string& what, const char* error_name, double error, double limit) {
    if (!(error <= limit))
        fail("%s: wrong result of the GPU: the %s is %.3g, the limit is %.3g", what.c_str(), error_name,
             error, limit);
}

template <class Real>
void check_difference(const std::string& what, const Difference& difference) {
    const DifferenceLimits limits = difference_limits<Real>();
    check_limit(what, "relative L2 error", difference.relative(), limits.relative);
    check_limit(what, "largest error of an element", difference.largest, limits.largest);
}

// 1 or -1, for each of the sign vectors: a hash of j.
static double sign(int vector, int j) {
    uint32_t h = uint32_t(j) * 2654435761u;
    h = (h ^ (h >> 15)) * 2246822519u;
    h = (h ^ (h >> 13)) * 3266489917u;
    return h >> (28 + vector) & 1 ? 1 : -1;
}

// weight (OC,C)^T times a sign vector: (C). Each thread sums a block of columns over all rows.
template <class Real>
static std::vector<double> signed_column_sums(const GemmResult<Real>& r, int vector) {
    std::vector<double> sums(r.C);
    const int block = 64;
#pragma omp parallel for
    for (int first = 0; first < r.C; first += block)
        for (int j = 0; j < r.OC; j++)
            for (int k = first; k < std::min(first + block, r.C); k++)
                sums[k] += sign(vector, j) * double(float(r.weight[size_t(j) * r.C + k]));
    return sums;
}

template <class Real>
double checksum_error(const GemmResult<Real>& r) {
    std::vector<double> error_squares(r.num_rows), squares(r.num_rows);
    for (int vector = 0; vector < 4; vector++) {
        const std::vector<double> sums = signed_column_sums(r, vector);
#pragma omp parallel for
        for (int i = 0; i < r.num_rows; i++) {
            double error = 0;
            squares[i] = 0;
            for (int j = 0; j < r.OC; j++) {
                const double v = double(float(r.out[size_t(i) * r.OC + j]));
                error += sign(vector, j) * v;
                squares[i] += v * v;
            }
            for (int k = 0; k < r.C; k++) error -= double(float(r.inp[size_t(i) * r.C + k])) * sums[k];
            error_squares[i] += error * error / 4;
        }
    }
    double largest = 0;
    for (int i = 0; i < r.num_rows; i++) {
        const double error = std::sqrt(error_squares[i] / squares[i]);
        largest = std::max(largest, error <= HUGE_VAL ? error : HUGE_VAL);  // false for a NaN
    }
    return largest;
}

#define INSTANTIATE(Real)                                                                \
    template void add_difference(Difference&, const Real*, const Real*, size_t, double); \
    template double root_mean_square(const Real*, size_t);                               \
    template void check_difference<Real>(const std::string&, const Difference&);         \
    template double checksum_error(const GemmResult<Real>&);
FOR_EACH_REAL(INSTANTIATE)
#undef INSTANTIATE
