// Linear layer of a single row: the CPU version, the GPU version, its table, and the function that generation
// calls.
#include "llmc/layers/matvec.h"

#include <algorithm>
#include <cstring>

#include "llmc/base/ceil_div.h"
#include "llmc/cpu/simd.h"
#include "llmc/launchpad/packs.h"
#include "shaders/args.h"

// v = x (8) in fp32.
static SIMD_INLINE void load(Float8& v, const float* x) { memcpy(&v, x, sizeof v); }
static SIMD_INLINE void load(Float8& v, const bf16* x) {
    typedef uint16_t Bits16 __attribute__((vector_size(16)));
    typedef uint32_t Bits32 __attribute__((vector_size(32)));
    Bits16 bits;
    memcpy(&bits, x, sizeof bits);
    const Bits32 wide = __builtin_convertvector(bits, Bits32) << 16;
    memcpy(&v, &wide, sizeof v);
}

// The dot product of x (C) and w (C). 16-bit weights are prefetched, a page ahead: the hardware's prefetchers
// stop at the end of a page, and converting leaves less time to wait. fp32 is slower with it.
template <class Real>
static SIMD_INLINE float dot(const float* x, const Real* w, int C) {
    constexpr int CHAINS = 4, STEP = CHAINS * 8;
    Float8 acc[CHAINS] = {}, xs, ws;
    int k = 0;
    for (; k + STEP <= C; k += STEP) {
        if (sizeof(Real) == 2)  // an address, since no pointer may point so far past the last row
            __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(w + k) + 4096));
#pragma GCC unroll 4
        for (int i = 0; i < CHAINS; i++) {
            load(xs, x + k + i * 8);
            load(ws, w + k + i * 8);
            acc[i] += xs * ws;
        }
    }
    acc[0] += acc[1] + acc[2] + acc[3];
    float sum = 0;
    for (int i = 0; i < 8; i++) sum += acc[0][i];
    for (; k < C; k++) sum += x[k] * float(w[k]);
    return sum;
}
// A plain loop, which the compiler converts faster.
static SIMD_INLINE float dot(const float* x, const fp16* w, int C) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int k = 0; k < C; k++) sum += x[k] * float(w[k]);
    return sum;
}

template <class Real>
static SIMD_INLINE void dot_all(float* sums, const float* x, const Real* weight, int rows, int C) {
    for (int row = 0; row < rows; row++) sums[row] = dot(x, weight + size_t(row) * C, C);
}

SIMD_CLONES static void dot_block(float* sums, const float* x, const float* weight, int rows, int C) {
    dot_all(sums, x, weight, rows, C);
}
SIMD_CLONES static void dot_block(float* sums, const float* x, const bf16* weight, int rows, int C) {
    dot_all(sums, x, weight, rows, C);
}
SIMD_CLONES static void dot_block(float* sums, const float* x, const fp16* weight, int rows, int C) {
    dot_all(sums, x, weight, rows, C);
}

template <class Real>
void dot_rows(float* sums, const float* x, const Real* weight, int rows, int C) {
    dot_block(sums, x, weight, rows, C);
}

template <class Real>
void matvec_forward_cpu(const MatvecForward<Real>& p) {
    const std::vector<float> x(p.inp, p.inp + p.C);
    const int block = 32;  // rows per task: 128 bytes of an fp32 result
#pragma omp parallel for schedule(static)
    for (int first = 0; first < p.OC; first += block) {
        const int rows = std::min(block, p.OC - first);
        float sums[block];
        dot_block(sums, x.data(), p.weight + size_t(first) * p.C, rows, p.C);
        for (int i = 0; i < rows; i++)
            p.out[first + i] = Real(sums[i] + (p.bias ? float(p.bias[first + i]) : 0.0f));
    }
}

template <class Real>
static void matvec_forward1(LaunchPad& pad, const MatvecForward<Real>& p, int block_size) {
    const size_t C = p.C, OC = p.OC;
    const MatmulForwardArgs args = {
        pad.at(p.out, OC), pad.at(p.inp, C), pad.at(p.weight, OC * C), pad.at(p.bias, OC), 1, p.C, p.OC};
    const uint32_t subgroup_size = pad.limits().subgroup_size;
    const uint32_t rows = std::max(1u, uint32_t(block_size) / subgroup_size);
    const uint32_t width = wide_pack_width<Real>(C, {args.inp, args.weight});
    check_iterations(pad, "matvec_forward1", ceil_div(C / width, subgroup_size));
    pad.dispatch<Real>("matvec_forward1", {ceil_div(OC, rows)}, {rows * subgroup_size, width}, args,
                       memory_traffic<Real>(double(OC) * double(C)));
}

template <class Real>
std::vector<KernelVersion<MatvecForward<Real>>> matvec_forward_versions() {
    return {{"matvec_forward1", "one subgroup per output", matvec_forward1<Real>, {128, 32, 64, 256}}};
}

template <class Real>
void matvec_forward(LaunchPad* pad, const MatvecForward<Real>& p) {
    if (!pad) return matvec_forward_cpu(p);
    matvec_forward1(*pad, p, 128);
}

#define INSTANTIATE(Real)                                                               \
    template std::vector<KernelVersion<MatvecForward<Real>>> matvec_forward_versions(); \
    template void dot_rows(float*, const float*, const Real*, int, int);                \
    template void matvec_forward_cpu(const MatvecForward<Real>&);                       \
    template void matvec_forward(LaunchPad*, const MatvecForward<Real>&);
FOR_EACH_REAL(INSTANTIATE)
