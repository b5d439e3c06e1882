// Differences between the GPU's results and the CPU's, and the limits for them: a result is compared before
// its time counts. A NaN or an infinity anywhere exceeds every limit.
#pragma once
#include <cstddef>
#include <string>
#include <type_traits>

#include "llmc/base/real.h"

// Sums over any number of add_difference() calls.
struct Difference {
    double squares = 0, error_squares = 0;  // of the reference, of the differences
    double largest = 0;                     // max of |got - want| / (|want| + scale); infinite for a NaN
    double relative() const;                // L2 norm of the differences over the L2 norm of the reference
};

// got, want (n). scale: the typical magnitude of the results (root mean square), which allows elements near
// zero the same absolute error as others.
template <class Real>
void add_difference(Difference& sum, const Real* got, const Real* want, size_t n, double scale);

// The root mean square of values (n).
template <class Real>
double root_mean_square(const Real* values, size_t n);

// Limits of relative() and of largest.
struct DifferenceLimits {
    double relative, largest;
};

// fp32: 1e-3 for both, which allows any order of summation but no wrong index. 16-bit types: both sides
// round, so an element differs by at most one unit in the last place (2^-7 in bf16, 2^-10 in fp16). The whole
// may differ by half a unit; two independent roundings cause 0.6 of that.
template <class Real>
constexpr DifferenceLimits difference_limits() {
    if constexpr (sizeof(Real) == 4) return {1e-3, 1e-3};
    return std::is_same_v<Real, bf16> ? DifferenceLimits{0x1p-8, 0x1p-7} : DifferenceLimits{0x1p-11, 0x1p-10};
}

// Throws Error, naming `what`, unless error <= limit.
void check_limit(const std::string& what, const char* error_name, double error, double limit);

// Checks both errors.
template <class Real>
void check_difference(const std::string& what, const Difference& difference);
