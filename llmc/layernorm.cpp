// LayerNorm: CPU versions, GPU versions, their tables, and the choice that training makes.
#include "llmc/layernorm.h"

#include <algorithm>
#include <cmath>

#include "llmc/cpu_times.h"
#include "llmc/packs.h"
#include "llmc/simd.h"
#include "shaders/args.h"

template <class T>
static inline void normalize_row(T* y, float* mean, float* rstd, const T* x, const T* weight, const T* bias,
                                 int C) {
    float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (int c = 0; c < C; c++) sum += float(x[c]);
    const float m = sum / C;
#pragma omp simd reduction(+ : squares)
    for (int c = 0; c < C; c++) squares += (float(x[c]) - m) * (float(x[c]) - m);
    const float s = 1.0f / std::sqrt(squares / C + 1e-5f);
#pragma omp simd
    for (int c = 0; c < C; c++) y[c] = round_to<T>((float(x[c]) - m) * s * float(weight[c]) + float(bias[c]));
    *mean = m;
    *rstd = s;
}
SIMD_CLONES static void row_clones(float* y, float* mean, float* rstd, const float* x, const float* weight,
                                   const float* bias, int C) {
    normalize_row(y, mean, rstd, x, weight, bias, C);
}
SIMD_CLONES static void row_clones(bf16* y, float* mean, float* rstd, const bf16* x, const bf16* weight,
                                   const bf16* bias, int C) {
    normalize_row(y, mean, rstd, x, weight, bias, C);
}
SIMD_CLONES static void row_clones(fp16* y, float* mean, float* rstd, const fp16* x, const fp16* weight,
                                   const fp16* bias, int C) {
    normalize_row(y, mean, rstd, x, weight, bias, C);
}

// clang calls clones by another name from other files: they are static.
void layernorm_row(float* y, float* mean, float* rstd, const float* x, const float* weight, const float* bias,
                   int C) {
    row_clones(y, mean, rstd, x, weight, bias, C);
}
void layernorm_row(bf16* y, float* mean, float* rstd, const bf16* x, const bf16* weight, const bf16* bias,
                   int C) {
    row_clones(y, mean, rstd, x, weight, bias, C);
}
void layernorm_row(fp16* y, float* mean, float* rstd, const fp16* x, const fp16* weight, const fp16* bias,
                   int C) {
    row_clones(y, mean, rstd, x, weight, bias, C);
}

template <class T>
void layernorm_forward_cpu(T* out, float* mean, float* rstd, const T* inp, const T* weight, const T* bias,
                           int N, int C) {
    const CpuTimer timer("layernorm_forward", moves<T>(2.0 * N * C));
#pragma omp parallel for
    for (int row = 0; row < N; row++)
        layernorm_row(out + size_t(row) * C, mean + row, rstd + row, inp + size_t(row) * C, weight, bias, C);
}

// One row of the backward pass: its dinp, and what it adds to the sums of dweight and dbias.
template <class T>
static inline void add_row(T* dx, float* weights, float* biases, const T* added, const T* dy, const T* x,
                           const T* weight, float mean, float rstd, int C) {
    float sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (int c = 0; c < C; c++) {
        const float d = float(weight[c]) * float(dy[c]);
        sum += d;
        dot += d * (float(x[c]) - mean) * rstd;
    }
    sum /= C;
    dot /= C;
#pragma omp simd
    for (int c = 0; c < C; c++) {
        const float g = float(dy[c]), norm = (float(x[c]) - mean) * rstd;
        dx[c] =
            round_to<T>((added ? float(added[c]) : 0.0f) + (float(weight[c]) * g - sum - norm * dot) * rstd);
        weights[c] += g * norm;
        biases[c] += g;
    }
}
SIMD_CLONES static void backward_row(float* dx, float* weights, float* biases, const float* added,
                                     const float* dy, const float* x, const float* weight, float mean,
                                     float rstd, int C) {
    add_row(dx, weights, biases, added, dy, x, weight, mean, rstd, C);
}
SIMD_CLONES static void backward_row(bf16* dx, float* weights, float* biases, const bf16* added,
                                     const bf16* dy, const bf16* x, const bf16* weight, float mean,
                                     float rstd, int C) {
    add_row(dx, weights, biases, added, dy, x, weight, mean, rstd, C);
}
SIMD_CLONES static void backward_row(fp16* dx, float* weights, float* biases, const fp16* added,
                                     const fp16* dy, const fp16* x, const fp16* weight, float mean,
                                     float rstd, int C) {
    add_row(dx, weights, biases, added, dy, x, weight, mean, rstd, C);
}

