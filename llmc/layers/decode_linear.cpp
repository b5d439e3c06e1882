// Linear layer of the newest rows: the CPU version, the GPU version, its table, and the function that
// generation calls.
#include "llmc/layers/decode_linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "llmc/base/ceil_div.h"
#include "llmc/cpu/simd.h"
#include "llmc/launchpad/packs.h"
#include "llmc/layers/gelu.h"
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

// x (B,C)
template <class Real>
static std::vector<float> inputs_of(const DecodeLinear<Real>& p) {
    const size_t C = p.C, B = p.num_texts;
    if (p.inp) return std::vector<float>(p.inp, p.inp + B * C);
    std::vector<float> x(p.stream, p.stream + B * C);
    for (size_t b = 0; b < B; b++) {
        float *row = &x[b * C], sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t c = 0; c < C; c++) sum += row[c];
        const float mean = sum / float(C);
#pragma omp simd reduction(+ : squares)
        for (size_t c = 0; c < C; c++) squares += (row[c] - mean) * (row[c] - mean);
        const float rstd = 1 / std::sqrt(squares / float(C) + LAYERNORM_EPSILON);
        for (size_t c = 0; c < C; c++) row[c] = (row[c] - mean) * rstd * float(p.gain[c]) + float(p.shift[c]);
    }
    return x;
}

template <class Real>
static void decode_linear_cpu(const DecodeLinear<Real>& p) {
    const std::vector<float> x = inputs_of(p);
    const int block = 32;  // rows per task, which stay in the cache while all texts use them
    auto row_of = [&](int b) {
        return p.out + b * p.text_stride + size_t(p.positions ? p.positions[b] : 0) * p.OC;
    };
#pragma omp parallel for schedule(static)
    for (int first = 0; first < p.OC; first += block) {
        const int rows = std::min(block, p.OC - first);
        for (int b = 0; b < p.num_texts; b++) {
            float sums[block];
            simd<dot_all<Real>>(sums, &x[size_t(b) * p.C], p.weight + size_t(first) * p.C, rows, p.C);
            for (int i = 0; i < rows; i++) {
                if (p.bias) sums[i] += float(p.bias[first + i]);
                if (p.epilogue == DecodeEpilogue::add)
                    p.stream[size_t(b) * p.OC + first + i] += sums[i];
                else
                    row_of(b)[first + i] = Real(sums[i]);
            }
        }
    }
    for (int b = 0; b < p.num_texts && p.epilogue == DecodeEpilogue::gelu; b++)
        gelu_forward<Real>(nullptr, {.out = row_of(b), .inp = row_of(b), .n = size_t(p.OC)});
}

// How the kernel divides the work: specialization constants 0 to 4.
struct DecodeGrid {
    uint32_t block, width, packs, rows, texts;
};

template <class Real>
static DecodeGrid decode_grid(const Limits& limits, const DecodeLinear<Real>& p, const DecodeLinearArgs& args,
                              int block_size) {
    DecodeGrid grid = {};
    const uint32_t subgroup = limits.subgroup_size, C = uint32_t(p.C);
    grid.block = std::max(1u, uint32_t(block_size) / subgroup) * subgroup;
    grid.width = wide_pack_width<Real>(C, {args.stream, args.inp, args.gain, args.shift, args.weight});
    grid.rows = p.OC >= 16384 ? 4 : 1;  // enough subgroups for every SM
    const uint32_t most_packs = std::max(1u, (limits.few_registers ? 4 : 12) / grid.rows);
    grid.packs = std::min(most_packs, uint32_t(ceil_div(C / grid.width, subgroup)));
    // normalized rows are fp32 and take a vector of four per column of a pack
    const uint32_t row_bytes = grid.width == 1 ? C * 16 : C * 4;
    const uint32_t shared_bytes = std::min(limits.shared_bytes, 32768u);  // so that two workgroups fit an SM
    const uint32_t fitting = p.inp ? 16 : shared_bytes / row_bytes;
    if (!fitting)
        fail(
            "a model of %d channels needs %u bytes of shared memory, and the kernel may take %u: use "
            "--device cpu",
            p.C, row_bytes, shared_bytes);
    grid.texts = std::min({uint32_t(p.num_texts), fitting, limits.few_registers ? 8u : 16u});
    return grid;
}

