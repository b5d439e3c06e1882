// Linear layer of a single row: CPU version, GPU version, its table, and the choice that generation makes.
#include "llmc/matvec.h"

#include <algorithm>

#include "llmc/packs.h"
#include "llmc/simd.h"
#include "shaders/args.h"

static const int ROWS = 4;  // of the weights that are read side by side: as many streams from memory

// `rows` numbers of out; the pointers point to the first of them.
template <class T>
static inline void dot_rows(T* out, const float* x, const T* weight, const T* bias, int rows, int C) {
    for (int row = 0; row < rows; row += ROWS) {
        const T* w[ROWS];
        for (int i = 0; i < ROWS; i++) w[i] = weight + size_t(std::min(row + i, rows - 1)) * C;
        float a = 0, b = 0, c = 0, d = 0;
#pragma omp simd reduction(+ : a, b, c, d)
        for (int k = 0; k < C; k++) {
            a += x[k] * float(w[0][k]);
            b += x[k] * float(w[1][k]);
            c += x[k] * float(w[2][k]);
            d += x[k] * float(w[3][k]);
        }
        const float sums[ROWS] = {a, b, c, d};
        for (int i = 0; i < ROWS && row + i < rows; i++)
            out[row + i] = T(sums[i] + (bias ? float(bias[row + i]) : 0.0f));
    }
}

SIMD_CLONES static void dot_block(float* out, const float* x, const float* weight, const float* bias,
                                  int rows, int C) {
    dot_rows(out, x, weight, bias, rows, C);
}
SIMD_CLONES static void dot_block(bf16* out, const float* x, const bf16* weight, const bf16* bias, int rows,
                                  int C) {
    dot_rows(out, x, weight, bias, rows, C);
}
SIMD_CLONES static void dot_block(fp16* out, const float* x, const fp16* weight, const fp16* bias, int rows,
                                  int C) {
    dot_rows(out, x, weight, bias, rows, C);
}

template <class T>
void matvec_forward_cpu(T* out, const T* inp, const T* weight, const T* bias, int C, int OC) {
    const std::vector<float> x(inp, inp + C);
    const int block = 32;  // rows that a thread takes at once: 128 bytes of an fp32 result
#pragma omp parallel for schedule(static)
    for (int first = 0; first < OC; first += block)
        dot_block(out + first, x.data(), weight + size_t(first) * C, bias ? bias + first : nullptr,
                  std::min(block, OC - first), C);
}

template <class T>
static void matvec_forward1(LaunchPad& pad, T* out, const T* inp, const T* weight, const T* bias, int C,
                            int OC, int block_size) {
    const size_t c = C, oc = OC;
    const MatmulForwardArgs args = {
        pad.at(out, oc), pad.at(inp, c), pad.at(weight, oc * c), pad.at(bias, oc), 1, C, OC};
    const uint32_t rows = std::max(1u, uint32_t(block_size) / pad.limits().subgroup_size);
    const uint32_t width = wide_pack_width<T>(c, {args.inp, args.weight});
    pad.dispatch<T>("matvec_forward1", {blocks(oc, rows)}, {rows * pad.limits().subgroup_size, width}, args,
                    moves<T>(double(oc) * double(c)));
}

template <class T>
std::vector<KernelVersion<MatvecForward<T>>> matvec_forward_versions() {
    return {{"matvec_forward1", "one subgroup per number", matvec_forward1<T>, {128, 32, 64, 256}}};
}

template <class T>
void matvec_forward(LaunchPad* pad, T* out, const T* inp, const T* weight, const T* bias, int C, int OC) {
    if (!pad) return matvec_forward_cpu(out, inp, weight, bias, C, OC);
    matvec_forward1(*pad, out, inp, weight, bias, C, OC, 128);
}

#define INSTANTIATE(T)                                                               \
    template std::vector<KernelVersion<MatvecForward<T>>> matvec_forward_versions(); \
    template void matvec_forward_cpu(T*, const T*, const T*, const T*, int, int);    \
    template void matvec_forward(LaunchPad*, T*, const T*, const T*, const T*, int, int);
FOR_EACH_REAL(INSTANTIATE)
