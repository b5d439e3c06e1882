// Linear layer of a single row: the CPU version, the GPU version, its table, and the function that generation
// calls.
#include "llmc/layers/matvec.h"

#include <algorithm>

#include "llmc/base/ceil_div.h"
#include "llmc/cpu/simd.h"
#include "llmc/layers/packs.h"
#include "shaders/args.h"

static const int ROWS = 4;  // rows of the weight read together, as concurrent memory streams

template <class Real>
static inline void dot_in_groups(float* sums, const float* x, const Real* weight, int rows, int C) {
    for (int row = 0; row < rows; row += ROWS) {
        const Real* w[ROWS];
        for (int i = 0; i < ROWS; i++) w[i] = weight + size_t(std::min(row + i, rows - 1)) * C;
        float a = 0, b = 0, c = 0, d = 0;
#pragma omp simd reduction(+ : a, b, c, d)
        for (int k = 0; k < C; k++) {
            a += x[k] * float(w[0][k]);
            b += x[k] * float(w[1][k]);
            c += x[k] * float(w[2][k]);
            d += x[k] * float(w[3][k]);
        }
        const float results[ROWS] = {a, b, c, d};
        for (int i = 0; i < ROWS && row + i < rows; i++) sums[row + i] = results[i];
    }
}

SIMD_CLONES static void dot_block(float* sums, const float* x, const float* weight, int rows, int C) {
    dot_in_groups(sums, x, weight, rows, C);
}
SIMD_CLONES static void dot_block(float* sums, const float* x, const bf16* weight, int rows, int C) {
    dot_in_groups(sums, x, weight, rows, C);
}
SIMD_CLONES static void dot_block(float* sums, const float* x, const fp16* weight, int rows, int C) {
    dot_in_groups(sums, x, weight, rows, C);
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
