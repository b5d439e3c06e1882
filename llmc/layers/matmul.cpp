// GEMMs of the linear layers: GPU versions, their tables, and the functions that training calls. The CPU
// versions are in matmul_cpu.cpp.
#include "llmc/layers/matmul.h"

#include <algorithm>
#include <optional>

#include "llmc/base/ceil_div.h"
#include "llmc/gemm/packed_weight.h"
#include "llmc/gemm/split_k.h"
#include "llmc/gemm/tensor_core.h"
#include "llmc/layers/gelu.h"
#include "llmc/layers/packs.h"
#include "shaders/args.h"

template <class Real>
static MatmulForwardArgs forward_args(LaunchPad& pad, const MatmulForward<Real>& p) {
    const size_t n = p.num_rows, c = p.C, oc = p.OC;
    return {pad.at(p.out, n * oc),
            pad.at(p.inp, n * c),
            pad.at(p.weight, oc * c),
            pad.at(p.bias, oc),
            p.num_rows,
            p.C,
            p.OC};
}

template <class Real>
static MatmulDinpArgs dinp_args(LaunchPad& pad, const MatmulBackwardInput<Real>& p) {
    const size_t n = p.num_rows, c = p.C, oc = p.OC;
    return {pad.at(p.dinp, n * c), pad.at(p.dout, n * oc), pad.at(p.weight, oc * c), p.num_rows, p.C, p.OC};
}

// The work of any of the GEMMs of a layer.
template <class Params>
static Work gemm_work(const Params& p) {
    return {.flops = 2.0 * p.num_rows * p.C * p.OC};
}

// Split-K of a GEMM that sums over rows: `splits` parts of `rows` rows each.
struct RowSplits {
    int splits, rows;
};

static RowSplits split_rows(int num_rows, int splits, int multiple) {
    const int rows = int(ceil_div(ceil_div(num_rows, splits), multiple)) * multiple;
    return {int(ceil_div(num_rows, rows)), rows};
}

template <class Real>
static MatmulDweightArgs dweight_args(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, float* scratch,
                                      RowSplits split) {
    const size_t n = p.num_rows, c = p.C, oc = p.OC;
    const uint64_t partials = split.splits > 1 ? pad.at(scratch, split.splits * oc * c) : 0;
    return {pad.at(p.dweight, oc * c),
            partials,
            pad.at(p.dout, n * oc),
            pad.at(p.inp, n * c),
            p.num_rows,
            p.C,
            p.OC,
            split.splits,
            split.rows,
            p.accumulate};
}

template <class Real>
static MatmulDbiasArgs dbias_args(LaunchPad& pad, const MatmulDbias<Real>& p, float* scratch,
                                  RowSplits split) {
    const size_t n = p.num_rows, oc = p.OC;
    const uint64_t partials = split.splits > 1 ? pad.at(scratch, split.splits * oc) : 0;
    return {pad.at(p.dbias, oc), partials,  pad.at(p.dout, n * oc), p.num_rows, p.OC,
            split.splits,        split.rows};
}

// out (n) = the sum of the partials (splits, n), or += that. With one split, the kernel has written out
// itself.
template <class Real>
static void reduce_partials(LaunchPad& pad, Real* out, const float* partials, size_t n, int splits,
                            bool accumulate) {
    if (splits == 1) return;
    MatmulSumArgs args = {pad.at(out, n), pad.at(partials, n * splits), int(n), splits, accumulate};
    const bool aligned = args.partials % 16 == 0;
    const uint32_t width = aligned ? pack_width<Real>(n, {args.outp}) : 1, block = 256;
    const uint32_t lanes = splits < 64 ? 1 : 32;  // dbias: few columns, many splits
    pad.dispatch<Real>("matmul_sum", {ceil_div(n / width, block / lanes)}, {block, width, lanes}, args,
                       {.bytes = double(n) * (4.0 * splits + (accumulate ? 2.0 : 1.0) * sizeof(Real))});
}

// --- versions 1 and 2: one invocation per element; tiles through shared memory ---

// Version 1 names its block size as the width of a tile of one row.
static uint32_t block_of(Tile tile) { return uint32_t(tile.m * tile.n); }

template <class Real>
static void matmul_forward1(LaunchPad& pad, const MatmulForward<Real>& p, Tile tile) {
    pad.dispatch<Real>("matmul_forward1", {ceil_div(uint64_t(p.num_rows) * p.OC, block_of(tile))},
                       {block_of(tile)}, forward_args(pad, p), gemm_work(p));
}

