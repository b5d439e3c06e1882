// Matrix products of the linear layers: GPU versions, their tables, and the choice that training makes. The CPU
// versions are in matmul_cpu.cpp.
#include "llmc/matmul.h"

#include <algorithm>

#include "shaders/args.h"

template <class T>
static MatmulForwardArgs forward_args(LaunchPad& pad, T* out, const T* inp, const T* weight, const T* bias, int N,
                                      int C, int OC) {
    const size_t n = N, c = C, oc = OC;
    return {pad.at(out, n * oc), pad.at(inp, n * c), pad.at(weight, oc * c), pad.at(bias, oc), N, C, OC};
}

template <class T>
static MatmulDinpArgs dinp_args(LaunchPad& pad, T* dinp, const T* dout, const T* weight, int N, int C, int OC) {
    const size_t n = N, c = C, oc = OC;
    return {pad.at(dinp, n * c), pad.at(dout, n * oc), pad.at(weight, oc * c), N, C, OC};
}

// Rows cut into slices, so that a product which sums over many rows has work for every part of the device.
struct Slices {
    int count, rows;
};

static Slices cut_rows(int N, int count, int multiple) {
    const int rows = int(blocks(blocks(N, count), multiple)) * multiple;
    return {int(blocks(N, rows)), rows};
}

template <class T>
static MatmulDweightArgs dweight_args(LaunchPad& pad, T* dweight, float* scratch, const T* dout, const T* inp, int N,
                                      int C, int OC, Slices slices) {
    const size_t n = N, c = C, oc = OC;
    const uint64_t partials = slices.count > 1 ? pad.at(scratch, slices.count * oc * c) : 0;
    return {pad.at(dweight, oc * c), partials, pad.at(dout, n * oc), pad.at(inp, n * c), N, C, OC, slices.count,
            slices.rows};
}

template <class T>
static MatmulDbiasArgs dbias_args(LaunchPad& pad, T* dbias, float* scratch, const T* dout, int N, int OC,
                                  Slices slices) {
    const size_t n = N, oc = OC;
    const uint64_t partials = slices.count > 1 ? pad.at(scratch, slices.count * oc) : 0;
    return {pad.at(dbias, oc), partials, pad.at(dout, n * oc), N, OC, slices.count, slices.rows};
}

// out (n) += the sum of `count` partial results; nothing to do for one, which its kernel has added itself.
template <class T> static void add_partials(LaunchPad& pad, T* out, const float* partials, size_t n, int count) {
    if (count == 1) return;
    MatmulSumArgs args = {pad.at(out, n), pad.at(partials, n * count), int(n), count};
    pad.dispatch("matmul_sum", {blocks(n, 256)}, {256}, args);
}

template <class T>
static void matmul_forward1(LaunchPad& pad, T* out, const T* inp, const T* weight, const T* bias, int N, int C, int OC,
                            int block_size) {
    MatmulForwardArgs args = forward_args(pad, out, inp, weight, bias, N, C, OC);
    pad.dispatch("matmul_forward1", {blocks(uint64_t(N) * OC, block_size)}, {uint32_t(block_size)}, args);
}

template <class T>
static void matmul_dinp1(LaunchPad& pad, T* dinp, const T* dout, const T* weight, int N, int C, int OC,
                         int block_size) {
    MatmulDinpArgs args = dinp_args(pad, dinp, dout, weight, N, C, OC);
    pad.dispatch("matmul_dinp1", {blocks(uint64_t(N) * C, block_size)}, {uint32_t(block_size)}, args);
}

template <class T>
static void matmul_dweight1(LaunchPad& pad, T* dweight, float* scratch, const T* dout, const T* inp, int N, int C,
                            int OC, int block_size) {
    MatmulDweightArgs args = dweight_args(pad, dweight, scratch, dout, inp, N, C, OC, {1, N});
    pad.dispatch("matmul_dweight1", {blocks(uint64_t(OC) * C, block_size)}, {uint32_t(block_size)}, args);
}

template <class T>
static void matmul_dbias1(LaunchPad& pad, T* dbias, float* scratch, const T* dout, int N, int OC, int block_size) {
    MatmulDbiasArgs args = dbias_args(pad, dbias, scratch, dout, N, OC, {1, N});
    pad.dispatch("matmul_dbias1", {blocks(OC, block_size)}, {uint32_t(block_size)}, args);
}

