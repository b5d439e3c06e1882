// The baselines of GEMMs and bias gradients: one invocation per element, and tiles through shared memory.
#include "dev/vulkan/baselines/join.h"
#include "llmc/layers/matmul_simt.h"

template <class Real>
static MatmulForwardArgs forward_args(LaunchPad& pad, const MatmulForward<Real>& p) {
    const size_t n = p.num_rows, c = p.C, oc = p.OC;
    return {.outp = pad.at(p.out, n * oc),
            .inp = pad.at(p.inp, n * c),
            .weight = pad.at(p.weight, oc * c),
            .bias = pad.at(p.bias, oc),
            .num_rows = p.num_rows,
            .C = p.C,
            .OC = p.OC};
}

template <class Real>
static MatmulDinpArgs dinp_args(LaunchPad& pad, const MatmulBackwardInput<Real>& p) {
    const size_t n = p.num_rows, c = p.C, oc = p.OC;
    return {.dinp = pad.at(p.dinp, n * c),
            .dout = pad.at(p.dout, n * oc),
            .weight = pad.at(p.weight, oc * c),
            .num_rows = p.num_rows,
            .C = p.C,
            .OC = p.OC};
}

template <class Real>
static MatmulDweightArgs dweight_args(LaunchPad& pad, const MatmulBackwardParameters<Real>& p) {
    const size_t n = p.num_rows, c = p.C, oc = p.OC;
    return {.dweight = pad.at(p.dweight, oc * c),
            .dout = pad.at(p.dout, n * oc),
            .inp = pad.at(p.inp, n * c),
            .num_rows = p.num_rows,
            .C = p.C,
            .OC = p.OC,
            .splits = 1,
            .rows_per_split = p.num_rows,
            .accumulate = p.accumulate};
}

// --- version 1: one invocation per element ---

// Its tile has one row: the elements of a workgroup.
template <class Real>
static void matmul_forward1(LaunchPad& pad, const MatmulForward<Real>& p, Tile tile) {
    pad.dispatch<Real>("matmul_forward1", {ceil_div(uint64_t(p.num_rows) * p.OC, tile.n)}, {uint32_t(tile.n)},
                       forward_args(pad, p), gemm_work(p));
}

template <class Real>
static void matmul_dinp1(LaunchPad& pad, const MatmulBackwardInput<Real>& p, Tile tile) {
    pad.dispatch<Real>("matmul_dinp1", {ceil_div(uint64_t(p.num_rows) * p.C, tile.n)}, {uint32_t(tile.n)},
                       dinp_args(pad, p), gemm_work(p));
}

template <class Real>
static void matmul_dweight1(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, Tile tile) {
    pad.dispatch<Real>("matmul_dweight1", {ceil_div(uint64_t(p.OC) * p.C, tile.n)}, {uint32_t(tile.n)},
                       dweight_args(pad, p), gemm_work(p));
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

static Groups tiles_of(Tile tile, int M, int N) { return {ceil_div(M, tile.m) * ceil_div(N, tile.n)}; }
static uint32_t block_of(Tile tile) { return uint32_t(tile.m * tile.n); }

template <class Real>
static void matmul_forward2(LaunchPad& pad, const MatmulForward<Real>& p, Tile tile) {
    pad.dispatch<Real>("matmul_forward2", tiles_of(tile, p.num_rows, p.OC),
                       {block_of(tile), uint32_t(tile.m)}, forward_args(pad, p), gemm_work(p));
}

template <class Real>
static void matmul_dinp2(LaunchPad& pad, const MatmulBackwardInput<Real>& p, Tile tile) {
    pad.dispatch<Real>("matmul_dinp2", tiles_of(tile, p.num_rows, p.C), {block_of(tile), uint32_t(tile.m)},
                       dinp_args(pad, p), gemm_work(p));
}

template <class Real>
static void matmul_dweight2(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, Tile tile) {
    pad.dispatch<Real>("matmul_dweight2", tiles_of(tile, p.OC, p.C), {block_of(tile), uint32_t(tile.m)},
                       dweight_args(pad, p), gemm_work(p));
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
