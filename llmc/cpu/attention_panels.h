// What the forward and the backward pass of attention on the CPU share (llmc/layers/attention_cpu.cpp): a
// thread's memory and tasks, calls of the GEMM microkernels with prefetch, and the panels of a head. A score
// panel is (rows, nr), row-major: a stack of (mr, nr) microkernel tiles (gemm_kernels.h). A row is a key and
// a column a query in the forward pass, the reverse in the backward pass. The microkernels can read such a
// panel as operand A, plain or transposed. Everything is computed in fp32.
#pragma once
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <type_traits>

#include "llmc/base/real.h"
#include "llmc/cpu/gemm_kernels.h"
#include "llmc/cpu/prefetch.h"
#include "llmc/cpu/simd.h"

inline constexpr int PADDING_ROWS = MAX_MR;  // rows past the last one that microkernels may read and write
inline constexpr int PREFETCHED_ROWS = 128;  // of each array, so that they fit into L2
// A cache line is prefetched for so many rows x units of a microkernel. With single lines, 10 to 18 were
// equally fast on Zen 4.
inline constexpr int PREFETCH_STEP = 14;
inline constexpr float LOG2_E = std::numbers::log2e_v<float>;

// Memory that a thread keeps until it ends. Each task partitions it into arrays anew.
struct Arena {
    // Reserves `arrays` arrays whose sizes sum to n floats; earlier arrays become invalid.
    void open(size_t n, int arrays) {
        capacity = n + size_t(arrays) * (LINE - 1);
        memory.at_least(capacity);
        used = 0;
    }
    // An array of n floats, from a cache line on.
    float* take(size_t n) {
        float* taken = memory.data() + used;
        used += (n + LINE - 1) / LINE * LINE;
        assert(used <= capacity);
        return taken;
    }

   private:
    static constexpr size_t LINE = LineFloats::LINE;
    LineFloats memory;
    size_t capacity = 0, used = 0;
};

// Calls run(task, next) for every task below `tasks`, on all threads, as they become free. `next` is the task
// that the thread runs after this one, or probably runs; it is `tasks` or more if there is none.
template <class Run>
void run_tasks(int64_t tasks, const Run& run) {
    std::atomic<int64_t> first_free = 0;
#pragma omp parallel
    {
        const int64_t threads = omp_get_num_threads();
        int64_t task = first_free++;
        while (task < tasks) {
            // A thread takes its next task early, except the last ones, which would wait while others idle.
            const bool take_early = task + 2 * threads < tasks;
            const int64_t next = take_early ? first_free++ : task + threads;
            run(task, next);
            task = take_early ? next : first_free++;
        }
    }
}

// The GEMM microkernels of a thread. Each call also prefetches what the thread reads or stores next: the rows
// of a head are too far apart for the hardware's prefetcher.
struct Kernels {
    const KernelSet& set;
    PrefetchQueue& ahead;
    int mr = set.mr, nr = set.nr;

    // The microkernel for `rows` rows of a, at most mr.
    void run(float* out, const KernelInput& in, int rows) const {
        ahead.prefetch(rows * in.units, PREFETCH_STEP);
        kernel_for(set, rows)(out, in);
    }
    // out (rows, nr) = a b, or out + a b, in steps of mr rows.
    void multiply(float* out, KernelInput in, int rows) const {
        for (int i = 0; i < rows; i += mr, in.a += mr * in.a_row)
            run(out + size_t(i) * nr, in, std::min(mr, rows - i));
    }
};

// Operand A (rows, K) in row-major order, and a transposed one: a panel (K, rows). `stride` is in floats.
inline KernelInput by_rows(const float* a, size_t stride, const float* b, int K, bool add) {
    return {reinterpret_cast<const char*>(a), stride * sizeof(float), sizeof(float), b, K, add};
}
inline KernelInput by_columns(const float* a, size_t stride, const float* b, int K, bool add) {
    return {reinterpret_cast<const char*>(a), sizeof(float), stride * sizeof(float), b, K, add};
}

// Rows of floats, `ld` apart.
struct FloatRows {
    const float* p;
    size_t ld;
};

// Rows of a head as floats: in place, or copied to `buffer` (count, hs).
template <class Real>
FloatRows float_rows(float* buffer, const Real* src, size_t ld, int count, int hs) {
    if constexpr (std::is_same_v<Real, float>) {
        return {src, ld};
    } else {
        copy_to_floats(buffer, hs, src, ld, count, hs);
        return {buffer, size_t(hs)};
    }
}

// dst (K, nr) = rows (columns, K)^T * factor; missing columns are zero.
void transpose(float* dst, int nr, const FloatRows& rows, int columns, int K, float factor);

// Rows of a head in the layout of operand B: (ceil(hs / nr), rows, nr), a panel for every nr channels.
struct ChannelPanels {
    float* p;
    int rows, nr;
    float* panel(int channel) const { return p + size_t(channel) * rows; }
    // The panel of one channel, from a row on.
    ChannelPanels at(int channel, int row = 0) const { return {panel(channel) + size_t(row) * nr, rows, nr}; }
};

// Calls run(width), where width is nr as a constant: loops over a constant number of columns are much faster.
// nr is 8, 12, 16 or 32.
template <class Run>
SIMD_INLINE void with_constant(int nr, const Run& run) {
    if (nr == 32) return run(std::integral_constant<int, 32>());
    if (nr == 16) return run(std::integral_constant<int, 16>());
    if (nr == 12) return run(std::integral_constant<int, 12>());
    assert(nr == 8);
    run(std::integral_constant<int, 8>());
}

// Fills the first `count` rows. Channels past hs stay undefined: they only reach columns that are not read.
template <class Real>
void pack_channels(const ChannelPanels& dst, const Real* src, size_t ld, int count, int hs);

// dst (count, hs) = the first `count` rows of src, row i times factors[i].
template <class Real>
void unpack_channels(Real* dst, size_t ld, const ChannelPanels& src, int count, int hs, const float* factors);
