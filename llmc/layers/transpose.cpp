// Transposes: the CPU version, the GPU version, and the dispatcher that training calls.
#include "llmc/layers/transpose.h"

#include "llmc/base/ceil_div.h"
#include "llmc/cpu/cpu_timer.h"
#include "shaders/args.h"

template <class Real>
void transpose_cpu(const Transpose<Real>& p) {
    const int rows = p.rows, columns = p.columns;
    const CpuTimer timer("transpose", memory_traffic<Real>(2.0 * rows * columns));
#pragma omp parallel for
    for (int column = 0; column < columns; column++)
        for (int row = 0; row < rows; row++)
            p.out[size_t(column) * rows + row] = p.inp[size_t(row) * columns + column];
}

template <class Real>
static void transpose1(LaunchPad& pad, const Transpose<Real>& p, int block_size) {
    const size_t n = size_t(p.rows) * p.columns;
    const TransposeArgs args = {
        .outp = pad.at(p.out, n), .inp = pad.at(p.inp, n), .rows = p.rows, .columns = p.columns};
    if (p.rows % 8 || p.columns % 8 || (args.outp | args.inp) % 16)
        fail("transpose: %d x %d: both sizes must be multiples of 8, and addresses aligned to 16 bytes",
             p.rows, p.columns);
    // 32 consecutive invocations transpose 4 x 8 tiles of 8 x 8 elements
    const uint64_t groups = ceil_div(p.rows, 4 * 8) * ceil_div(p.columns, 8 * 8);
    pad.dispatch<Real>("transpose1", {ceil_div(groups * 32, block_size)}, {uint32_t(block_size)}, args,
                       memory_traffic<Real>(2.0 * double(n)));
}

template <class Real>
std::vector<KernelVersion<Transpose<Real>>> transpose_versions() {
    return {{"transpose1", "one invocation per tile of 8 x 8", transpose1<Real>, {128, 32, 64, 256}}};
}

template <class Real>
void transpose(LaunchPad* pad, const Transpose<Real>& p) {
    if (!pad) return transpose_cpu(p);
    transpose1(*pad, p, 128);
}

#define INSTANTIATE(Real)                                                      \
    template void transpose_cpu(const Transpose<Real>&);                       \
    template std::vector<KernelVersion<Transpose<Real>>> transpose_versions(); \
    template void transpose(LaunchPad*, const Transpose<Real>&);
FOR_EACH_REAL(INSTANTIATE)
