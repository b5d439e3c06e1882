// The matrix products of the linear layers on the CPU. One blocked product serves all three: each thread
// takes tiles of the output; for a stretch of K it packs the two operands into panels, in the order in which
// the inner kernel reads them, and the kernel keeps MR x NR sums in vector registers. This follows Goto and
// van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008). The order of the additions
// depends on K alone, so results do not depend on the number of threads. CMakeLists.txt allows fused
// multiply-adds in this file.
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "llmc/matmul.h"

// One operand, seen as (rows, K): element (r, k) is p[r * ld + k], or p[k * ld + r] where k_major.
template <class T>
struct Operand {
    const T* p;
    size_t ld;
    bool k_major;
};

// Sums of one kernel call: tile (MR,NR) = a (kc,MR)^T b (kc,NR), panels as packed below.
using Kernel = void(float* tile, const float* a, const float* b, int kc);

struct KernelShape {
    int mr, nr;  // multiples of 4
    Kernel* run;
};

static constexpr int k_stretch = 256;  // of K packed at a time: panels of 12 + 32 rows take 44 KiB
static constexpr int max_mr = 12, max_nr = 32;

typedef float Float4 __attribute__((vector_size(16)));
typedef float Float8 __attribute__((vector_size(32)));
typedef float Float16 __attribute__((vector_size(64)));

// MR rows by NV vectors: MR*NV + NV + 1 registers. The loops over i and j must vanish for the sums to stay in
// them.
template <class Vector, int MR, int NV>
__attribute__((always_inline)) inline void multiply_panels(float* tile, const float* a, const float* b,
                                                           int kc) {
    constexpr int width = sizeof(Vector) / sizeof(float);
    Vector sums[MR][NV] = {};
    for (int k = 0; k < kc; k++, a += MR, b += NV * width) {
        Vector row[NV];
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++) memcpy(&row[j], b + j * width, sizeof(Vector));
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
            for (int j = 0; j < NV; j++) sums[i][j] += a[i] * row[j];
    }
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++) memcpy(tile + (i * NV + j) * width, &sums[i][j], sizeof(Vector));
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void kernel_avx512(float* tile, const float* a, const float* b,
                                                             int kc) {
    multiply_panels<Float16, 12, 2>(tile, a, b, kc);
}
__attribute__((target("avx2,fma"))) static void kernel_avx2(float* tile, const float* a, const float* b,
                                                            int kc) {
    multiply_panels<Float8, 4, 3>(tile, a, b, kc);
}
static void kernel_base(float* tile, const float* a, const float* b, int kc) {
    multiply_panels<Float4, 4, 3>(tile, a, b, kc);
}
static KernelShape best_kernel() {
    if (__builtin_cpu_supports("avx512f")) return {12, 32, kernel_avx512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {4, 24, kernel_avx2};
    return {4, 12, kernel_base};
}
#else
static void kernel_base(float* tile, const float* a, const float* b, int kc) {
    multiply_panels<Float4, 8, 3>(tile, a, b, kc);
}
static KernelShape best_kernel() { return {8, 12, kernel_base}; }
#endif

// Four rows of four, transposed into dst with stride dst_ld.
template <class T>
static inline void transpose4(float* dst, size_t dst_ld, const T* src, size_t ld) {
    Float4 r[4];
    for (int i = 0; i < 4; i++, src += ld)
        r[i] = Float4{float(src[0]), float(src[1]), float(src[2]), float(src[3])};
    const Float4 lo01 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5),
                 hi01 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    const Float4 lo23 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5),
                 hi23 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    const Float4 columns[4] = {
        __builtin_shufflevector(lo01, lo23, 0, 1, 4, 5), __builtin_shufflevector(lo01, lo23, 2, 3, 6, 7),
        __builtin_shufflevector(hi01, hi23, 0, 1, 4, 5), __builtin_shufflevector(hi01, hi23, 2, 3, 6, 7)};
    for (int k = 0; k < 4; k++) memcpy(dst + k * dst_ld, &columns[k], 16);
}

// One panel: dst (kc, width) from `rows` <= width rows of the operand, the rest zero.
template <class T>
static void pack_panel(float* dst, int width, const Operand<T>& x, size_t row, size_t k0, int rows, int kc) {
    if (rows < width) std::fill(dst, dst + size_t(kc) * width, 0.0f);
    if (x.k_major) {
        const T* src = x.p + k0 * x.ld + row;
        for (int k = 0; k < kc; k++)
            for (int r = 0; r < rows; r++) dst[size_t(k) * width + r] = float(src[size_t(k) * x.ld + r]);
        return;
    }
    const T* src = x.p + row * x.ld + k0;
    const int whole_rows = rows / 4 * 4, whole_k = kc / 4 * 4;
    for (int k = 0; k < whole_k; k += 4)
        for (int r = 0; r < whole_rows; r += 4)
            transpose4(dst + size_t(k) * width + r, width, src + r * x.ld + k, x.ld);
    for (int r = 0; r < rows; r++)
        for (int k = r < whole_rows ? whole_k : 0; k < kc; k++)
            dst[size_t(k) * width + r] = float(src[r * x.ld + k]);
}

template <class T>
static void pack(float* dst, int width, const Operand<T>& x, size_t row, size_t k0, int rows, int kc) {
    for (int r = 0; r < rows; r += width, dst += size_t(width) * kc)
        pack_panel(dst, width, x, row + r, k0, std::min(width, rows - r), kc);
}

