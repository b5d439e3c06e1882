// LayerNorm: CPU versions, GPU versions, their tables, and the functions that training calls.
#include "llmc/layers/layernorm.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/ceil_div.h"
#include "llmc/cpu/gemm_kernels.h"
#include "llmc/cpu/simd.h"
#include "llmc/launchpad/packs.h"
#include "shaders/args.h"

template <class Real>
static SIMD_INLINE void normalize_row(Real* y, float* mean, float* rstd, const Real* x, const Real* weight,
                                      const Real* bias, int C) {
    float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (int c = 0; c < C; c++) sum += float(x[c]);
    const float m = sum / C;
#pragma omp simd reduction(+ : squares)
    for (int c = 0; c < C; c++) squares += (float(x[c]) - m) * (float(x[c]) - m);
    const float s = 1.0f / std::sqrt(squares / C + LAYERNORM_EPSILON);
#pragma omp simd
    for (int c = 0; c < C; c++)
        y[c] = round_to<Real>((float(x[c]) - m) * s * float(weight[c]) + float(bias[c]));
    *mean = m;
    *rstd = s;
}

template <class Real>
static SIMD_INLINE void add(Real* sum, const Real* inp, const Real* added, int C) {
#pragma omp simd
    for (int c = 0; c < C; c++) sum[c] = round_to<Real>(float(inp[c]) + float(added[c]));
}

template <class Real>
static Work forward_work(const LayerNormForward<Real>& p) {
    return memory_traffic<Real>((p.added ? 4.0 : 2.0) * p.num_rows * p.C);
}

// Row by row, so that the sums are still in L1 when they are normalized.
template <class Real>
static void layernorm_forward_cpu(const LayerNormForward<Real>& p) {
    const Real* inp = p.added ? p.sum : p.inp;
#pragma omp parallel for
    for (int row = 0; row < p.num_rows; row++) {
        const size_t at = size_t(row) * p.C;
        if (p.added) simd<add<Real>>(p.sum + at, p.inp + at, p.added + at, p.C);
        simd<normalize_row<Real>>(p.out + at, p.mean + row, p.rstd + row, inp + at, p.weight, p.bias, p.C);
    }
}

// One row of the backward pass. dweight and dbias are fp32 accumulators (C) of the rows that one task sums.
template <class Real>
static SIMD_INLINE void backward_row(const LayerNormBackward<Real>& p, int row, float* dweight,
                                     float* dbias) {
    // Local copies: the compiler need not reload them after each store.
    const int C = p.C;
    const size_t at = size_t(row) * C;
    Real* dinp = p.dinp + at;
    const Real *added = p.added ? p.added + at : nullptr, *dout = p.dout + at, *inp = p.inp + at,
               *weight = p.weight;
    const float mean = p.mean[row], rstd = p.rstd[row];
    float sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (int c = 0; c < C; c++) {
        const float d = float(weight[c]) * float(dout[c]);
        sum += d;
        dot += d * (float(inp[c]) - mean) * rstd;
    }
    sum /= C;
    dot /= C;
#pragma omp simd
    for (int c = 0; c < C; c++) {
        const float g = float(dout[c]), norm = (float(inp[c]) - mean) * rstd;
        dinp[c] = round_to<Real>((added ? float(added[c]) : 0.0f) +
                                 (float(weight[c]) * g - sum - norm * dot) * rstd);
        dweight[c] += g * norm;
        dbias[c] += g;
    }
}

// Adds the other rows of sums (tasks, n) to the first one.
static SIMD_INLINE void add_tasks(float* sums, int tasks, int n) {
    for (int task = 1; task < tasks; task++)
#pragma omp simd
        for (int c = 0; c < n; c++) sums[c] += sums[size_t(task) * n + c];
}

// The number of tasks depends on the number of rows alone, so the result does not depend on the number of
// threads.
static int backward_tasks(int num_rows) { return std::clamp(num_rows / 8, 1, 64); }

template <class Real>
static void layernorm_backward_cpu(const LayerNormBackward<Real>& p) {
    // the calling thread's, which all threads share; kept, because every layer needs it
    static thread_local LineFloats memory;
    const int tasks = backward_tasks(p.num_rows), C = p.C;
    float* sums = memory.at_least(size_t(tasks) * 2 * C);
#pragma omp parallel for
    for (int task = 0; task < tasks; task++) {
        float *dweight = sums + size_t(task) * 2 * C, *dbias = dweight + C;
        std::fill(dweight, dweight + 2 * C, 0.0f);
        const int end = int(int64_t(p.num_rows) * (task + 1) / tasks);
        for (int row = int(int64_t(p.num_rows) * task / tasks); row < end; row++)
            simd<backward_row<Real>>(p, row, dweight, dbias);
    }
    simd<add_tasks>(sums, tasks, 2 * C);
    for (int c = 0; c < C; c++) {
        p.dweight[c] = Real(float(p.dweight[c]) + sums[c]);
        p.dbias[c] = Real(float(p.dbias[c]) + sums[C + c]);
    }
}