template <class Real>
static void matmul_dinp1(LaunchPad& pad, const MatmulBackwardInput<Real>& p, Tile tile) {
    pad.dispatch<Real>("matmul_dinp1", {ceil_div(uint64_t(p.num_rows) * p.C, block_of(tile))},
                       {block_of(tile)}, dinp_args(pad, p), gemm_work(p));
}

template <class Real>
static void matmul_dweight1(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, Tile tile) {
    pad.dispatch<Real>("matmul_dweight1", {ceil_div(uint64_t(p.OC) * p.C, block_of(tile))}, {block_of(tile)},
                       dweight_args<Real>(pad, p, nullptr, {1, p.num_rows}), gemm_work(p));
}

template <class Real>
static void matmul_dbias1(LaunchPad& pad, const MatmulDbias<Real>& p, int block_size) {
    pad.dispatch<Real>("matmul_dbias1", {ceil_div(p.OC, block_size)}, {uint32_t(block_size)},
                       dbias_args<Real>(pad, p, nullptr, {1, p.num_rows}),
                       memory_traffic<Real>(double(p.num_rows) * p.OC));
}

static Groups grid2(Tile tile, int M, int N) { return {ceil_div(M, tile.m) * ceil_div(N, tile.n)}; }

template <class Real>
static void matmul_forward2(LaunchPad& pad, const MatmulForward<Real>& p, Tile tile) {
    pad.dispatch<Real>("matmul_forward2", grid2(tile, p.num_rows, p.OC), {block_of(tile), uint32_t(tile.m)},
                       forward_args(pad, p), gemm_work(p));
}

template <class Real>
static void matmul_dinp2(LaunchPad& pad, const MatmulBackwardInput<Real>& p, Tile tile) {
    pad.dispatch<Real>("matmul_dinp2", grid2(tile, p.num_rows, p.C), {block_of(tile), uint32_t(tile.m)},
                       dinp_args(pad, p), gemm_work(p));
}

template <class Real>
static void matmul_dweight2(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, Tile tile) {
    pad.dispatch<Real>("matmul_dweight2", grid2(tile, p.OC, p.C), {block_of(tile), uint32_t(tile.m)},
                       dweight_args<Real>(pad, p, nullptr, {1, p.num_rows}), gemm_work(p));
}

// --- version 3: register blocking and prefetching ---

// A workgroup of `block` invocations computes a tile; each invocation accumulates 8 columns of rows_each
// rows. K may be divided among k_groups of invocations: large tiles read least, small ones with k_groups fill
// a large GPU if the GEMM is small.
struct Shape3 {
    Tile tile;
    int block, rows_each, k_groups;
};
static const Shape3 shapes3[] = {{{128, 128}, 128, 16, 1},
                                 {{64, 64}, 64, 8, 1},
                                 {{32, 64}, 256, 8, 8},
                                 {{128, 64}, 256, 4, 1},
                                 {{64, 32}, 64, 4, 1}};
static const Tile LARGE_TILE3 = {128, 128}, MEDIUM_TILE3 = {64, 64}, SMALL_TILE3 = {32, 64};
// Where registers are few (Limits::few_registers)
static const Tile LARGE_FRUGAL_TILE3 = {128, 64}, FRUGAL_TILE3 = {64, 32};

static const Shape3& shape3(Tile tile) {
    for (const Shape3& shape : shapes3)
        if (shape.tile == tile) return shape;
    fail("matmul version 3 has no tile of %d x %d", tile.m, tile.n);
}

static uint64_t count_tiles3(Tile tile, uint64_t M, uint64_t N) {
    return ceil_div(M, tile.m) * ceil_div(N, tile.n);
}

// Whether the kernel may access four elements at a time: every row of every tensor is aligned to that.
template <class Real>
static bool is_wide(int C, int OC, std::initializer_list<uint64_t> addresses) {
    return OC % 4 == 0 && pack_width<Real>(C, addresses) == 4;
}

// A GEMM (M,N) over K, as version 3 runs it.
struct Gemm3 {
    const char* kernel;
    Tile tile;
    int M, N, K;
    bool wide;
    int splits = 1;
};

