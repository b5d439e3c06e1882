// The linear layers on the CPU: which product each of them is. Results do not depend on the number of
// threads.
#include <algorithm>

#include "llmc/cpu_times.h"
#include "llmc/matmul.h"
#include "llmc/product_cpu.h"
#include "llmc/simd.h"

static Work product_work(int N, int C, int OC) { return {.flops = 2.0 * N * C * OC}; }

// The weights are the rows, since they need no transposing there: out^T = weight inp^T.
template <class T>
void matmul_forward_cpu(T* out, const T* inp, const T* weight, const T* bias, int N, int C, int OC) {
    const CpuTimer timer("matmul_forward", product_work(N, C, OC), {N, C, OC});
    const Operand<T> a = {weight, size_t(C), false}, b = {inp, size_t(C), false};
    product_cpu({out, size_t(OC), true, false, bias}, a, b, OC, N, C);
}

template <class T>
void matmul_dinp_cpu(T* dinp, const T* dout, const T* weight, int N, int C, int OC) {
    const CpuTimer timer("matmul_dinp", product_work(N, C, OC), {N, C, OC});
    const Operand<T> a = {dout, size_t(OC), false}, b = {weight, size_t(C), true};
    product_cpu<T>({dinp, size_t(C), false, false, nullptr}, a, b, N, C, OC);
}

template <class T>
void matmul_dweight_cpu(T* dweight, const T* dout, const T* inp, int N, int C, int OC, bool accumulate) {
    const CpuTimer timer("matmul_dweight", product_work(N, C, OC), {N, C, OC});
    const Operand<T> a = {dout, size_t(OC), true}, b = {inp, size_t(C), true};
    product_cpu<T>({dweight, size_t(C), false, accumulate, nullptr}, a, b, OC, C, N);
}

static const int DBIAS_COLUMNS = 64;  // that a thread sums at once: whole cache lines, in registers

// dbias += the sums of columns, n of them at most DBIAS_COLUMNS, down N rows.
template <class T>
static inline __attribute__((always_inline)) void sum_columns(T* dbias, const T* dout, int N, size_t ld,
                                                              int n) {
    float sums[DBIAS_COLUMNS] = {};
    for (int row = 0; row < N; row++, dout += ld)
#pragma omp simd
        for (int c = 0; c < n; c++) sums[c] += float(dout[c]);
    for (int c = 0; c < n; c++) dbias[c] = T(float(dbias[c]) + sums[c]);
}
template <class T>
static inline __attribute__((always_inline)) void sum_piece(T* dbias, const T* dout, int N, size_t ld,
                                                            int n) {
    if (n == DBIAS_COLUMNS)
        return sum_columns(dbias, dout, N, ld, DBIAS_COLUMNS);  // a constant: sums in registers
    sum_columns(dbias, dout, N, ld, n);
}
SIMD_CLONES static void add_columns(float* dbias, const float* dout, int N, size_t ld, int n) {
    sum_piece(dbias, dout, N, ld, n);
}
SIMD_CLONES static void add_columns(bf16* dbias, const bf16* dout, int N, size_t ld, int n) {
    sum_piece(dbias, dout, N, ld, n);
}
SIMD_CLONES static void add_columns(fp16* dbias, const fp16* dout, int N, size_t ld, int n) {
    sum_piece(dbias, dout, N, ld, n);
}

template <class T>
void matmul_dbias_cpu(T* dbias, const T* dout, int N, int OC) {
    const CpuTimer timer("matmul_dbias", moves<T>(double(N) * OC));
#pragma omp parallel for
    for (int first = 0; first < OC; first += DBIAS_COLUMNS)
        add_columns(dbias + first, dout + first, N, size_t(OC), std::min(DBIAS_COLUMNS, OC - first));
}

#define INSTANTIATE(T)                                                                 \
    template void matmul_forward_cpu(T*, const T*, const T*, const T*, int, int, int); \
    template void matmul_dinp_cpu(T*, const T*, const T*, int, int, int);              \
    template void matmul_dweight_cpu(T*, const T*, const T*, int, int, int, bool);     \
    template void matmul_dbias_cpu(T*, const T*, int, int);
FOR_EACH_REAL(INSTANTIATE)
