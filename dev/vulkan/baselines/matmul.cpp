// The baselines of GEMMs and bias gradients: one invocation per element, and tiles through shared memory.
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

// --- version 1: one invocation per element ---

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

// --- version 2: square tiles, with one invocation per element ---

template <class Real>
static void run2(LaunchPad& pad, const char* kernel, const MatmulArgs& args, Tile tile) {
    pad.dispatch<Real>(kernel, {ceil_div(args.M, tile.m) * ceil_div(args.N, tile.n)},
                       {uint32_t(tile.m * tile.n), uint32_t(tile.m)}, args, work_of(args));
}

template <class Real>
static void matmul_forward2(LaunchPad& pad, const MatmulForward<Real>& p, Tile tile) {
    run2<Real>(pad, "matmul_forward2", args_of(pad, p), tile);
}

template <class Real>
static void matmul_dinp2(LaunchPad& pad, const MatmulBackwardInput<Real>& p, Tile tile) {
    run2<Real>(pad, "matmul_dinp2", args_of(pad, p), tile);
}

template <class Real>
static void matmul_dweight2(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, Tile tile) {
    run2<Real>(pad, "matmul_dweight2", args_of(pad, p), tile);
}

// --- tables ---

template <class Params>
using Launcher = void (*)(LaunchPad&, const Params&, Tile);

template <class Params>
struct Named {
    const char* name;
    Launcher<Params> launch;
};

// Versions 1 and 2 have the same configs in every table.
template <class Params>
static Versions<Params, Tile> join_gemms(const Named<Params>& version1, const Named<Params>& version2,
                                         const Versions<Params, Tile>& versions) {
    return join<Params, Tile>(
        {{version1.name, "one invocation per element", version1.launch, {{1, 128}, {1, 64}, {1, 256}}},
         {version2.name, "tiles through shared memory", version2.launch, {{16, 16}, {8, 8}}}},
        versions);
}

template <class Real>
Versions<MatmulForward<Real>, Tile> with_baselines(Versions<MatmulForward<Real>, Tile> versions) {
    return join_gemms<MatmulForward<Real>>({"matmul_forward1", matmul_forward1<Real>},
                                           {"matmul_forward2", matmul_forward2<Real>}, versions);
}

template <class Real>
Versions<MatmulBackwardInput<Real>, Tile> with_baselines(Versions<MatmulBackwardInput<Real>, Tile> versions) {
    return join_gemms<MatmulBackwardInput<Real>>({"matmul_dinp1", matmul_dinp1<Real>},
                                                 {"matmul_dinp2", matmul_dinp2<Real>}, versions);
}

template <class Real>
Versions<MatmulBackwardParameters<Real>, Tile> with_baselines(
    Versions<MatmulBackwardParameters<Real>, Tile> versions) {
    return join_gemms<MatmulBackwardParameters<Real>>({"matmul_dweight1", matmul_dweight1<Real>},
                                                      {"matmul_dweight2", matmul_dweight2<Real>}, versions);
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
