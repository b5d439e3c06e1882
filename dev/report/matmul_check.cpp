// The check of a product: see matmul_check.h.
#include "dev/report/matmul_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "llmc/error.h"
#include "llmc/matmul.h"

using Signs = std::array<double, 4>;  // of one element, for each of four checksums

// By a hash of j.
static Signs signs(int j) {
    uint32_t h = uint32_t(j) * 2654435761u;
    h = (h ^ (h >> 15)) * 2246822519u;
    h = (h ^ (h >> 13)) * 3266489917u;
    return {h & 1u << 28 ? 1. : -1., h & 1u << 29 ? 1. : -1., h & 1u << 30 ? 1. : -1.,
            h & 1u << 31 ? 1. : -1.};
}

// weight (OC,C)^T times the four sign vectors, (C), each thread a block of columns down all rows.
template <class T>
static std::vector<Signs> signed_column_sums(const T* weight, int C, int OC) {
    std::vector<Signs> sums(C, Signs{});
    const int block = 64;
#pragma omp parallel for
    for (int first = 0; first < C; first += block)
        for (int j = 0; j < OC; j++) {
            const T* row = weight + size_t(j) * C;
            const Signs sign = signs(j);
            for (int k = first; k < std::min(first + block, C); k++)
                for (size_t s = 0; s < 4; s++) sums[k][s] += sign[s] * double(float(row[k]));
        }
    return sums;
}

// The error of one row: out (OC), inp (C).
template <class T>
static double row_error(const T* out, const T* inp, const std::vector<Signs>& row_signs,
                        const std::vector<Signs>& sums) {
    Signs wrong = {};
    double squares = 0;
    for (size_t j = 0; j < row_signs.size(); j++) {
        const double v = double(float(out[j]));
        for (size_t s = 0; s < 4; s++) wrong[s] += row_signs[j][s] * v;
        squares += v * v;
    }
    for (size_t k = 0; k < sums.size(); k++)
        for (size_t s = 0; s < 4; s++) wrong[s] -= double(float(inp[k])) * sums[k][s];
    double sum = 0;
    for (double w : wrong) sum += w * w / 4;
    return std::sqrt(sum / squares);
}

template <class T>
double checksum_error(const T* out, const T* inp, const T* weight, int N, int C, int OC) {
    const std::vector<Signs> sums = signed_column_sums(weight, C, OC);
    std::vector<Signs> row_signs;
    for (int j = 0; j < OC; j++) row_signs.push_back(signs(j));
    double largest = 0;
#pragma omp parallel for reduction(max : largest)
    for (int i = 0; i < N; i++) {
        const double error = row_error(out + size_t(i) * OC, inp + size_t(i) * C, row_signs, sums);
        largest = std::max(largest, error <= HUGE_VAL ? error : HUGE_VAL);  // NaN is not <=
    }
    return largest;
}

template <class T>
MatmulErrors matmul_errors(const T* out, const T* want, const T* inp, const T* weight, int N, int C, int OC) {
    MatmulErrors errors;
    errors.checksum = checksum_error(out, inp, weight, N, C, OC);
    Difference difference;
    if (want) {
        errors.rows = N;
        add_difference(difference, out, want, size_t(N) * OC, root_mean_square(want, size_t(N) * OC));
    } else {
        errors.rows = std::min(N, MATMUL_CHECK_ROWS);
        std::vector<T> row(OC);
        for (int r = 0; r < errors.rows; r++) {
            const size_t i = errors.rows > 1 ? size_t(r) * size_t(N - 1) / size_t(errors.rows - 1) : 0;
            matmul_forward_cpu<T>(row.data(), inp + i * C, weight, nullptr, 1, C, OC);
            add_difference(difference, out + i * OC, row.data(), OC, root_mean_square(row.data(), OC));
        }
    }
    errors.relative = difference.relative();
    errors.largest = difference.largest;
    return errors;
}

template <class T>
void check_matmul(const MatmulErrors& errors, int N, int C, int OC) {
    const DifferenceLimits limits = difference_limits<T>();
    const std::string what = N == C && C == OC
                                 ? format_string("%s product of size %d", real_name<T>(), N)
                                 : format_string("%s product of %d x %d x %d", real_name<T>(), N, C, OC);
    check_limit(what, "relative L2 error", errors.relative, limits.relative);
    check_limit(what, "largest error of an element", errors.largest, limits.largest);
    check_limit(what, "largest error of a row's checksum", errors.checksum, limits.largest);
}

template <class T>
void plant_wrong_element(T* values, size_t n) {
    T& chosen = values[2 * n / 3];
    chosen = T(float(chosen) + float(root_mean_square(values, n)));
}

#define INSTANTIATE(T)                                                                          \
    template double checksum_error(const T*, const T*, const T*, int, int, int);                \
    template MatmulErrors matmul_errors(const T*, const T*, const T*, const T*, int, int, int); \
    template void check_matmul<T>(const MatmulErrors&, int, int, int);                          \
    template void plant_wrong_element(T*, size_t);
FOR_EACH_REAL(INSTANTIATE)
