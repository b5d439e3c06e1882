// Transposes and copies between the rows of a head and the panels of the GEMM microkernels. CMakeLists.txt
// allows fused multiply-adds in the files of attention on the CPU.
#include "llmc/cpu/attention_panels.h"

#include "llmc/cpu/vector_math.h"

static SIMD_INLINE void transpose_rows(float* dst, int nr, const FloatRows& rows, int columns, int K,
                                       float factor) {
    const auto [src, ld] = rows;
    for (int c = 0; c < nr; c += 4) {
        int k = 0;
        if (c + 4 <= columns)
            for (; k + 4 <= K; k += 4) {
                Float4 r[4];
                for (int i = 0; i < 4; i++) r[i] = load4(src + (c + i) * ld + k) * factor;
                transpose4(dst + size_t(k) * nr + c, nr, r);
            }
        for (; k < K; k++)
            for (int i = c; i < c + 4; i++)
                dst[size_t(k) * nr + i] = i < columns ? src[i * ld + k] * factor : 0.0f;
    }
}

template <class Real>
static SIMD_INLINE void pack_all(const ChannelPanels& dst, const Real* src, size_t ld, int count, int hs) {
    with_constant(
        dst.nr, [&](auto width) __attribute__((always_inline)) {
            constexpr int NR = width;
            for (int i = 0; i < count; i++, src += ld) {
                int c = 0;
                for (; c + NR <= hs; c += NR) {
                    float* to = dst.panel(c) + size_t(i) * NR;
#pragma omp simd
                    for (int j = 0; j < NR; j++) to[j] = float(src[c + j]);
                }
                for (float* to = dst.panel(c) + size_t(i) * NR; c < hs; c++) *to++ = float(src[c]);
            }
        });
}

template <class Real>
static SIMD_INLINE void unpack_all(Real* dst, size_t ld, const ChannelPanels& src, int count, int hs,
                                   const float* factors) {
    with_constant(
        src.nr, [&](auto width) __attribute__((always_inline)) {
            constexpr int NR = width;
            for (int i = 0; i < count; i++, dst += ld)
                for (int c = 0; c < hs; c += NR) {
                    const float* from = src.panel(c) + size_t(i) * NR;
                    if (c + NR <= hs)
                        store_scaled(dst + c, from, NR, factors[i]);
                    else
                        store_scaled(dst + c, from, hs - c, factors[i]);
                }
        });
}

void transpose(float* dst, int nr, const FloatRows& rows, int columns, int K, float factor) {
    simd<transpose_rows>(dst, nr, rows, columns, K, factor);
}
template <class Real>
void pack_channels(const ChannelPanels& dst, const Real* src, size_t ld, int count, int hs) {
    simd<pack_all<Real>>(dst, src, ld, count, hs);
}
template <class Real>
void unpack_channels(Real* dst, size_t ld, const ChannelPanels& src, int count, int hs,
                     const float* factors) {
    simd<unpack_all<Real>>(dst, ld, src, count, hs, factors);
}

#define INSTANTIATE(Real)                                                             \
    template void pack_channels(const ChannelPanels&, const Real*, size_t, int, int); \
    template void unpack_channels(Real*, size_t, const ChannelPanels&, int, int, const float*);
FOR_EACH_REAL(INSTANTIATE)