template <class Real, class Args>
static void dispatch3(LaunchPad& pad, const Gemm3& g, const Args& args, const Work& work) {
    const Shape3& s = shape3(g.tile);
    const bool exact = g.M % g.tile.m == 0 && g.N % g.tile.n == 0 && g.K % (8 * s.k_groups) == 0;
    const uint32_t guarded = !g.wide || !exact;
    pad.dispatch<Real>(g.kernel, {count_tiles3(g.tile, g.M, g.N) * g.splits},
                       {uint32_t(s.block), uint32_t(args.C), uint32_t(args.OC), g.wide, guarded,
                        uint32_t(g.tile.m), uint32_t(g.tile.n), uint32_t(s.rows_each), uint32_t(s.k_groups)},
                       args, work);
}

template <class Real>
static void matmul_forward3(LaunchPad& pad, const MatmulForward<Real>& p, Tile tile) {
    const MatmulForwardArgs args = forward_args(pad, p);
    const bool wide = is_wide<Real>(p.C, p.OC, {args.outp, args.inp, args.weight, args.bias});
    dispatch3<Real>(pad, {"matmul_forward3", tile, p.num_rows, p.OC, p.C, wide}, args, gemm_work(p));
}

template <class Real>
static void matmul_dinp3(LaunchPad& pad, const MatmulBackwardInput<Real>& p, Tile tile) {
    const MatmulDinpArgs args = dinp_args(pad, p);
    const bool wide = is_wide<Real>(p.C, p.OC, {args.dinp, args.dout, args.weight});
    dispatch3<Real>(pad, {"matmul_dinp3", tile, p.num_rows, p.C, p.OC, wide}, args, gemm_work(p));
}

// Enough splits for 1024 workgroups (several per SM of a large GPU, so that the last wave costs little), each
// of at least 128 rows. The numbers decide the order of sums: they do not depend on the device.
static RowSplits dweight_splits(int num_rows, int C, int OC, Tile tile) {
    const uint64_t most = std::max<uint64_t>(1024 / count_tiles3(tile, OC, C), 1);
    return split_rows(num_rows, int(std::min(most, ceil_div(num_rows, 128))), 8);
}

// Launches version 3 without its reduction.
template <class Real>
static RowSplits dweight_partials(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, float* scratch,
                                  Tile tile) {
    const RowSplits split = dweight_splits(p.num_rows, p.C, p.OC, tile);
    const MatmulDweightArgs args = dweight_args(pad, p, scratch, split);
    const bool wide = is_wide<Real>(p.C, p.OC, {args.dweight, args.partials, args.dout, args.inp});
    dispatch3<Real>(pad, {"matmul_dweight3", tile, p.OC, p.C, p.num_rows, wide, split.splits}, args,
                    gemm_work(p));
    return split;
}

template <class Real>
static size_t dweight_floats(LaunchPad& pad, const MatmulBackwardParameters<Real>& p);

template <class Real>
static void matmul_dweight3(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, Tile tile) {
    float* scratch = pad.scratch(Scratch::parameters, dweight_floats(pad, p));
    const RowSplits split = dweight_partials(pad, p, scratch, tile);
    pad.barrier();
    reduce_partials(pad, p.dweight, scratch, size_t(p.OC) * p.C, split.splits, p.accumulate);
}

// --- version 4: for software devices, where barriers are expensive ---

// An invocation computes 16 rows by 8 columns.
static uint32_t block4(Tile tile) { return uint32_t(tile.n / 8); }

template <class Real>
static void matmul_forward4(LaunchPad& pad, const MatmulForward<Real>& p, Tile tile) {
    pad.dispatch<Real>("matmul_forward4", grid2(tile, p.num_rows, p.OC), {block4(tile)}, forward_args(pad, p),
                       gemm_work(p));
}

template <class Real>
static void matmul_dinp4(LaunchPad& pad, const MatmulBackwardInput<Real>& p, Tile tile) {
    pad.dispatch<Real>("matmul_dinp4", grid2(tile, p.num_rows, p.C), {block4(tile)}, dinp_args(pad, p),
                       gemm_work(p));
}

template <class Real>
static void matmul_dweight4(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, Tile tile) {
    pad.dispatch<Real>("matmul_dweight4", grid2(tile, p.OC, p.C), {block4(tile)},
                       dweight_args<Real>(pad, p, nullptr, {1, p.num_rows}), gemm_work(p));
}

// --- version 5: cooperative matrices if type and sizes allow it, otherwise version 3 ---