// As many slices as give 256 workgroups, each of 32 rows at least.
static Slices dbias_slices(int N, int OC, int block_size) {
    return cut_rows(N, int(std::clamp<uint64_t>(256 / blocks(OC, block_size), 1, blocks(N, 32))), 1);
}

template <class T>
static Slices dbias_partials(LaunchPad& pad, T* dbias, float* scratch, const T* dout, int N, int OC, int block_size) {
    const Slices slices = dbias_slices(N, OC, block_size);
    MatmulDbiasArgs args = dbias_args(pad, dbias, scratch, dout, N, OC, slices);
    pad.dispatch("matmul_dbias2", {blocks(OC, block_size) * slices.count}, {uint32_t(block_size)}, args);
    return slices;
}

template <class T>
static void matmul_dbias2(LaunchPad& pad, T* dbias, float* scratch, const T* dout, int N, int OC, int block_size) {
    const Slices slices = dbias_partials(pad, dbias, scratch, dout, N, OC, block_size);
    pad.barrier();
    add_partials(pad, dbias, scratch, OC, slices.count);
}

template <class T> std::vector<KernelVersion<MatmulForward<T>>> matmul_forward_versions() {
    return {
        {"matmul_forward1", "one invocation per element", matmul_forward1<T>, {128, 64, 256}},
    };
}

template <class T> std::vector<KernelVersion<MatmulDinp<T>>> matmul_dinp_versions() {
    return {
        {"matmul_dinp1", "one invocation per element", matmul_dinp1<T>, {128, 64, 256}},
    };
}

template <class T> std::vector<KernelVersion<MatmulDweight<T>>> matmul_dweight_versions() {
    return {
        {"matmul_dweight1", "one invocation per element", matmul_dweight1<T>, {128, 64, 256}},
    };
}

template <class T> std::vector<KernelVersion<MatmulDbias<T>>> matmul_dbias_versions() {
    return {
        {"matmul_dbias1", "one invocation per column", matmul_dbias1<T>, {64, 128}},
        {"matmul_dbias2", "slices of the rows, summed by a second kernel", matmul_dbias2<T>, {128, 32, 256}},
    };
}

template <class T>
void matmul_forward(LaunchPad* pad, T* out, const T* inp, const T* weight, const T* bias, int N, int C, int OC) {
    if (!pad) return matmul_forward_cpu(out, inp, weight, bias, N, C, OC);
    matmul_forward1(*pad, out, inp, weight, bias, N, C, OC, 128);
}

size_t matmul_backward_scratch(const LaunchPad* pad, int, int, int OC) { return pad ? size_t(257) * 256 + OC : 0; }

template <class T>
void matmul_backward(LaunchPad* pad, T* dinp, T* dweight, T* dbias, float* scratch, const T* dout, const T* inp,
                     const T* weight, int N, int C, int OC) {
    if (!pad) {
        if (dinp) matmul_dinp_cpu(dinp, dout, weight, N, C, OC);
        matmul_dweight_cpu(dweight, dout, inp, N, C, OC);
        if (dbias) matmul_dbias_cpu(dbias, dout, N, OC);
        return;
    }
    pad->begin_group();
    if (dinp) matmul_dinp1(*pad, dinp, dout, weight, N, C, OC, 128);
    matmul_dweight1(*pad, dweight, scratch, dout, inp, N, C, OC, 128);
    if (dbias) matmul_dbias2(*pad, dbias, scratch, dout, N, OC, 128);
    pad->end_group();
}

template std::vector<KernelVersion<MatmulForward<float>>> matmul_forward_versions();
template std::vector<KernelVersion<MatmulDinp<float>>> matmul_dinp_versions();
template std::vector<KernelVersion<MatmulDweight<float>>> matmul_dweight_versions();
template std::vector<KernelVersion<MatmulDbias<float>>> matmul_dbias_versions();
template void matmul_forward(LaunchPad*, float*, const float*, const float*, const float*, int, int, int);
template void matmul_backward(LaunchPad*, float*, float*, float*, float*, const float*, const float*, const float*, int,
                              int, int);
