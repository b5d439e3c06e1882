// Transposes: the CPU version, the GPU version, and the function that training calls.
#include "llmc/transpose.h"

#include "llmc/cpu_times.h"
#include "shaders/args.h"

template <class T>
void transpose_cpu(T* out, const T* inp, int rows, int columns) {
    const CpuTimer timer("transpose", moves<T>(2.0 * rows * columns));
#pragma omp parallel for
    for (int column = 0; column < columns; column++)
        for (int row = 0; row < rows; row++)
            out[size_t(column) * rows + row] = inp[size_t(row) * columns + column];
}

template <class T>
static void transpose1(LaunchPad& pad, T* out, const T* inp, int rows, int columns, int block_size) {
    const size_t n = size_t(rows) * columns;
    const TransposeArgs args = {pad.at(out, n), pad.at(inp, n), rows, columns};
    if (rows % 8 || columns % 8 || (args.outp | args.inp) % 16)
        fail("transpose: %d x %d elements are not in blocks of 8 x 8, or not aligned to 16 bytes", rows,
             columns);
    const uint64_t patches = blocks(rows, 8 * 4) * blocks(columns, 8 * 8);  // of 32 invocations
    pad.dispatch<T>("transpose1", {blocks(patches * 32, block_size)}, {uint32_t(block_size)}, args,
                    moves<T>(2.0 * double(n)));
}

template <class T>
std::vector<KernelVersion<Transpose<T>>> transpose_versions() {
    return {{"transpose1", "an invocation takes 8 x 8 elements", transpose1<T>, {128, 32, 64, 256}}};
}

template <class T>
void transpose(LaunchPad* pad, T* out, const T* inp, int rows, int columns) {
    if (!pad) return transpose_cpu(out, inp, rows, columns);
    transpose1(*pad, out, inp, rows, columns, 128);
}

#define INSTANTIATE(T)                                                      \
    template void transpose_cpu(T*, const T*, int, int);                    \
    template std::vector<KernelVersion<Transpose<T>>> transpose_versions(); \
    template void transpose(LaunchPad*, T*, const T*, int, int);
FOR_EACH_REAL(INSTANTIATE)