SIMD_CLONES static void add_parts(float* sums, int parts, int n) {
    for (int part = 1; part < parts; part++)
#pragma omp simd
        for (int c = 0; c < n; c++) sums[c] += sums[size_t(part) * n + c];
}

// The rows are summed in parts, whose number depends on that of the rows alone: so the result does not depend
// on the threads either.
static int backward_parts(int N) { return std::clamp(N / 8, 1, 64); }

template <class T>
void layernorm_backward_cpu(T* dinp, T* dweight, T* dbias, const T* added, const T* dout, const T* inp,
                            const T* weight, const float* mean, const float* rstd, int N, int C) {
    const CpuTimer timer("layernorm_backward", moves<T>(4.0 * N * C));
    static thread_local std::vector<float> memory;  // kept: it is needed several times a layer
    const int parts = backward_parts(N);
    memory.resize(std::max(memory.size(), size_t(parts) * 2 * C));
    float* sums = memory.data();  // the caller's, for all threads
#pragma omp parallel for
    for (int part = 0; part < parts; part++) {
        float *weights = sums + size_t(part) * 2 * C, *biases = weights + C;
        std::fill(weights, weights + 2 * C, 0.0f);
        const int end = int(int64_t(N) * (part + 1) / parts);
        for (int row = int(int64_t(N) * part / parts); row < end; row++) {
            const size_t at = size_t(row) * C;
            backward_row(dinp + at, weights, biases, added ? added + at : nullptr, dout + at, inp + at,
                         weight, mean[row], rstd[row], C);
        }
    }
    add_parts(sums, parts, 2 * C);
    for (int c = 0; c < C; c++) {
        dweight[c] = T(float(dweight[c]) + sums[c]);
        dbias[c] = T(float(dbias[c]) + sums[C + c]);
    }
}

RowTeams row_teams(const Limits& limits, int N, uint64_t packs, int block_size) {
    const uint32_t subgroup = limits.subgroup_size;
    const uint32_t teams = std::max(1u, uint32_t(block_size) / subgroup);
    return {blocks(N, teams), teams * subgroup, uint32_t(blocks(packs, subgroup))};
}

template <class T>
static LayernormForwardArgs forward_args(LaunchPad& pad, T* out, float* mean, float* rstd, const T* inp,
                                         const T* weight, const T* bias, int N, int C) {
    const size_t n = N, c = C;
    return {pad.at(out, n * c),
            pad.at(mean, n),
            pad.at(rstd, n),
            pad.at(inp, n * c),
            pad.at(weight, c),
            pad.at(bias, c),
            N,
            C};
}

template <class T>
static void layernorm_forward1(LaunchPad& pad, T* out, float* mean, float* rstd, const T* inp,
                               const T* weight, const T* bias, int N, int C, int block_size) {
    LayernormForwardArgs args = forward_args(pad, out, mean, rstd, inp, weight, bias, N, C);
    pad.dispatch<T>("layernorm_forward1", {blocks(N, block_size)}, {uint32_t(block_size)}, args,
                    moves<T>(2.0 * N * C));
}

template <class T>
static void layernorm_forward2(LaunchPad& pad, T* out, float* mean, float* rstd, const T* inp,
                               const T* weight, const T* bias, int N, int C, int block_size) {
    LayernormForwardArgs args = forward_args(pad, out, mean, rstd, inp, weight, bias, N, C);
    pad.dispatch<T>("layernorm_forward2", {uint64_t(N)}, {uint32_t(block_size)}, args, moves<T>(2.0 * N * C));
}