// A tile of its own choice if `tile` is null. K is split only if may_split.
template <class Real>
static GemmLaunch<Real> plan_launch(LaunchPad& pad, const GemmShape& gemm, std::optional<Tile> tile,
                                    bool may_split, MatmulMatrixArgs args) {
    const GemmPlan plan = plan_gemm<Real>(pad, gemm, tile, may_split);
    if (const size_t floats = partial_floats(gemm, plan)) {
        const Scratch slot = gemm.layout == GemmLayout::tn ? Scratch::parameters : Scratch::gemm;
        args.partials = pad.at(pad.scratch(slot, floats), floats);
    }
    return {gemm, plan, args};
}

// packed_weight: what pack_weight() returned for p.weight; null: none.
template <class Real>
static GemmLaunch<Real> plan_forward(LaunchPad& pad, const MatmulForward<Real>& p,
                                     std::optional<Tile> tile = {}, bool may_split = true,
                                     const Real* packed_weight = nullptr) {
    const size_t n = p.num_rows, c = p.C, oc = p.OC;
    const GemmShape gemm = {.layout = packed_weight ? GemmLayout::packed : GemmLayout::nt,
                            .M = p.num_rows,
                            .N = p.OC,
                            .K = p.C,
                            .epilogue = p.pre    ? EPILOGUE_GELU
                                        : p.bias ? EPILOGUE_BIAS
                                                 : EPILOGUE_NONE,
                            .unreduced = p.next == NextLayer::layernorm};
    const Real* weight = packed_weight ? packed_weight : p.weight;
    return plan_launch<Real>(pad, gemm, tile, may_split,
                             {.outp = pad.at(p.out, n * oc),
                              .a = pad.at(p.inp, n * c),
                              .b = pad.at(weight, oc * c),
                              .bias = pad.at(p.bias, oc),
                              .other = pad.at(p.pre, n * oc)});
}

template <class Real>
static GemmLaunch<Real> plan_dinp(LaunchPad& pad, const MatmulBackwardInput<Real>& p,
                                  std::optional<Tile> tile = {}, bool may_split = true,
                                  const Real* packed_weight = nullptr) {
    const size_t n = p.num_rows, c = p.C, oc = p.OC;
    const GemmShape gemm = {.layout = packed_weight ? GemmLayout::packed : GemmLayout::nn,
                            .M = p.num_rows,
                            .N = p.C,
                            .K = p.OC,
                            .epilogue = p.pre ? EPILOGUE_GELU_SLOPE : EPILOGUE_NONE,
                            .unreduced = p.next == NextLayer::layernorm};
    return plan_launch<Real>(pad, gemm, tile, may_split,
                             {.outp = pad.at(p.dinp, n * c),
                              .a = pad.at(p.dout, n * oc),
                              .b = pad.at(packed_weight ? packed_weight : p.weight, oc * c),
                              .bias = 0,
                              .other = pad.at(p.pre, n * c)});
}

static GemmShape dweight_gemm(int num_rows, int C, int OC, bool accumulate) {
    return {GemmLayout::tn, OC, C, num_rows, accumulate ? EPILOGUE_ADD : EPILOGUE_NONE};
}

template <class Real>
static GemmLaunch<Real> plan_dweight(LaunchPad& pad, const MatmulBackwardParameters<Real>& p,
                                     std::optional<Tile> tile = {}) {
    const size_t n = p.num_rows, c = p.C, oc = p.OC;
    return plan_launch<Real>(
        pad, dweight_gemm(p.num_rows, p.C, p.OC, p.accumulate), tile, true,
        {.outp = pad.at(p.dweight, oc * c), .a = pad.at(p.dout, n * oc), .b = pad.at(p.inp, n * c)});
}

template <class Real>
static void matmul_forward5(LaunchPad& pad, const MatmulForward<Real>& p, Tile tile) {
    if (!on_tensor_cores<Real>(pad, p.C, p.OC)) return matmul_forward3(pad, p, MEDIUM_TILE3);
    plan_forward(pad, p, tile, false).run(pad);
}

template <class Real>
static void matmul_dinp5(LaunchPad& pad, const MatmulBackwardInput<Real>& p, Tile tile) {
    if (!on_tensor_cores<Real>(pad, p.C, p.OC)) return matmul_dinp3(pad, p, MEDIUM_TILE3);
    plan_dinp(pad, p, tile, false).run(pad);
}

template <class Real>
static void matmul_dweight5(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, Tile tile) {
    if (!on_tensor_cores<Real>(pad, p.C, p.OC)) return matmul_dweight3(pad, p, MEDIUM_TILE3);
    plan_dweight(pad, p, tile).run(pad);
}

