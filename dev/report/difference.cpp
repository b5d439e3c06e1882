// Differences between results: see difference.h.
#include "dev/report/difference.h"

#include <algorithm>
#include <cmath>

#include "llmc/error.h"

double Difference::relative() const { return std::sqrt(error_squares / squares); }

template <class T>
void add_difference(Difference& sum, const T* got, const T* want, size_t n, double scale) {
    double squares = 0, error_squares = 0, largest = 0;
#pragma omp parallel for reduction(+ : squares, error_squares) reduction(max : largest)
    for (size_t i = 0; i < n; i++) {
        const double g = double(float(got[i])), w = double(float(want[i])), error = std::abs(g - w);
        squares += w * w;
        error_squares += error * error;
        const double relative = error / (std::abs(w) + scale);
        largest = std::max(largest, relative <= HUGE_VAL ? relative : HUGE_VAL);  // NaN is not <=
    }
    sum.squares += squares;
    sum.error_squares += error_squares;
    sum.largest = std::max(sum.largest, largest);
}

template <class T>
double root_mean_square(const T* values, size_t n) {
    double squares = 0;
#pragma omp parallel for reduction(+ : squares)
    for (size_t i = 0; i < n; i++) squares += double(float(values[i])) * double(float(values[i]));
    return std::sqrt(squares / double(n));
}

void check_limit(const std::string& what, const char* error_name, double error, double limit) {
    if (!(error <= limit))
        fail("%s: the GPU's result is wrong: its %s is %.3g, the limit %.3g", what.c_str(), error_name, error,
             limit);
}

#define INSTANTIATE(T)                                                             \
    template void add_difference(Difference&, const T*, const T*, size_t, double); \
    template double root_mean_square(const T*, size_t);
FOR_EACH_REAL(INSTANTIATE)