template <class T>
static void layernorm_forward3(LaunchPad& pad, T* out, float* mean, float* rstd, const T* inp,
                               const T* weight, const T* bias, int N, int C, int block_size) {
    LayernormForwardArgs args = forward_args(pad, out, mean, rstd, inp, weight, bias, N, C);
    const uint32_t width = wide_pack_width<T>(C, {args.outp, args.inp, args.weight, args.bias});
    const RowTeams teams = row_teams(pad.limits(), N, C / width, block_size);
    if (teams.packs > MAX_ROW_PACKS)  // the row does not fit in registers
        return layernorm_forward2(pad, out, mean, rstd, inp, weight, bias, N, C, block_size);
    pad.dispatch<T>("layernorm_forward3", {teams.groups}, {teams.block, width, teams.packs}, args,
                    moves<T>(2.0 * N * C));
}

template <class T>
static LayernormBackwardArgs backward_args(LaunchPad& pad, T* dinp, T* dweight, T* dbias, const T* added,
                                           const T* dout, const T* inp, const T* weight, const float* mean,
                                           const float* rstd, int N, int C) {
    const size_t n = N, c = C;
    return {pad.at(dinp, n * c),
            pad.at(dweight, c),
            pad.at(dbias, c),
            0,
            pad.at(added, n * c),
            pad.at(dout, n * c),
            pad.at(inp, n * c),
            pad.at(weight, c),
            0,
            pad.at(mean, n),
            pad.at(rstd, n),
            N,
            C,
            0};
}

template <class T>
static void layernorm_backward1(LaunchPad& pad, T* dinp, T* dweight, T* dbias, float*, const T* added,
                                const T* dout, const T* inp, const T* weight, const float* mean,
                                const float* rstd, int N, int C, int block_size) {
    LayernormBackwardArgs args =
        backward_args(pad, dinp, dweight, dbias, added, dout, inp, weight, mean, rstd, N, C);
    const uint32_t block = uint32_t(block_size);
    pad.dispatch<T>("layernorm_backward1", {blocks(N, block)}, {block}, args, moves<T>(4.0 * N * C));
    pad.dispatch<T>("layernorm_backward1_weight", {blocks(C, block)}, {block}, args, moves<T>(2.0 * N * C));
}

static const int BACKWARD_TEAMS =
    1024;  // workgroups of layernorm_backward2: several for each core of a large GPU
static const uint32_t BACKWARD_PACKS = 16;  // of a row that an invocation can hold

// Invocations of a workgroup that adds up 32 columns: slices of 32.
static uint32_t columns_block(const LaunchPad& pad) {
    return std::min(1024u, pad.limits().max_block / 32 * 32);
}

// dweight and dbias += the teams' sums in scratch.
template <class T>
static void add_teams(LaunchPad& pad, const LayernormBackwardArgs& args) {
    pad.dispatch<T>("layernorm_backward2_weight", {blocks(2 * uint64_t(args.C), 32)}, {columns_block(pad)},
                    args, moves<float>(2.0 * args.teams * args.C));
}

template <class T>
static void layernorm_backward2(LaunchPad& pad, T* dinp, T* dweight, T* dbias, float* scratch, const T* added,
                                const T* dout, const T* inp, const T* weight, const float* mean,
                                const float* rstd, int N, int C, int block_size) {
    LayernormBackwardArgs args =
        backward_args(pad, dinp, dweight, dbias, added, dout, inp, weight, mean, rstd, N, C);
    const uint32_t width = pack_width<T>(C, {args.dinp, args.added, args.dout, args.inp, args.weight});
    uint32_t block = uint32_t(block_size);
    while (blocks(C / width, block) > BACKWARD_PACKS && 2 * block <= pad.limits().max_block) block *= 2;
    const uint32_t packs = uint32_t(blocks(C / width, block));
    if (packs > BACKWARD_PACKS)
        return layernorm_backward1(pad, dinp, dweight, dbias, scratch, added, dout, inp, weight, mean, rstd,
                                   N, C, block_size);
    args.teams = std::min(N, BACKWARD_TEAMS);
    args.scratch = pad.at(scratch, layernorm_backward_scratch(&pad, N, C));
    pad.dispatch<T>("layernorm_backward2", {uint64_t(args.teams)}, {block, width, packs}, args,
                    moves<T>(4.0 * N * C));
    pad.barrier();
    add_teams<T>(pad, args);
}