// --- version 6: from a packed weight if type and sizes allow it, otherwise version 5 ---

// The weight as operand B of the forward GEMM, and of dinp.
template <class Real>
static const Real* pack_for_forward(LaunchPad& pad, const MatmulForward<Real>& p) {
    const Real* packed = pack_weight<Real>(pad, {.weight = p.weight, .K = p.C, .N = p.OC, .N_major = false});
    pad.barrier();
    return packed;
}
template <class Real>
static const Real* pack_for_dinp(LaunchPad& pad, const MatmulBackwardInput<Real>& p) {
    const Real* packed = pack_weight<Real>(pad, {.weight = p.weight, .K = p.OC, .N = p.C, .N_major = true});
    pad.barrier();
    return packed;
}

static const Tile FALLBACK_TILE5 = {64, 64};

template <class Real>
static void matmul_forward6(LaunchPad& pad, const MatmulForward<Real>& p, Tile tile) {
    if (!can_pack<Real>(pad, p.C, p.OC)) return matmul_forward5(pad, p, FALLBACK_TILE5);
    plan_forward(pad, p, tile, false, pack_for_forward(pad, p)).run(pad);
}

template <class Real>
static void matmul_dinp6(LaunchPad& pad, const MatmulBackwardInput<Real>& p, Tile tile) {
    if (!can_pack<Real>(pad, p.OC, p.C)) return matmul_dinp5(pad, p, FALLBACK_TILE5);
    plan_dinp(pad, p, tile, false, pack_for_dinp(pad, p)).run(pad);
}

// --- bias gradients ---

// A workgroup of matmul_dbias2 takes 32 packs of columns, and 8 rows at a time in each of its lanes.
static const int DBIAS_PACKS = 32, DBIAS_ROWS = 8, DBIAS_BLOCK = 256;

// Enough splits for 2^18 invocations, each of enough rows that none is loaded alone; one split if rows are so
// few that a second kernel would take longer.
template <class Real>
static RowSplits dbias_splits(int num_rows, int OC, int block_size) {
    if (num_rows <= 1024) return {1, num_rows};
    const uint64_t across = ceil_div(OC, DBIAS_PACKS * 16 / sizeof(Real)), wanted = (1 << 18) / block_size;
    return split_rows(num_rows, int(std::max<uint64_t>(wanted / across, 1)),
                      DBIAS_ROWS * block_size / DBIAS_PACKS);
}

template <class Real>
static size_t dbias_floats(int num_rows, int OC, int block_size) {
    return size_t(dbias_splits<Real>(num_rows, OC, block_size).splits) * OC;
}

// Launches matmul_dbias2 without its reduction.
template <class Real>
static RowSplits dbias_partials(LaunchPad& pad, const MatmulDbias<Real>& p, float* scratch, int block_size) {
    const RowSplits split = dbias_splits<Real>(p.num_rows, p.OC, block_size);
    const MatmulDbiasArgs args = dbias_args(pad, p, scratch, split);
    const uint32_t width = wide_pack_width<Real>(p.OC, {args.dout, args.dbias});
    pad.dispatch<Real>("matmul_dbias2", {ceil_div(p.OC / width, DBIAS_PACKS) * split.splits},
                       {uint32_t(block_size), width}, args, memory_traffic<Real>(double(p.num_rows) * p.OC));
    return split;
}

template <class Real>
static void matmul_dbias2(LaunchPad& pad, const MatmulDbias<Real>& p, int block_size) {
    float* scratch = pad.scratch(Scratch::parameters, dbias_floats<Real>(p.num_rows, p.OC, block_size));
    const RowSplits split = dbias_partials(pad, p, scratch, block_size);
    pad.barrier();
    reduce_partials(pad, p.dbias, scratch, p.OC, split.splits, true);
}

// --- tables ---

static const char* const VERSION2 = "tiles through shared memory";
static const char* const VERSION3 = "16 x 8 elements per invocation, 16-byte loads, next tile prefetched";
static const char* const VERSION6 =
    "cooperative matrices; packs the weight and loads it without shared memory";
static const char* const VERSION4 = "16 x 8 elements per invocation, no shared memory: for software devices";

