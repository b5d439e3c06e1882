// The reduction of split-K partial sums: see split_k.h.
#include "llmc/gemm/split_k.h"

#include "llmc/base/ceil_div.h"
#include "shaders/args.h"

template <class Real>
SplitKResult<Real> take_unreduced(LaunchPad& pad, const Real* value) {
    Real* out = const_cast<Real*>(value);
    const Unreduced found = pad.take_unreduced(value);
    if (!found.value) return {out};
    return {out, found.partials, found.splits, static_cast<const Real*>(found.bias)};
}

template <class Real>
void launch_split_k_reduction(LaunchPad& pad, const MatmulReduceArgs& args, int num_columns, int epilogue) {
    pad.dispatch<Real>("matmul5_reduce", {ceil_div(args.n / 8, 128)},
                       {128, uint32_t(num_columns), uint32_t(epilogue)}, args,
                       {.bytes = double(args.n) * (4.0 * args.splits + 2.0 * sizeof(Real))});
}

template <class Real>
void reduce_split_k(LaunchPad& pad, const SplitKResult<Real>& result, int num_rows, int C) {
    if (result.splits == 1) return;
    if (C % 8) fail("reduce_split_k: rows of %d elements are no multiple of 8", C);
    const size_t n = size_t(num_rows) * C;
    const MatmulReduceArgs args = {.outp = pad.at(result.value, n),
                                   .bias = pad.at(result.bias, size_t(C)),
                                   .other = 0,
                                   .partials = pad.at(result.partials, n * size_t(result.splits)),
                                   .n = n,
                                   .splits = result.splits};
    launch_split_k_reduction<Real>(pad, args, C, result.bias ? EPILOGUE_BIAS : EPILOGUE_NONE);
}

#define INSTANTIATE(Real)                                                                        \
    template SplitKResult<Real> take_unreduced(LaunchPad&, const Real*);                         \
    template void launch_split_k_reduction<Real>(LaunchPad&, const MatmulReduceArgs&, int, int); \
    template void reduce_split_k(LaunchPad&, const SplitKResult<Real>&, int, int);
FOR_EACH_REAL(INSTANTIATE)