// What a thread needs for one tile of the output; each keeps its own (0.9 MB at most) until it ends.
struct TileMemory {
    std::vector<float> a, b, sums;  // packed operands; the tile's sums so far, (rows, columns)
};

// sums (rows, columns) of the tile at (row, column) over all of K.
template <class T>
static void tile_sums(TileMemory& memory, const KernelShape& kernel, const Operand<T>& a, const Operand<T>& b,
                      size_t row, size_t column, int rows, int columns, size_t K) {
    float tile[max_mr * max_nr];
    std::fill(memory.sums.begin(), memory.sums.begin() + size_t(rows) * columns, 0.0f);
    for (size_t k0 = 0; k0 < K; k0 += k_stretch) {
        const int kc = int(std::min<size_t>(k_stretch, K - k0));
        pack(memory.a.data(), kernel.mr, a, row, k0, rows, kc);
        pack(memory.b.data(), kernel.nr, b, column, k0, columns, kc);
        for (int j = 0; j < columns; j += kernel.nr)
            for (int i = 0; i < rows; i += kernel.mr) {
                kernel.run(tile, memory.a.data() + size_t(i) * kc, memory.b.data() + size_t(j) * kc, kc);
                const int width = std::min(kernel.nr, columns - j), height = std::min(kernel.mr, rows - i);
                for (int y = 0; y < height; y++)
                    for (int x = 0; x < width; x++)
                        memory.sums[size_t(i + y) * columns + j + x] += tile[y * kernel.nr + x];
            }
    }
}

// out (M,N) = a (M,K) b (N,K)^T + bias (N) + (accumulate ? out : 0).
template <class T>
static void product(T* out, Operand<T> a, Operand<T> b, const T* bias, bool accumulate, size_t M, size_t N,
                    size_t K) {
    static const KernelShape kernel = best_kernel();
    // Large tiles pack less often; smaller ones give every thread work. Multiples of every kernel's shape.
    size_t height = 192, width = 384;
    const size_t wanted = 3 * size_t(omp_get_max_threads());
    while (blocks(M, height) * blocks(N, width) < wanted && width > 96) width /= 2;
    while (blocks(M, height) * blocks(N, width) < wanted && height > 48) height /= 2;
    const size_t down = blocks(M, height), across = blocks(N, width);
#pragma omp parallel
    {
        static thread_local TileMemory memory;
        memory.a.resize(std::max(memory.a.size(), height * k_stretch));
        memory.b.resize(std::max(memory.b.size(), width * k_stretch));
        memory.sums.resize(std::max(memory.sums.size(), height * width));
#pragma omp for schedule(dynamic)
        for (size_t t = 0; t < down * across; t++) {
            const size_t row = t / across * height, column = t % across * width;
            const int rows = int(std::min(height, M - row)), columns = int(std::min(width, N - column));
            tile_sums(memory, kernel, a, b, row, column, rows, columns, K);
            for (int y = 0; y < rows; y++) {
                T* dst = out + (row + y) * N + column;
                const float* sums = memory.sums.data() + size_t(y) * columns;
                for (int x = 0; x < columns; x++)
                    dst[x] = T(sums[x] + (bias ? float(bias[column + x]) : 0.0f) +
                               (accumulate ? float(dst[x]) : 0.0f));
            }
        }
    }
}

template <class T>
void matmul_forward_cpu(T* out, const T* inp, const T* weight, const T* bias, int N, int C, int OC) {
    const Operand<T> a = {inp, size_t(C), false}, b = {weight, size_t(C), false};
    product(out, a, b, bias, false, N, OC, C);
}

template <class T>
void matmul_dinp_cpu(T* dinp, const T* dout, const T* weight, int N, int C, int OC) {
    const Operand<T> a = {dout, size_t(OC), false}, b = {weight, size_t(C), true};
    product<T>(dinp, a, b, nullptr, false, N, C, OC);
}

template <class T>
void matmul_dweight_cpu(T* dweight, const T* dout, const T* inp, int N, int C, int OC) {
    const Operand<T> a = {dout, size_t(OC), true}, b = {inp, size_t(C), true};
    product<T>(dweight, a, b, nullptr, true, OC, C, N);
}

// Threads take stretches of 64 columns (whole cache lines); sums run down the rows.
template <class T>
void matmul_dbias_cpu(T* dbias, const T* dout, int N, int OC) {
#pragma omp parallel for
    for (int first = 0; first < OC; first += 64) {
        const int columns = std::min(64, OC - first);
        float sums[64] = {};
        for (int row = 0; row < N; row++)
            for (int c = 0; c < columns; c++) sums[c] += float(dout[size_t(row) * OC + first + c]);
        for (int c = 0; c < columns; c++) dbias[first + c] = T(float(dbias[first + c]) + sums[c]);
    }
}

#define INSTANTIATE(T)                                                                 \
    template void matmul_forward_cpu(T*, const T*, const T*, const T*, int, int, int); \
    template void matmul_dinp_cpu(T*, const T*, const T*, int, int, int);              \
    template void matmul_dweight_cpu(T*, const T*, const T*, int, int, int);           \
    template void matmul_dbias_cpu(T*, const T*, int, int);
FOR_EACH_REAL(INSTANTIATE)
