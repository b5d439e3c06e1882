// Microkernels of the CPU's GEMMs, one set for each instruction set, and the packing primitives that bring
// operands into the layout that the microkernels read. Attention uses them too (attention_panels.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "llmc/base/real.h"
#include "llmc/cpu/simd.h"

constexpr int MAX_MR = 32, MAX_NR = 32;

// Arguments of a microkernel: tile (mr, nr) = a b, or tile + a b if `add`. Operands are arrays of 32-bit
// units along K: a float, or a pair of bf16 that are consecutive in K. Unit u of row i of a is at
// a + u * a_unit + i * a_row. One of these two strides must be the size of a unit. b is a packed micro-panel
// (units, nr).
struct KernelInput {
    const char* a;         // floats, or pairs of bf16
    size_t a_row, a_unit;  // bytes
    const float* b;
    int units;  // at least one
    bool add;
};
using MicroKernel = void(float* tile, const KernelInput& in);

// The microkernels of one instruction set. Register blocking is mr x nr accumulators.
struct KernelSet {
    int mr, nr;               // nr is a multiple of 4
    int row_step;             // mr is one to three times row_step
    bool bf16_pairs = false;  // a unit is a pair of bf16
    // The number of units must be a multiple of this; pad with zeros. Unless it is 1, a_unit must be the size
    // of a unit.
    int unit_multiple = 1;
    // A micro-panel of b stays in L1 for several micro-panels of a; otherwise, one of a for all of b.
    bool b_in_l1 = false;
    MicroKernel* run[3] = {};  // for one, two and three times row_step rows
    // Each thread calls these before and after it runs microkernels; null: nothing to call.
    void (*begin)() = nullptr, (*end)() = nullptr;
};

// The best set for operands of type Real. Its units are pairs of bf16 if Real is bf16 and the CPU multiplies
// such pairs, and floats otherwise.
template <class Real>
const KernelSet& best_kernels();

inline int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

// The microkernel for `rows` rows of a. It computes a multiple of row_step rows, so it may read and write
// padding rows.
inline MicroKernel* kernel_for(const KernelSet& set, int rows) { return set.run[(rows - 1) / set.row_step]; }

// A buffer of floats that starts at a cache line, because microkernels read and write whole lines. Threads
// keep their packing buffers from one GEMM to the next.
struct LineFloats {
    static constexpr size_t LINE = 64 / sizeof(float);  // floats in a cache line

    // glibc registers the destructor of a thread_local object next, and aborts if it cannot allocate a few
    // bytes for that. Throws std::bad_alloc first if memory is that short.
    LineFloats() { ::operator delete(::operator new(4096)); }

    // Ensures capacity for n floats and returns data(). Previous contents may be lost.
    float* at_least(size_t n) {
        if (memory.size() < n + LINE) memory.resize(n + LINE);
        return data();
    }
    float* data() {
        const size_t misalignment = reinterpret_cast<uintptr_t>(memory.data()) / sizeof(float) % LINE;
        return memory.data() + (LINE - misalignment) % LINE;
    }

   private:
    std::vector<float> memory;
};

// Converts src (rows, n) with leading dimension ld to floats: dst (rows, n) with leading dimension dst_ld.
template <class Real>
void copy_to_floats(float* dst, size_t dst_ld, const Real* src, size_t ld, int rows, int n);

// Loads four consecutive elements as floats.
static SIMD_INLINE Float4 load4(const float* x) {
    Float4 v;
    memcpy(&v, x, sizeof v);
    return v;
}
static SIMD_INLINE Float4 load4(const bf16* x) {
    typedef uint16_t Half4 __attribute__((vector_size(8)));
    Half4 bits;
    memcpy(&bits, x, sizeof bits);
    typedef uint16_t Half8 __attribute__((vector_size(16)));
    const Half8 wide = __builtin_shufflevector(Half4{}, bits, 0, 4, 1, 5, 2, 6, 3, 7);
    Float4 v;
    memcpy(&v, &wide, sizeof v);
    return v;
}
template <class Real>
static SIMD_INLINE Float4 load4(const Real* x) {
    return Float4{float(x[0]), float(x[1]), float(x[2]), float(x[3])};
}

// Transposes a 4 x 4 block, given as four rows, into dst with leading dimension dst_ld.
static SIMD_INLINE void transpose4(float* dst, size_t dst_ld, const Float4 r[4]) {
    const Float4 lo01 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5),
                 hi01 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    const Float4 lo23 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5),
                 hi23 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    const Float4 columns[4] = {
        __builtin_shufflevector(lo01, lo23, 0, 1, 4, 5), __builtin_shufflevector(lo01, lo23, 2, 3, 6, 7),
        __builtin_shufflevector(hi01, hi23, 0, 1, 4, 5), __builtin_shufflevector(hi01, hi23, 2, 3, 6, 7)};
    for (int k = 0; k < 4; k++) memcpy(dst + k * dst_ld, &columns[k], sizeof(Float4));
}