template <class Real>
std::vector<KernelVersion<MatmulForward<Real>, Tile>> matmul_forward_versions() {
    return {
        {"matmul_forward1",
         "one invocation per element",
         matmul_forward1<Real>,
         {{1, 128}, {1, 64}, {1, 256}}},
        {"matmul_forward2", VERSION2, matmul_forward2<Real>, {{16, 16}, {8, 8}}},
        {"matmul_forward3",
         VERSION3,
         matmul_forward3<Real>,
         {LARGE_TILE3, MEDIUM_TILE3, SMALL_TILE3, LARGE_FRUGAL_TILE3, FRUGAL_TILE3}},
        {"matmul_forward4", VERSION4, matmul_forward4<Real>, {{16, 64}, {16, 256}}},
        {"matmul5_nt", "cooperative matrices, fused bias", matmul_forward5<Real>,
         tensor_core_tiles(GemmLayout::nt)},
        {"matmul6", VERSION6, matmul_forward6<Real>, tensor_core_tiles(GemmLayout::packed)},
    };
}

template <class Real>
std::vector<KernelVersion<MatmulBackwardInput<Real>, Tile>> matmul_dinp_versions() {
    return {
        {"matmul_dinp1", "one invocation per element", matmul_dinp1<Real>, {{1, 128}, {1, 64}, {1, 256}}},
        {"matmul_dinp2", VERSION2, matmul_dinp2<Real>, {{16, 16}, {8, 8}}},
        {"matmul_dinp3",
         VERSION3,
         matmul_dinp3<Real>,
         {LARGE_TILE3, MEDIUM_TILE3, SMALL_TILE3, LARGE_FRUGAL_TILE3, FRUGAL_TILE3}},
        {"matmul_dinp4", VERSION4, matmul_dinp4<Real>, {{16, 64}, {16, 256}}},
        {"matmul5_nn", "cooperative matrices", matmul_dinp5<Real>, tensor_core_tiles(GemmLayout::nn)},
        {"matmul6", VERSION6, matmul_dinp6<Real>, tensor_core_tiles(GemmLayout::packed)},
    };
}

template <class Real>
std::vector<KernelVersion<MatmulBackwardParameters<Real>, Tile>> matmul_dweight_versions() {
    return {
        {"matmul_dweight1",
         "one invocation per element",
         matmul_dweight1<Real>,
         {{1, 128}, {1, 64}, {1, 256}}},
        {"matmul_dweight2", VERSION2, matmul_dweight2<Real>, {{16, 16}, {8, 8}}},
        {"matmul_dweight3", VERSION3, matmul_dweight3<Real>, {LARGE_TILE3, MEDIUM_TILE3, FRUGAL_TILE3}},
        {"matmul_dweight4", VERSION4, matmul_dweight4<Real>, {{16, 64}, {16, 256}}},
        {"matmul5_tn", "cooperative matrices, split-K", matmul_dweight5<Real>,
         tensor_core_tiles(GemmLayout::tn)},
    };
}

template <class Real>
std::vector<KernelVersion<MatmulDbias<Real>>> matmul_dbias_versions() {
    return {
        {"matmul_dbias1", "one invocation per column", matmul_dbias1<Real>, {64, 128}},
        {"matmul_dbias2",
         "rows split, reduced by a second kernel",
         matmul_dbias2<Real>,
         {DBIAS_BLOCK, 32, 128, 512}},
    };
}

// --- the choice that training makes ---

static const Tile TILE4 = {16, 64};

static bool is_software(const LaunchPad& pad) { return pad.device().type == DeviceType::software; }

// The tile of version 3 for a GEMM (M,N), from measurements on a GPU of 132 SMs: the largest of which each SM
// still gets three, or two in one wave; small ones with k_groups if even the medium ones are fewer than SMs.
// The tile decides the order of sums: the numbers do not depend on the device.
static Tile choose_tile3(const LaunchPad& pad, uint64_t M, uint64_t N) {
    if (pad.limits().few_registers)
        return count_tiles3(LARGE_FRUGAL_TILE3, M, N) >= 132 ? LARGE_FRUGAL_TILE3 : FRUGAL_TILE3;
    const uint64_t large = count_tiles3(LARGE_TILE3, M, N);
    if (large >= 384 || (large > 224 && large <= 264)) return LARGE_TILE3;
    return count_tiles3(MEDIUM_TILE3, M, N) >= 132 || pad.limits().max_block < 256 ? MEDIUM_TILE3
                                                                                   : SMALL_TILE3;
}

