// What matrix products on the CPU are made of: kernels that keep a tile of sums in vector registers, for each
// instruction set, and what brings operands into the order in which those read them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "llmc/real.h"
#include "llmc/simd.h"

constexpr int MAX_MR = 32, MAX_NR = 32;

// tile (mr, nr) = a b, or tile + a b where `add`. A unit is a float, or a pair of bf16. Unit u of row i of a
// is at a + u * a_unit + i * a_row, of which one is the size of a unit; b: (units, nr).
struct KernelInput {
    const char* a;         // of floats, or of pairs
    size_t a_row, a_unit;  // bytes
    const float* b;
    int units;
    bool add;
};
using Kernel = void(float* tile, const KernelInput& in);

struct KernelSet {
    int mr, nr;          // nr is a multiple of 4
    int step;            // mr is one to three of these
    bool pairs = false;  // a unit is a pair
    int block = 1;  // units come in multiples of it, filled up with zeros; unless it is 1, a_unit is a unit
    Kernel* run[3] = {};  // for one, two and three steps of rows (the last panel may have few)
    void (*begin)() = nullptr, (*end)() = nullptr;  // what a thread calls before and after them, or null
};

// The best for operands of T, which are pairs where T is bf16 and the CPU multiplies those; those for floats.
template <class T>
const KernelSet& best_kernels();

inline int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

// The kernel for so many rows, of which the last few may be made up: its rows are a multiple of `step`.
inline Kernel* kernel_for(const KernelSet& set, int rows) { return set.run[(rows - 1) / set.step]; }

// Memory for panels and tiles, which a thread keeps from product to product: kernels read and write whole
// cache lines, and it begins with one.
class LineFloats {
   public:
    // Room for n floats; what was there may be lost.
    float* at_least(size_t n) {
        if (memory.size() < n + LINE) memory.resize(n + LINE);
        return data();
    }
    float* data() {
        const size_t over = reinterpret_cast<uintptr_t>(memory.data()) / sizeof(float) % LINE;
        return memory.data() + (LINE - over) % LINE;
    }

   private:
    static constexpr size_t LINE = 64 / sizeof(float);
    std::vector<float> memory;
};

// dst (rows, n) as floats, its rows dst_ld apart, src's ld.
void copy_to_floats(float* dst, size_t dst_ld, const float* src, size_t ld, int rows, int n);
void copy_to_floats(float* dst, size_t dst_ld, const bf16* src, size_t ld, int rows, int n);
void copy_to_floats(float* dst, size_t dst_ld, const fp16* src, size_t ld, int rows, int n);

// Four consecutive elements as floats.
static inline Float4 load4(const float* x) {
    Float4 v;
    memcpy(&v, x, sizeof v);
    return v;
}
template <class T>
static inline Float4 load4(const T* x) {
    return Float4{float(x[0]), float(x[1]), float(x[2]), float(x[3])};
}

// Four rows of four, transposed into dst with stride dst_ld.
static inline void transpose4(float* dst, size_t dst_ld, const Float4 r[4]) {
    const Float4 lo01 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5),
                 hi01 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    const Float4 lo23 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5),
                 hi23 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    const Float4 columns[4] = {
        __builtin_shufflevector(lo01, lo23, 0, 1, 4, 5), __builtin_shufflevector(lo01, lo23, 2, 3, 6, 7),
        __builtin_shufflevector(hi01, hi23, 0, 1, 4, 5), __builtin_shufflevector(hi01, hi23, 2, 3, 6, 7)};
    for (int k = 0; k < 4; k++) memcpy(dst + k * dst_ld, &columns[k], sizeof(Float4));
}