template <class Real>
static LayernormForwardArgs forward_args(LaunchPad& pad, const LayerNormForward<Real>& p) {
    const size_t num_rows = p.num_rows, C = p.C;
    return {pad.at(p.out, num_rows * C),
            pad.at(p.mean, num_rows),
            pad.at(p.rstd, num_rows),
            pad.at(p.inp, num_rows * C),
            pad.at(p.added, num_rows * C),
            pad.at(p.sum, num_rows * C),
            pad.at(p.weight, C),
            pad.at(p.bias, C),
            p.num_rows,
            p.C};
}

template <class Real>
static void layernorm_forward2(LaunchPad& pad, const LayerNormForward<Real>& p, int block_size) {
    check_iterations(pad, "layernorm_forward2", 3 * ceil_div(p.C, block_size));
    pad.dispatch<Real>("layernorm_forward2", {uint64_t(p.num_rows)},
                       {uint32_t(block_size), p.added != nullptr}, forward_args(pad, p), forward_work(p));
}

// The packs of a row that an invocation can hold in registers; where these are few, the elements.
static const uint32_t MAX_ROW_PACKS = 32, MAX_FRUGAL_ROW_ELEMENTS = 48;

// block_size is rounded to a multiple of the subgroup size.
template <class Real>
static void layernorm_forward3(LaunchPad& pad, const LayerNormForward<Real>& p, int block_size) {
    const LayernormForwardArgs args = forward_args(pad, p);
    const uint32_t width =
        wide_pack_width<Real>(p.C, {args.outp, args.inp, args.added, args.sum, args.weight, args.bias});
    const uint32_t subgroup = pad.limits().subgroup_size;
    const uint32_t rows_per_group = std::max(1u, uint32_t(block_size) / subgroup);
    const uint32_t packs = uint32_t(ceil_div(p.C / width, subgroup));
    const uint32_t most = pad.limits().few_registers ? MAX_FRUGAL_ROW_ELEMENTS / width : MAX_ROW_PACKS;
    if (packs > most || !pad.limits().has_one_subgroup_size) return layernorm_forward2(pad, p, 128);
    pad.dispatch<Real>("layernorm_forward3", {ceil_div(p.num_rows, rows_per_group)},
                       {rows_per_group * subgroup, width, packs, p.added != nullptr}, args, forward_work(p));
}

// Without the scratch memory and the number of workgroups that share the rows.
template <class Real>
static LayernormBackwardArgs backward_args(LaunchPad& pad, const LayerNormBackward<Real>& p) {
    const size_t num_rows = p.num_rows, C = p.C;
    return {pad.at(p.dinp, num_rows * C),
            pad.at(p.dweight, C),
            pad.at(p.dbias, C),
            0,
            pad.at(p.added, num_rows * C),
            pad.at(p.dout, num_rows * C),
            pad.at(p.inp, num_rows * C),
            pad.at(p.weight, C),
            pad.at(p.mean, num_rows),
            pad.at(p.rstd, num_rows),
            p.num_rows,
            p.C,
            0};
}

// The workgroups that share the rows, at most: several for each SM of an H100/H200-class GPU. The order of
// the sums depends on it: a constant keeps results bit-identical, where the SM count of the device would not.
static const int BACKWARD2_WORKGROUPS = 1024;
static const uint32_t BACKWARD2_PACKS = 16;  // of a row that an invocation can hold

// A workgroup iterates over groups of `rows` rows, and adds up the sums of its subgroups for each row.
static void check_rows(const LaunchPad& pad, const char* kernel, uint64_t groups, uint32_t rows,
                       uint32_t block) {
    const uint64_t subgroups = ceil_div(block, pad.limits().subgroup_size);
    check_iterations(pad, kernel, groups * (rows * (subgroups + 1) + 1) + 64);
}

// Scratch memory for the sums of dweight and dbias (args.workgroups, 2, C), one row for each workgroup.
static void use_scratch(LaunchPad& pad, LayernormBackwardArgs& args) {
    const size_t floats = size_t(args.workgroups) * 2 * args.C;
    args.scratch = pad.at(pad.scratch(Scratch::layernorm, floats), floats);
}

// Invocations of a workgroup that sums 32 columns: a multiple of 32.
static uint32_t column_sum_block(const LaunchPad& pad) { return pad.limits().barrier_block / 32 * 32; }

// dweight and dbias += the workgroups' sums in scratch.
template <class Real>
static void add_workgroup_sums(LaunchPad& pad, const LayernormBackwardArgs& args) {
    pad.dispatch<Real>("layernorm_backward2_weight", {ceil_div(2 * uint64_t(args.C), 32)},
                       {column_sum_block(pad)}, args, memory_traffic<float>(2.0 * args.workgroups * args.C));
}