// Workgroups of layernorm_backward3: what a large GPU (132 multiprocessors here) holds at once, since each
// works to the end.
static const int BACKWARD3_TEAMS = 528;
static const uint32_t BACKWARD3_PACKS = 4;
// Up to so many rows, reading them a second time takes less than a second kernel that waits for the first.
static const int FEW_ROWS = 512;

// The gradients of weight and bias where rows are few. Several slices are read by more workgroups of fewer
// columns, since a multiprocessor has but so much of the cache's bandwidth; the order of the sums is the
// same.
template <class T>
static void launch_few(LaunchPad& pad, const LayernormBackwardArgs& args, int slices) {
    const uint32_t columns = slices > 1 ? 8 : 32, block = columns_block(pad) / 32 * columns;
    const double bytes = sizeof(T) + (slices > 1 ? 4.0 * slices : sizeof(T));
    pad.dispatch<T>("layernorm_backward3_few", {blocks(args.C, columns)},
                    {block, 1, uint32_t(slices), columns}, args, {.bytes = bytes * args.N * args.C});
}

// Starts version 3, with dout in so many slices; false where it cannot take such rows.
template <class T>
static bool launch_backward3(LaunchPad& pad, LayernormBackwardArgs args, float* scratch, int slices,
                             int block_size) {
    const uint32_t pack = 16 / sizeof(T), block = uint32_t(block_size);
    const uint32_t packs = uint32_t(blocks(uint32_t(args.C) / pack, block)), rows = packs == 1 ? 2 : 1;
    if (wide_pack_width<T>(args.C, {args.dinp, args.added, args.dout, args.inp, args.weight}) != pack ||
        packs > BACKWARD3_PACKS)
        return false;
    const bool few = args.N <= FEW_ROWS;
    args.teams = int(std::min<uint64_t>(blocks(args.N, rows), BACKWARD3_TEAMS));
    if (!few) args.scratch = pad.at(scratch, layernorm_backward_scratch(&pad, args.N, args.C));
    const double bytes = 3 * sizeof(T) + (slices > 1 ? 4.0 * slices : sizeof(T));
    pad.begin_group();
    pad.dispatch<T>("layernorm_backward3", {uint64_t(args.teams)},
                    {block, pack, uint32_t(slices), packs, rows}, args, {.bytes = bytes * args.N * args.C});
    if (few) {
        launch_few<T>(pad, args, slices);
    } else {
        pad.barrier();
        add_teams<T>(pad, args);
    }
    pad.end_group();
    return true;
}

template <class T>
static void layernorm_backward3(LaunchPad& pad, T* dinp, T* dweight, T* dbias, float* scratch, const T* added,
                                const T* dout, const T* inp, const T* weight, const float* mean,
                                const float* rstd, int N, int C, int block_size) {
    LayernormBackwardArgs args =
        backward_args(pad, dinp, dweight, dbias, added, dout, inp, weight, mean, rstd, N, C);
    if (!launch_backward3<T>(pad, args, scratch, 1, block_size))
        layernorm_backward2(pad, dinp, dweight, dbias, scratch, added, dout, inp, weight, mean, rstd, N, C,
                            block_size);
}

template <class T>
std::vector<KernelVersion<LayernormForward<T>>> layernorm_forward_versions() {
    return {
        {"layernorm_forward1", "one invocation per row", layernorm_forward1<T>, {32, 64, 128, 256}},
        {"layernorm_forward2",
         "one workgroup per row, subgroup sums",
         layernorm_forward2<T>,
         {128, 32, 64, 256, 512}},
        {"layernorm_forward3",
         "one subgroup per row, held in registers",
         layernorm_forward3<T>,
         {128, 64, 256}},
    };
}

template <class T>
std::vector<KernelVersion<LayernormBackward<T>>> layernorm_backward_versions() {
    return {
        {"layernorm_backward1",
         "one invocation per row, one per channel",
         layernorm_backward1<T>,
         {32, 64, 128, 256}},
        {"layernorm_backward2",
         "one pass, weight gradients in two steps",
         layernorm_backward2<T>,
         {64, 128, 192, 256}},
        {"layernorm_backward3",
         "rows in pairs, the next ones' loads under way, 16-byte accesses",
         layernorm_backward3<T>,
         {96, 32, 192, 224}},
    };
}

