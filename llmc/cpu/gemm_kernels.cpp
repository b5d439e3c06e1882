// The microkernels of the CPU's GEMMs. CMakeLists.txt allows fused multiply-adds in this file.
#include "llmc/cpu/gemm_kernels.h"

#include <type_traits>

#include "llmc/cpu/amx.h"

// A unit that is a pair of bf16.
struct Pair {
    uint32_t bits;
};

// sum += x * v for a unit x and a vector of units v. In an unrolled loop, g++ 12 moves the AVX2 accumulators
// from register to register and spills some, unless it has no choice of the instruction.
template <class Vector>
SIMD_INLINE void multiply_add(Vector& sum, float x, const Vector& v) {
    sum += x * v;
}
#if defined(__x86_64__)
template <>
SIMD_INLINE void multiply_add(Float8& sum, float x, const Float8& v) {
    const Float8 broadcast = x - Float8{};
    asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(broadcast), "x"(v));
}
SIMD_INLINE void multiply_add(Float16& sum, Pair x, const Float16& v) {
    typedef uint32_t Bits __attribute__((vector_size(64)));
    const Bits broadcast = x.bits - Bits{};
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(broadcast), "v"(v));
}
#elif defined(__aarch64__)
SIMD_INLINE void multiply_add(Float4& sum, Pair x, const Float4& v) {
    typedef uint32_t Bits __attribute__((vector_size(16)));
    const Bits broadcast = x.bits - Bits{};
    asm("bfdot %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(broadcast), "w"(v));
}
#endif

// Multiplies `units` units, a multiple of UNROLL and at least one, and advances a and b. ROW and UNIT are the
// strides of a in bytes, or 0 for a stride that only the caller knows. Fewer instructions per unit leave the
// core room if another program shares it: UNROLL spares pointer updates, constant strides spare registers.
template <class Unit, int UNROLL, int ROW, int UNIT, class Vector, int MR, int NV>
SIMD_INLINE void multiply_units(Vector (&acc)[MR][NV], const char*& a, const float*& b, const KernelInput& in,
                                int units) {
    constexpr int width = sizeof(Vector) / sizeof(float), POINTERS = ROW ? 1 : (MR + 2) / 3;
    const size_t a_row = ROW ? ROW : in.a_row, a_unit = UNIT ? UNIT : in.a_unit;
    const float* const end = b + size_t(units) * NV * width;
    const char* p[POINTERS];  // one serves three rows of a
#pragma GCC unroll 16
    for (int i = 0; i < POINTERS; i++) p[i] = a + 3 * i * a_row;
    do {  // not a loop that may be skipped: g++ would pass all accumulators through memory after it
#pragma GCC unroll 4
        for (int u = 0; u < UNROLL; u++) {
            Vector row[NV];
#pragma GCC unroll 4
            for (int j = 0; j < NV; j++) memcpy(&row[j], b + (u * NV + j) * width, sizeof(Vector));
#pragma GCC unroll 16
            for (int i = 0; i < MR; i++) {
                Unit x;
                memcpy(&x, ROW ? p[0] + u * a_unit + i * ROW : p[i / 3] + (i % 3) * a_row + u * a_unit,
                       sizeof x);
#pragma GCC unroll 4
                for (int j = 0; j < NV; j++) multiply_add(acc[i][j], x, row[j]);
            }
        }
#pragma GCC unroll 16
        for (int i = 0; i < POINTERS; i++) p[i] += UNROLL * a_unit;
        b += UNROLL * NV * width;
    } while (b != end);
    a = p[0];
}

// A microkernel of MR rows by NV vectors, which occupies MR * NV + NV + 1 registers. The loops over rows and
// vectors must be fully unrolled to keep the accumulators in registers.
template <class Unit, class Vector, int MR, int NV>
SIMD_INLINE void multiply_micro_panels(float* tile, const KernelInput& in) {
    constexpr int width = sizeof(Vector) / sizeof(float);
    // Only measured for AVX2.
    constexpr int UNROLL = std::is_same_v<Vector, Float8> ? 4 : 1;
    Vector acc[MR][NV] = {};
    if (in.add)
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
            for (int j = 0; j < NV; j++) memcpy(&acc[i][j], tile + (i * NV + j) * width, sizeof(Vector));
    const char* a = in.a;
    const float* b = in.b;
    if constexpr (UNROLL == 1) {
        multiply_units<Unit, 1, 0, 0>(acc, a, b, in, in.units);
    } else {
        const int odd = in.units % UNROLL;
        if (odd) multiply_units<Unit, 1, 0, 0>(acc, a, b, in, odd);
        if (in.units < UNROLL) {
        } else if (in.a_unit == sizeof(float)) {
            multiply_units<Unit, UNROLL, 0, sizeof(float)>(acc, a, b, in, in.units - odd);
        } else {
            multiply_units<Unit, UNROLL, sizeof(float), 0>(acc, a, b, in, in.units - odd);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
        for (int j = 0; j < NV; j++) memcpy(tile + (i * NV + j) * width, &acc[i][j], sizeof(Vector));
}

#if defined(__x86_64__)
template <int MR>
__attribute__((target("avx512f"))) void kernel_avx512(float* tile, const KernelInput& in) {
    multiply_micro_panels<float, Float16, MR, 2>(tile, in);
}
template <int MR>
__attribute__((target("avx2,fma"))) void kernel_avx2(float* tile, const KernelInput& in) {
    multiply_micro_panels<float, Float8, MR, 2>(tile, in);
}
template <int MR>
void kernel_base(float* tile, const KernelInput& in) {
    multiply_micro_panels<float, Float4, MR, 2>(tile, in);
}
template <int MR>
__attribute__((target("avx512f,avx512bf16"))) void kernel_bf16(float* tile, const KernelInput& in) {
    multiply_micro_panels<Pair, Float16, MR, 2>(tile, in);
}

// Each TDPBF16PS multiplies 16 rows of a, 16 pairs each, by 16 units of 16 columns of b. Tile registers 0 to
// 3 hold accumulators, 4 and 5 rows of a, 6 and 7 columns of b.
template <int MR>
__attribute__((target("amx-tile,amx-bf16"))) void kernel_amx(float* tile, const KernelInput& in) {
    const int row = 32 * sizeof(float);  // bytes, of the tile and of b
    const char *upper = in.a, *lower = in.a + 16 * in.a_row, *b = reinterpret_cast<const char*>(in.b);
    float* below = tile + 16 * 32;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (in.add) {
        load_tile<0>(tile, row);
        load_tile<1>(tile + 16, row);
        if constexpr (MR == 32) {
            load_tile<2>(below, row);
            load_tile<3>(below + 16, row);
        }
    }
    for (int u = 0; u < in.units; u += 16, upper += 64, lower += 64, b += 16 * row) {
        load_tile<4>(upper, in.a_row);
        load_tile<6>(b, row);
        load_tile<7>(b + 64, row);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if constexpr (MR == 32) {
            load_tile<5>(lower, in.a_row);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    store_tile<0>(tile, row);
    store_tile<1>(tile + 16, row);
    if constexpr (MR == 32) {
        store_tile<2>(below, row);
        store_tile<3>(below + 16, row);
    }
}

static const KernelSet base_set = {
    .mr = 6, .nr = 8, .row_step = 2, .run = {kernel_base<2>, kernel_base<4>, kernel_base<6>}};
static const KernelSet avx2_set = {.mr = 6,
                                   .nr = 16,
                                   .row_step = 2,
                                   .b_in_l1 = true,
                                   .run = {kernel_avx2<2>, kernel_avx2<4>, kernel_avx2<6>}};
static const KernelSet avx512_set = {
    .mr = 12, .nr = 32, .row_step = 4, .run = {kernel_avx512<4>, kernel_avx512<8>, kernel_avx512<12>}};
static const KernelSet bf16_set = {.mr = 12,
                                   .nr = 32,
                                   .row_step = 4,
                                   .bf16_pairs = true,
                                   .run = {kernel_bf16<4>, kernel_bf16<8>, kernel_bf16<12>}};
static const KernelSet amx_set = {.mr = 32,
                                  .nr = 32,
                                  .row_step = 16,
                                  .bf16_pairs = true,
                                  .unit_multiple = 16,
                                  .run = {kernel_amx<16>, kernel_amx<32>},
                                  .begin = configure_tiles,
                                  .end = release_tiles};

template <class Real>
const KernelSet& best_kernels() {
    const SimdLevel level = simd_level();
    if (level >= SIMD_BF16 && std::is_same_v<Real, bf16>) return level >= SIMD_AMX ? amx_set : bf16_set;
    return level >= SIMD_AVX512 ? avx512_set : level >= SIMD_AVX2 ? avx2_set : base_set;
}
#else
// For NEON and similar: 32 registers of four floats. With NV = 4, g++ 12 spills one of the 24 accumulators.
template <int MR>
void kernel_base(float* tile, const KernelInput& in) {
    multiply_micro_panels<float, Float4, MR, 3>(tile, in);
}
static const KernelSet base_set = {
    .mr = 6, .nr = 12, .row_step = 2, .run = {kernel_base<2>, kernel_base<4>, kernel_base<6>}};

#if defined(__aarch64__) && defined(__linux__)
template <int MR>
__attribute__((target("arch=armv8.2-a+bf16"))) void kernel_bf16(float* tile, const KernelInput& in) {
    multiply_micro_panels<Pair, Float4, MR, 3>(tile, in);
}
static const KernelSet bf16_set = {.mr = 6,
                                   .nr = 12,
                                   .row_step = 2,
                                   .bf16_pairs = true,
                                   .run = {kernel_bf16<2>, kernel_bf16<4>, kernel_bf16<6>}};
#endif

template <class Real>
const KernelSet& best_kernels() {
#if defined(__aarch64__) && defined(__linux__)
    if (simd_level() >= SIMD_BF16 && std::is_same_v<Real, bf16>) return bf16_set;
#endif
    return base_set;
}
#endif

template <class Real>
static SIMD_INLINE void copy_any(float* dst, size_t dst_ld, const Real* src, size_t ld, int rows, int n) {
    for (int i = 0; i < rows; i++, dst += dst_ld, src += ld)
#pragma omp simd
        for (int j = 0; j < n; j++) dst[j] = float(src[j]);
}
// The constants are the widths of AVX2's packed panels. If n is a variable, g++ converts the last elements of
// each row one by one.
template <class Real>
static SIMD_INLINE void copy_rows(float* dst, size_t dst_ld, const Real* src, size_t ld, int rows, int n) {
    if (n == 16) return copy_any(dst, dst_ld, src, ld, rows, 16);
    if (n == 24) return copy_any(dst, dst_ld, src, ld, rows, 24);
    copy_any(dst, dst_ld, src, ld, rows, n);
}

template <class Real>
void copy_to_floats(float* dst, size_t dst_ld, const Real* src, size_t ld, int rows, int n) {
    simd<copy_rows<Real>>(dst, dst_ld, src, ld, rows, n);
}

#define INSTANTIATE(Real)                           \
    template const KernelSet& best_kernels<Real>(); \
    template void copy_to_floats(float*, size_t, const Real*, size_t, int, int);
FOR_EACH_REAL(INSTANTIATE)