// Split-K multiplies the tiles, so no k_groups are needed.
static Tile choose_dweight_tile3(const LaunchPad& pad, int num_rows, int C, int OC) {
    if (pad.limits().few_registers) return FRUGAL_TILE3;
    const uint64_t tiles =
        count_tiles3(LARGE_TILE3, OC, C) * dweight_splits(num_rows, C, OC, LARGE_TILE3).splits;
    return tiles >= 512 ? LARGE_TILE3 : MEDIUM_TILE3;
}

// Runs a GEMM, but leaves split-K partials to the next layer if the GEMM is planned for that. value: its
// result.
template <class Real>
static void run_or_leave(LaunchPad& pad, const GemmLaunch<Real>& launch, Real* value, const Real* bias) {
    const GemmShape& gemm = launch.gemm;
    if (!gemm.unreduced || launch.plan.splits == 1) return launch.run(pad);
    launch.start(pad);
    const float* partials = pad.scratch(Scratch::gemm, partial_floats(gemm, launch.plan));
    const SplitKResult<Real> result = {value, partials, launch.plan.splits, bias};
    pad.leave_unreduced({.value = value,
                         .partials = partials,
                         .bias = bias,
                         .splits = launch.plan.splits,
                         .reduce = [&pad, result, gemm] { reduce_split_k(pad, result, gemm.M, gemm.N); }});
}

template <class Real>
static void forward_on_tensor_cores(LaunchPad& pad, const MatmulForward<Real>& p) {
    const bool packs = packing_pays<Real>(pad, p.num_rows, p.C, p.OC);
    const Real* packed = packs ? pack_for_forward(pad, p) : nullptr;
    run_or_leave<Real>(pad, plan_forward(pad, p, {}, true, packed), p.out, p.bias);
}

template <class Real>
void matmul_forward(LaunchPad* pad, const MatmulForward<Real>& p) {
    if (pad && on_tensor_cores<Real>(*pad, p.C, p.OC)) return forward_on_tensor_cores(*pad, p);
    MatmulForward<Real> gemm = p;
    if (p.pre) gemm.out = p.pre;
    gemm.pre = nullptr;
    if (!pad)
        matmul_forward_cpu(gemm);
    else if (is_software(*pad))
        matmul_forward4(*pad, gemm, TILE4);
    else
        matmul_forward3(*pad, gemm, choose_tile3(*pad, p.num_rows, p.OC));
    if (!p.pre) return;
    if (pad) pad->barrier();
    gelu_forward<Real>(pad, {.out = p.out, .inp = p.pre, .n = size_t(p.num_rows) * p.OC});
}

template <class Real>
static void dinp_on_tensor_cores(LaunchPad& pad, const MatmulBackwardInput<Real>& p) {
    const bool packs = packing_pays<Real>(pad, p.num_rows, p.OC, p.C);
    const Real* packed = packs ? pack_for_dinp(pad, p) : nullptr;
    run_or_leave<Real>(pad, plan_dinp(pad, p, {}, true, packed), p.dinp, nullptr);
}

template <class Real>
void matmul_backward_input(LaunchPad* pad, const MatmulBackwardInput<Real>& p) {
    if (pad && on_tensor_cores<Real>(*pad, p.C, p.OC)) return dinp_on_tensor_cores(*pad, p);
    MatmulBackwardInput<Real> gemm = p;
    gemm.pre = nullptr;
    if (!pad)
        matmul_dinp_cpu(gemm);
    else if (is_software(*pad))
        matmul_dinp4(*pad, gemm, TILE4);
    else
        matmul_dinp3(*pad, gemm, choose_tile3(*pad, p.num_rows, p.C));
    if (!p.pre) return;
    if (pad) pad->barrier();
    gelu_backward<Real>(pad, {.dinp = p.dinp, .inp = p.pre, .dout = p.dinp, .n = size_t(p.num_rows) * p.C});
}

// Floats that dweight's partial sums take; those of dbias follow them, since both are in use at the same
// time.
template <class Real>
static size_t dweight_floats(LaunchPad& pad, const MatmulBackwardParameters<Real>& p) {
    const size_t size = size_t(p.OC) * p.C;
    if (on_tensor_cores<Real>(pad, p.C, p.OC)) {
        const GemmShape gemm = dweight_gemm(p.num_rows, p.C, p.OC, p.accumulate);
        return partial_floats(gemm, plan_gemm<Real>(pad, gemm, std::nullopt, true));
    }
    const int splits = std::max(dweight_splits(p.num_rows, p.C, p.OC, MEDIUM_TILE3).splits,
                                dweight_splits(p.num_rows, p.C, p.OC, LARGE_TILE3).splits);
    return splits > 1 ? ceil_div(splits * size, 4) * 4 : 0;  // 16-byte accesses
}