template <class Real>
static void layernorm_backward2(LaunchPad& pad, const LayerNormBackward<Real>& p, int block_size) {
    LayernormBackwardArgs args = backward_args(pad, p);
    const uint32_t width = pack_width<Real>(p.C, {args.dinp, args.added, args.dout, args.inp, args.weight});
    uint32_t block = uint32_t(block_size);
    while (ceil_div(p.C / width, block) > BACKWARD2_PACKS && 2 * block <= pad.limits().max_block) block *= 2;
    const uint32_t packs = uint32_t(ceil_div(p.C / width, block));
    if (packs > BACKWARD2_PACKS)
        fail("layernorm_backward: rows of %d channels are too long for workgroups of %u invocations", p.C,
             block);
    args.workgroups = std::min(p.num_rows, BACKWARD2_WORKGROUPS);
    check_rows(pad, "layernorm_backward2", ceil_div(p.num_rows, args.workgroups), 1, block);
    use_scratch(pad, args);
    pad.dispatch<Real>("layernorm_backward2", {uint64_t(args.workgroups)}, {block, width, packs}, args,
                       memory_traffic<Real>(4.0 * p.num_rows * p.C));
    pad.barrier();
    add_workgroup_sums<Real>(pad, args);
}

// The workgroups of layernorm_backward3 that share the rows, at most: as many as an H100/H200-class GPU with
// 132 SMs runs at once, since each of them runs to the end. A constant, for the same reason as above.
static const int BACKWARD3_WORKGROUPS = 528;
static const uint32_t BACKWARD3_PACKS = 4;

template <class Real>
static void layernorm_backward3(LaunchPad& pad, const LayerNormBackward<Real>& p, int block_size) {
    LayernormBackwardArgs args = backward_args(pad, p);
    const uint32_t pack = 16 / sizeof(Real), block = uint32_t(block_size);
    const uint32_t packs = uint32_t(ceil_div(uint32_t(args.C) / pack, block));
    const uint32_t rows = packs == 1 && !(pad.limits().few_registers && pack == 8) ? 2 : 1;
    if (wide_pack_width<Real>(args.C, {args.dinp, args.added, args.dout, args.inp, args.weight}) != pack ||
        packs > BACKWARD3_PACKS)
        return layernorm_backward2(pad, p, block_size);
    args.workgroups = int(std::min<uint64_t>(ceil_div(args.num_rows, rows), BACKWARD3_WORKGROUPS));
    check_rows(pad, "layernorm_backward3", ceil_div(args.num_rows, uint64_t(args.workgroups) * rows), rows,
               block);
    use_scratch(pad, args);
    const ConcurrentGroup group(&pad);
    pad.dispatch<Real>("layernorm_backward3", {uint64_t(args.workgroups)}, {block, pack, packs, rows}, args,
                       memory_traffic<Real>(4.0 * args.num_rows * args.C));
    const size_t gradient = size_t(args.C) * sizeof(Real);
    pad.postpone(Scratch::layernorm, {{p.dweight, gradient}, {p.dbias, gradient}},
                 [args, &pad] { add_workgroup_sums<Real>(pad, args); });
}

template <class Real>
std::vector<KernelVersion<LayerNormForward<Real>>> layernorm_forward_versions() {
    return {
        {"layernorm_forward2",
         "one workgroup per row, sums over subgroups",
         layernorm_forward2<Real>,
         {128, 32, 64, 256, 512}},
        {"layernorm_forward3",
         "one subgroup per row, which stays in registers",
         layernorm_forward3<Real>,
         {128, 64, 256}},
    };
}

template <class Real>
std::vector<KernelVersion<LayerNormBackward<Real>>> layernorm_backward_versions() {
    return {
        {"layernorm_backward2",
         "one workgroup per row; workgroups sum the weight gradients, a second kernel adds these up",
         layernorm_backward2<Real>,
         {64, 128, 192, 256}},
        {"layernorm_backward3",
         "16-byte accesses, two rows per iteration, the next rows prefetched",
         layernorm_backward3<Real>,
         {96, 32, 192, 224}},
    };
}

template <class Real>
void layernorm_forward(LaunchPad* pad, const LayerNormForward<Real>& p) {
    if (!pad) return layernorm_forward_cpu(p);
    // with one subgroup per workgroup, few rows spread over all SMs of a large GPU
    launch<Real>(*pad, p, layernorm_forward_versions<Real>(), "layernorm_forward3",
                 p.added && p.num_rows <= 1024 ? 32 : 128);
}

// One pack per invocation; for rows of more than 256 packs, as few per invocation as 256 invocations allow.
template <class Real>
static int backward3_block(int C) {
    const uint64_t packs = ceil_div(C, 16 / sizeof(Real)), packs_each = ceil_div(packs, 256);
    return int(ceil_div(ceil_div(packs, packs_each), 32) * 32);
}

template <class Real>
void layernorm_backward(LaunchPad* pad, const LayerNormBackward<Real>& p) {
    if (!pad) return layernorm_backward_cpu(p);
    const ConcurrentGroup group(pad);
    launch<Real>(*pad, p, layernorm_backward_versions<Real>(), "layernorm_backward3",
                 backward3_block<Real>(p.C));
}

#define INSTANTIATE(Real)                                        \
    INSTANTIATE_LAYER(layernorm_forward, LayerNormForward, Real) \
    INSTANTIATE_LAYER(layernorm_backward, LayerNormBackward, Real)
FOR_EACH_REAL(INSTANTIATE)
