// How far results lie from those they should equal, and how far they may: for the programs of the report,
// which compare what GPU and CPU compute before they say how quickly. A NaN or an infinity anywhere fails.
#pragma once
#include <cstddef>
#include <string>
#include <type_traits>

#include "llmc/real.h"

// Sums over any number of add() calls.
struct Difference {
    double squares = 0, error_squares = 0;  // of what was wanted, of the differences
    double largest = 0;                     // difference, relative to |wanted| + scale; infinite for a NaN
    double relative() const;                // L2 norm of the differences over that of what was wanted
};

// got, want (n). scale: the usual magnitude of the results (root mean square), so that an element which comes
// out near zero may be as wrong as others.
template <class T>
void add_difference(Difference& sum, const T* got, const T* want, size_t n, double scale);

// The root mean square of values (n).
template <class T>
double root_mean_square(const T* values, size_t n);

// What both of two right results may make of it.
struct DifferenceLimits {
    double relative, largest;
};

// fp32: 1e-3 both, which leaves any order of summation room and no wrong index. 16-bit types: results are
// rounded on both sides, so that an element differs by one unit in its last place at most (2^-7 in bf16,
// 2^-10 in fp16), and the whole by half of that, of which two independent roundings make 0.6.
template <class T>
constexpr DifferenceLimits difference_limits() {
    if constexpr (sizeof(T) == 4) return {1e-3, 1e-3};
    return std::is_same_v<T, bf16> ? DifferenceLimits{0x1p-8, 0x1p-7} : DifferenceLimits{0x1p-11, 0x1p-10};
}

// Error, naming `what`, unless error <= limit.
void check_limit(const std::string& what, const char* error_name, double error, double limit);