template <class T>
void layernorm_forward(LaunchPad* pad, T* out, float* mean, float* rstd, const T* inp, const T* weight,
                       const T* bias, int N, int C) {
    if (!pad) return layernorm_forward_cpu(out, mean, rstd, inp, weight, bias, N, C);
    if (pad->device().type == DeviceType::software)  // runs rows side by side in the lanes of a vector unit
        return layernorm_forward1(*pad, out, mean, rstd, inp, weight, bias, N, C, 64);
    layernorm_forward3(*pad, out, mean, rstd, inp, weight, bias, N, C, 128);
}

// One pack in each invocation, or as few as 256 of them can hold.
template <class T>
static int backward3_block(int C) {
    const uint64_t packs = blocks(C, 16 / sizeof(T)), each = blocks(packs, 256);
    return int(blocks(blocks(packs, each), 32) * 32);
}

template <class T>
void layernorm_backward(LaunchPad* pad, T* dinp, T* dweight, T* dbias, float* scratch, const T* added,
                        const T* dout, const T* inp, const T* weight, const float* mean, const float* rstd,
                        int N, int C) {
    if (!pad) return layernorm_backward_cpu(dinp, dweight, dbias, added, dout, inp, weight, mean, rstd, N, C);
    if (pad->device().type == DeviceType::software)  // where barriers cost more than reading twice
        return layernorm_backward1(*pad, dinp, dweight, dbias, scratch, added, dout, inp, weight, mean, rstd,
                                   N, C, 64);
    layernorm_backward3(*pad, dinp, dweight, dbias, scratch, added, dout, inp, weight, mean, rstd, N, C,
                        backward3_block<T>(C));
}

template <class T>
void layernorm_backward(LaunchPad* pad, T* dinp, T* dweight, T* dbias, float* scratch, const T* added,
                        const PartialProduct<T>& dout, const T* inp, const T* weight, const float* mean,
                        const float* rstd, int N, int C) {
    if (dout.slices > 1) {
        LayernormBackwardArgs args =
            backward_args<T>(*pad, dinp, dweight, dbias, added, dout.value, inp, weight, mean, rstd, N, C);
        args.partials = pad->at(dout.partials, size_t(dout.slices) * N * C);
        // a gradient's product has no bias
        if (!dout.bias && launch_backward3<T>(*pad, args, scratch, dout.slices, backward3_block<T>(C)))
            return;
        finish_product(*pad, dout, N, C);
        pad->barrier();
    }
    layernorm_backward<T>(pad, dinp, dweight, dbias, scratch, added, dout.value, inp, weight, mean, rstd, N,
                          C);
}

size_t layernorm_backward_scratch(const LaunchPad* pad, int N, int C) {
    return pad ? 2 * size_t(std::min(N, BACKWARD_TEAMS)) * C : 0;
}

#define INSTANTIATE(T)                                                                                       \
    template std::vector<KernelVersion<LayernormForward<T>>> layernorm_forward_versions();                   \
    template std::vector<KernelVersion<LayernormBackward<T>>> layernorm_backward_versions();                 \
    template void layernorm_forward_cpu(T*, float*, float*, const T*, const T*, const T*, int, int);         \
    template void layernorm_forward(LaunchPad*, T*, float*, float*, const T*, const T*, const T*, int, int); \
    template void layernorm_backward_cpu(T*, T*, T*, const T*, const T*, const T*, const T*, const float*,   \
                                         const float*, int, int);                                            \
    template void layernorm_backward(LaunchPad*, T*, T*, T*, float*, const T*, const T*, const T*, const T*, \
                                     const float*, const float*, int, int);                                  \
    template void layernorm_backward(LaunchPad*, T*, T*, T*, float*, const T*, const PartialProduct<T>&,     \
                                     const T*, const T*, const float*, const float*, int, int);
FOR_EACH_REAL(INSTANTIATE)