// Whether normalizing the texts takes so long that a workgroup should do it once for many rows. With a single
// text, generating takes 3 % longer that way on an H200.
template <class Real>
static bool normalizes_many(const DecodeLinear<Real>& p) {
    return !p.inp && p.num_texts > 4;
}
// The workgroups that then take turns at the rows: about as many as run at once, if that is known.
static uint64_t most_workgroups(const LaunchPad& pad, const DecodeGrid& grid) {
    const uint64_t units = pad.limits().compute_units;
    return units ? std::max<uint64_t>(1, 1024 / grid.block) * units : UINT32_MAX;
}

template <class Real>
static void decode_linear1(LaunchPad& pad, const DecodeLinear<Real>& p, int block_size) {
    const size_t C = p.C, OC = p.OC, B = p.num_texts;
    const bool add = p.epilogue == DecodeEpilogue::add;
    if (add && !p.inp) fail("decode_linear: add needs inp, since it overwrites the stream");
    DecodeLinearArgs args = {add ? 0 : pad.at(p.out, B * std::max(p.text_stride, OC)),
                             add     ? pad.at(p.stream, B * OC)
                             : p.inp ? 0
                                     : pad.at(p.stream, B * C),
                             pad.at(p.inp, B * C),
                             pad.at(p.gain, C),
                             pad.at(p.shift, C),
                             pad.at(p.weight, OC * C),
                             pad.at(p.bias, OC),
                             pad.at(p.positions, B),
                             p.text_stride,
                             p.num_texts,
                             p.OC,
                             0};
    const DecodeGrid grid = decode_grid(pad.limits(), p, args, block_size);
    const uint32_t rows = grid.block / pad.limits().subgroup_size * grid.rows;
    const uint64_t blocks = ceil_div(OC, rows);
    const uint64_t most = normalizes_many(p) ? most_workgroups(pad, grid) : blocks;
    // 65,535: the launchpad may fold larger grids, whose y is taken by the texts
    const uint64_t groups = std::min({blocks, most, uint64_t(65535)});
    args.groups = uint32_t(groups);
    // whatever the size of subgroups, taking turns covers all rows
    const bool takes_turns = groups < blocks || !pad.limits().has_one_subgroup_size;
    const uint64_t packs = C / grid.width, per_round = ceil_div(packs, pad.limits().subgroup_size);
    check_iterations(pad, "decode_linear1",
                     ceil_div(blocks, groups) * (per_round * (2 + grid.texts) + 4 * grid.texts) +
                         8 * grid.texts * per_round);
    pad.dispatch<Real>("decode_linear1", {groups, uint32_t(ceil_div(B, grid.texts))},
                       {grid.block, grid.width, grid.packs, grid.rows, grid.texts, uint32_t(p.epilogue),
                        uint32_t(!p.inp), uint32_t(p.C), takes_turns},
                       args, memory_traffic<Real>(double(OC) * double(C)));
}

template <class Real>
std::vector<KernelVersion<DecodeLinear<Real>>> decode_linear_versions() {
    return {{"decode_linear1", "one subgroup per row of the weight", decode_linear1<Real>, {256, 32, 512}}};
}

template <class Real>
void decode_linear(LaunchPad* pad, const DecodeLinear<Real>& p) {
    if (!pad) return decode_linear_cpu(p);
    // many texts: more subgroups share the work of normalizing them
    launch<Real>(*pad, p, decode_linear_versions<Real>(), "decode_linear1",
                 normalizes_many(p) && pad->limits().max_block >= 512 ? 512 : 256);
}

#define INSTANTIATE(Real) INSTANTIATE_LAYER(decode_linear, DecodeLinear, Real)
FOR_EACH_REAL(INSTANTIATE)
