// Differences between results: see check.h.
#include "llmc/kernels/check.h"

#include <algorithm>
#include <cmath>

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

#define INSTANTIATE(Real)                                                                \
    template void add_difference(Difference&, const Real*, const Real*, size_t, double); \
    template double root_mean_square(const Real*, size_t);                               \
    template void check_difference<Real>(const std::string&, const Difference&);
FOR_EACH_REAL(INSTANTIATE)
#undef INSTANTIATE
