// The baselines of GEMMs and bias gradients: one invocation per element.
#include "dev/vulkan/baselines/join.h"
#include "llmc/layers/matmul_args.h"

template <class Real>
static MatmulArgs args_of(LaunchPad& pad, const MatmulForward<Real>& p) {
    return matmul_args(pad, weight_gemm(p));
}
template <class Real>
static MatmulArgs args_of(LaunchPad& pad, const MatmulBackwardInput<Real>& p) {
    return matmul_args(pad, weight_gemm(p));
}
template <class Real>
static MatmulArgs args_of(LaunchPad& pad, const MatmulBackwardParameters<Real>& p) {
    return dweight_args<Real>(pad, p, nullptr, {1, p.num_rows});
}

static Work work_of(const MatmulArgs& args) { return {.flops = 2.0 * args.M * args.N * args.K}; }

// Its tile has one row: the elements of a workgroup.
template <class Real>
static void run1(LaunchPad& pad, const char* kernel, const MatmulArgs& args, Tile tile) {
    pad.dispatch<Real>(kernel, {ceil_div(uint64_t(args.M) * uint64_t(args.N), tile.n)}, {uint32_t(tile.n)},
                       args, work_of(args));
}

template <class Real>
static void matmul_forward1(LaunchPad& pad, const MatmulForward<Real>& p, Tile tile) {
    run1<Real>(pad, "matmul_forward1", args_of(pad, p), tile);
}

template <class Real>
static void matmul_dinp1(LaunchPad& pad, const MatmulBackwardInput<Real>& p, Tile tile) {
    run1<Real>(pad, "matmul_dinp1", args_of(pad, p), tile);
}

template <class Real>
static void matmul_dweight1(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, Tile tile) {
    run1<Real>(pad, "matmul_dweight1", args_of(pad, p), tile);
}

template <class Real>
static void matmul_dbias1(LaunchPad& pad, const MatmulDbias<Real>& p, int block_size) {
    const size_t n = p.num_rows, oc = p.OC;
    const MatmulDbiasArgs args = {.dbias = pad.at(p.dbias, oc),
                                  .dout = pad.at(p.dout, n * oc),
                                  .num_rows = p.num_rows,
                                  .OC = p.OC,
                                  .splits = 1,
                                  .rows_per_split = p.num_rows};
    pad.dispatch<Real>("matmul_dbias1", {ceil_div(p.OC, block_size)}, {uint32_t(block_size)}, args,
                       memory_traffic<Real>(double(n * oc)));
}

template <class Params>
static Versions<Params, Tile> join_gemm(const char* name, void (*launch)(LaunchPad&, const Params&, Tile),
                                        const Versions<Params, Tile>& versions) {
    return join<Params, Tile>({{name, "one invocation per element", launch, {{1, 128}, {1, 64}, {1, 256}}}},
                              versions);
}

template <class Real>
Versions<MatmulForward<Real>, Tile> with_baselines(Versions<MatmulForward<Real>, Tile> versions) {
    return join_gemm("matmul_forward1", matmul_forward1<Real>, versions);
}

template <class Real>
Versions<MatmulBackwardInput<Real>, Tile> with_baselines(Versions<MatmulBackwardInput<Real>, Tile> versions) {
    return join_gemm("matmul_dinp1", matmul_dinp1<Real>, versions);
}

template <class Real>
Versions<MatmulBackwardParameters<Real>, Tile> with_baselines(
    Versions<MatmulBackwardParameters<Real>, Tile> versions) {
    return join_gemm("matmul_dweight1", matmul_dweight1<Real>, versions);
}

template <class Real>
Versions<MatmulDbias<Real>> with_baselines(Versions<MatmulDbias<Real>> versions) {
    return join<MatmulDbias<Real>, int>(
        {{"matmul_dbias1", "one invocation per column", matmul_dbias1<Real>, {64, 128}}}, versions);
}

#define INSTANTIATE(Real)                                                                             \
    template Versions<MatmulForward<Real>, Tile> with_baselines(Versions<MatmulForward<Real>, Tile>); \
    template Versions<MatmulBackwardInput<Real>, Tile> with_baselines(                                \
        Versions<MatmulBackwardInput<Real>, Tile>);                                                   \
    template Versions<MatmulBackwardParameters<Real>, Tile> with_baselines(                           \
        Versions<MatmulBackwardParameters<Real>, Tile>);                                              \
    template Versions<MatmulDbias<Real>> with_baselines(Versions<MatmulDbias<Real>>);
FOR_EACH_REAL(INSTANTIATE)
#undef INSTANTIATE