template <class Real>
static void backward_parameters_on_gpu(LaunchPad& pad, const MatmulBackwardParameters<Real>& p) {
    const size_t dweight_scratch = dweight_floats(pad, p), size = size_t(p.OC) * p.C;
    float* scratch =
        pad.scratch(Scratch::parameters, dweight_scratch + dbias_floats<Real>(p.num_rows, p.OC, DBIAS_BLOCK));
    float* dbias_scratch = scratch + dweight_scratch;
    const MatmulDbias<Real> dbias = {p.dbias, p.dout, p.num_rows, p.OC};
    const Tile tile = choose_dweight_tile3(pad, p.num_rows, p.C, p.OC);
    std::optional<GemmLaunch<Real>> tensor_core;
    RowSplits split = {1, p.num_rows}, dbias_split = {1, p.num_rows};
    if (on_tensor_cores<Real>(pad, p.C, p.OC))
        tensor_core.emplace(plan_dweight(pad, p));
    else if (!is_software(pad))
        split = dweight_splits(p.num_rows, p.C, p.OC, tile);
    if (p.dbias) dbias_split = dbias_splits<Real>(p.num_rows, p.OC, DBIAS_BLOCK);
    const bool splits =
        split.splits > 1 || dbias_split.splits > 1 || (tensor_core && tensor_core->plan.splits > 1);

    const ConcurrentGroup group(&pad);
    if (splits) pad.barrier();  // the commands beside it may be a call that uses the same scratch
    if (tensor_core)
        tensor_core->start(pad);
    else if (is_software(pad))
        matmul_dweight4(pad, p, TILE4);
    else
        dweight_partials(pad, p, scratch, tile);
    if (p.dbias) dbias_partials(pad, dbias, dbias_scratch, DBIAS_BLOCK);
    if (splits) pad.barrier();
    if (tensor_core) tensor_core->finish(pad);
    reduce_partials(pad, p.dweight, scratch, size, split.splits, p.accumulate);
    if (p.dbias) reduce_partials(pad, p.dbias, dbias_scratch, p.OC, dbias_split.splits, true);
}

template <class Real>
void matmul_backward_parameters(LaunchPad* pad, const MatmulBackwardParameters<Real>& p) {
    if (pad) return backward_parameters_on_gpu(*pad, p);
    matmul_dweight_cpu(p);
    if (p.dbias) matmul_dbias_cpu<Real>({p.dbias, p.dout, p.num_rows, p.OC});
}

template <class Real>
void matmul_backward(LaunchPad* pad, const MatmulBackward<Real>& p) {
    const MatmulBackwardInput<Real> input = {p.dinp, p.dout, p.weight, p.pre, p.num_rows, p.C, p.OC, p.next};
    const MatmulBackwardParameters<Real> parameters = {p.dweight,  p.dbias, p.dout, p.inp,
                                                       p.num_rows, p.C,     p.OC,   p.accumulate};
    if (pad && p.defer_parameters) {
        matmul_backward_input(pad, input);
        pad->defer(gemm_work(p).flops, [pad, parameters] { matmul_backward_parameters(pad, parameters); });
        return;
    }
    const ConcurrentGroup group(pad);
    matmul_backward_input(pad, input);  // first, since it may wait for its packed weight
    matmul_backward_parameters(pad, parameters);
}

#define INSTANTIATE(Real)                                                                                \
    template std::vector<KernelVersion<MatmulForward<Real>, Tile>> matmul_forward_versions();            \
    template std::vector<KernelVersion<MatmulBackwardInput<Real>, Tile>> matmul_dinp_versions();         \
    template std::vector<KernelVersion<MatmulBackwardParameters<Real>, Tile>> matmul_dweight_versions(); \
    template std::vector<KernelVersion<MatmulDbias<Real>>> matmul_dbias_versions();                      \
    template void matmul_forward(LaunchPad*, const MatmulForward<Real>&);                                \
    template void matmul_backward_input(LaunchPad*, const MatmulBackwardInput<Real>&);                   \
    template void matmul_backward_parameters(LaunchPad*, const MatmulBackwardParameters<Real>&);         \
    template void matmul_backward(LaunchPad*, const MatmulBackward<Real>&);
FOR_EACH_REAL(INSTANTIATE)
