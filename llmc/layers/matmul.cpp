// GEMMs of the linear layers: the GPU versions, their tables, and the functions that training calls.
// matmul_cpu.cpp has the CPU versions.
#include "llmc/layers/matmul.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "llmc/base/ceil_div.h"
#include "llmc/launchpad/packs.h"
#include "llmc/layers/decode_linear.h"
#include "llmc/layers/gelu.h"
#include "llmc/layers/matmul_args.h"
#include "llmc/layers/packed_weight.h"
#include "llmc/layers/tensor_core.h"
#include "shaders/args.h"

static RowSplits split_rows(int num_rows, int splits, int multiple) {
    const int rows = int(ceil_div(ceil_div(num_rows, splits), multiple)) * multiple;
    return {int(ceil_div(num_rows, rows)), rows};
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

static uint64_t count_tiles(Tile tile, uint64_t M, uint64_t N) {
    return ceil_div(M, tile.m) * ceil_div(N, tile.n);
}

static Work work_of(const MatmulArgs& args) { return {.flops = 2.0 * args.M * args.N * args.K}; }

// How the operands lie in memory.
struct Majors {
    bool a_m, b_n;
};
static const Majors FORWARD = {false, false}, BACKWARD = {false, true}, DWEIGHT = {true, true};

// --- version 3: register blocking and prefetching ---

static const Tile LARGE_TILE3 = {128, 128}, MEDIUM_TILE3 = {64, 64}, SMALL_TILE3 = {32, 64};
// Where registers are few (Limits::few_registers)
static const Tile LARGE_FRUGAL_TILE3 = {128, 64}, FRUGAL_TILE3 = {64, 32};

// A workgroup of `block` invocations computes a tile; each invocation accumulates 8 columns of rows_each
// rows. K may be divided among k_groups of invocations: large tiles read least, small ones with k_groups fill
// a large GPU if the GEMM is small.
struct Shape3 {
    Tile tile;
    int block, rows_each, k_groups;
};
static const Shape3 shapes3[] = {{LARGE_TILE3, 128, 16, 1},
                                 {MEDIUM_TILE3, 64, 8, 1},
                                 {SMALL_TILE3, 256, 8, 8},
                                 {LARGE_FRUGAL_TILE3, 256, 4, 1},
                                 {FRUGAL_TILE3, 64, 4, 1}};
static const Shape3& shape3(Tile tile) {
    for (const Shape3& shape : shapes3)
        if (shape.tile == tile) return shape;
    fail("matmul version 3 has no tile of %d x %d", tile.m, tile.n);
}

template <class Real>
static void dispatch3(LaunchPad& pad, const MatmulArgs& args, Tile tile, Majors majors) {
    const Shape3& s = shape3(tile);
    const int line_of_a = majors.a_m ? args.M : args.K;
    // every row of every tensor is aligned to four elements
    const bool wide = line_of_a % 4 == 0 &&
                      pack_width<Real>(args.N, {args.outp, args.partials, args.a, args.b, args.bias}) == 4;
    const bool exact = args.M % tile.m == 0 && args.N % tile.n == 0 && args.K % (8 * s.k_groups) == 0;
    pad.dispatch<Real>("matmul3", {count_tiles(tile, args.M, args.N) * args.splits},
                       {uint32_t(s.block), wide, !wide || !exact, uint32_t(tile.m), uint32_t(tile.n),
                        uint32_t(s.rows_each), uint32_t(s.k_groups), majors.a_m, majors.b_n},
                       args, work_of(args));
}

template <class Real>
static void matmul3(LaunchPad& pad, const WeightGemm<Real>& g, Tile tile) {
    dispatch3<Real>(pad, matmul_args(pad, g), tile, g.backward ? BACKWARD : FORWARD);
}

// Enough splits for 1024 workgroups (several per SM of a large GPU, so that the last wave costs little), each
// of at least 128 rows. The numbers decide the order of sums: they do not depend on the device.
static RowSplits dweight_splits(int num_rows, int C, int OC, Tile tile) {
    const uint64_t most = std::max<uint64_t>(1024 / count_tiles(tile, OC, C), 1);
    return split_rows(num_rows, int(std::min(most, ceil_div(num_rows, 128))), 8);
}

// Launches version 3 of dweight without its reduction. scratch: dweight3_floats().
template <class Real>
static void dweight_partials(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, float* scratch,
                             RowSplits split, Tile tile) {
    dispatch3<Real>(pad, dweight_args(pad, p, scratch, split), tile, DWEIGHT);
}

// The floats that the partial sums of version 3 take with any tile.
static size_t dweight3_floats(int num_rows, int C, int OC) {
    const int splits = std::max(dweight_splits(num_rows, C, OC, MEDIUM_TILE3).splits,
                                dweight_splits(num_rows, C, OC, LARGE_TILE3).splits);
    return splits > 1 ? ceil_div(size_t(splits) * OC * C, 4) * 4 : 0;  // 16-byte accesses
}

template <class Real>
static void matmul_dweight3(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, Tile tile) {
    const RowSplits split = dweight_splits(p.num_rows, p.C, p.OC, tile);
    float* scratch = pad.scratch(Scratch::parameters, dweight3_floats(p.num_rows, p.C, p.OC));
    dweight_partials(pad, p, scratch, split, tile);
    pad.barrier();
    reduce_partials(pad, p.dweight, scratch, size_t(p.OC) * p.C, split.splits, p.accumulate);
}

// --- version 4: for software devices, where barriers are expensive ---

// An invocation computes 16 rows by 8 columns.
template <class Real>
static void dispatch4(LaunchPad& pad, const MatmulArgs& args, Tile tile, Majors majors) {
    pad.dispatch<Real>("matmul4", {count_tiles(tile, args.M, args.N)},
                       {uint32_t(tile.n / 8), majors.a_m, majors.b_n}, args, work_of(args));
}

template <class Real>
static void matmul4(LaunchPad& pad, const WeightGemm<Real>& g, Tile tile) {
    dispatch4<Real>(pad, matmul_args(pad, g), tile, g.backward ? BACKWARD : FORWARD);
}

template <class Real>
static void matmul_dweight4(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, Tile tile) {
    dispatch4<Real>(pad, dweight_args<Real>(pad, p, nullptr, {1, p.num_rows}), tile, DWEIGHT);
}

// --- bias gradients ---

static const int DBIAS_BLOCK = 256;

// A workgroup of matmul_dbias2 takes 32 packs of columns, and 8 rows at a time in each of its lanes.
static const int DBIAS_PACKS = 32, DBIAS_ROWS = 8;

// Enough splits for 2^18 invocations, each of enough rows that none is loaded alone; one split if rows are so
// few that a second kernel would take longer.
template <class Real>
static RowSplits dbias_splits(int num_rows, int OC, int block_size) {
    if (num_rows <= 1024) return {1, num_rows};
    const uint64_t across = ceil_div(OC, DBIAS_PACKS * 16 / sizeof(Real)), wanted = (1 << 18) / block_size;
    return split_rows(num_rows, int(std::max<uint64_t>(wanted / across, 1)),
                      DBIAS_ROWS * block_size / DBIAS_PACKS);
}

// Launches version 2 without its reduction. scratch: OC floats for each split, unless there is a single one.
template <class Real>
static void dbias_partials(LaunchPad& pad, const MatmulDbias<Real>& p, float* scratch, RowSplits split,
                           int block_size) {
    const size_t n = p.num_rows, oc = p.OC;
    const MatmulDbiasArgs args = {.dbias = pad.at(p.dbias, oc),
                                  .partials = split.splits > 1 ? pad.at(scratch, split.splits * oc) : 0,
                                  .dout = pad.at(p.dout, n * oc),
                                  .num_rows = p.num_rows,
                                  .OC = p.OC,
                                  .splits = split.splits,
                                  .rows_per_split = split.rows};
    const uint32_t width = wide_pack_width<Real>(p.OC, {args.dout, args.dbias});
    pad.dispatch<Real>("matmul_dbias2", {ceil_div(p.OC / width, DBIAS_PACKS) * split.splits},
                       {uint32_t(block_size), width}, args, memory_traffic<Real>(double(p.num_rows) * p.OC));
}

template <class Real>
static void matmul_dbias2(LaunchPad& pad, const MatmulDbias<Real>& p, int block_size) {
    const RowSplits split = dbias_splits<Real>(p.num_rows, p.OC, block_size);
    float* scratch = pad.scratch(Scratch::parameters, size_t(split.splits) * p.OC);
    dbias_partials(pad, p, scratch, split, block_size);
    pad.barrier();
    reduce_partials(pad, p.dbias, scratch, p.OC, split.splits, true);
}

// --- versions 5 and, in fp32, 7: cooperative matrices if the sizes allow it, otherwise version 3 ---

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

// packed: what pack_weights() returned for the weight; null: not packed.
template <class Real>
static GemmLaunch<Real> plan_weight_gemm(LaunchPad& pad, const WeightGemm<Real>& g, std::optional<Tile> tile,
                                         bool may_split, const Real* packed) {
    const size_t M = g.M, N = g.N, K = g.K;
    const int forward_epilogue = g.pre ? EPILOGUE_GELU : g.bias ? EPILOGUE_BIAS : EPILOGUE_NONE;
    const int backward_epilogue = g.pre ? EPILOGUE_GELU_SLOPE : EPILOGUE_NONE;
    const GemmShape gemm = {.layout = packed       ? GemmLayout::packed
                                      : g.backward ? GemmLayout::nn
                                                   : GemmLayout::nt,
                            .M = g.M,
                            .N = g.N,
                            .K = g.K,
                            .epilogue = g.backward ? backward_epilogue : forward_epilogue};
    return plan_launch<Real>(pad, gemm, tile, may_split,
                             {.outp = pad.at(g.out, M * N),
                              .a = pad.at(g.a, M * K),
                              .b = pad.at(packed ? packed : g.weight, N * K),
                              .bias = pad.at(g.bias, N),
                              .other = pad.at(g.pre, M * N)});
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
static void matmul5(LaunchPad& pad, const WeightGemm<Real>& g, Tile tile) {
    if (!fits_tensor_cores<Real>(pad, g.K, g.N)) return matmul3(pad, g, MEDIUM_TILE3);
    plan_weight_gemm<Real>(pad, g, tile, false, nullptr).run(pad);
}

template <class Real>
static void matmul_dweight5(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, Tile tile) {
    if (!fits_tensor_cores<Real>(pad, p.C, p.OC)) return matmul_dweight3(pad, p, MEDIUM_TILE3);
    plan_dweight(pad, p, tile).run(pad);
}

// --- version 6: from a packed weight if type and sizes allow it, otherwise version 5 ---

static Scratch packing_slot(bool backward) {
    return backward ? Scratch::packed_weight_dinp : Scratch::packed_weight;
}

// The weight as operand B, packed by matmul_pack() or here.
template <class Real>
static const Real* packed_operand(LaunchPad& pad, const WeightGemm<Real>& g) {
    if (g.packed) return g.packed;
    return pack_weights<Real>(pad, packing_slot(g.backward), {{g.weight, g.K, g.N, g.backward}})[0];
}

template <class Real>
std::vector<const Real*> matmul_pack(LaunchPad* pad, Direction direction, int num_rows,
                                     const std::vector<LinearWeight<Real>>& weights) {
    const bool backward = direction == Direction::backward;
    std::vector<const Real*> results(weights.size(), nullptr);
    std::vector<WeightOperand<Real>> operands;
    std::vector<size_t> chosen;
    for (size_t i = 0; pad && i < weights.size(); i++) {
        const auto [weight, C, OC] = weights[i];
        const int K = backward ? OC : C, N = backward ? C : OC;
        if (!packing_pays<Real>(*pad, num_rows, K, N)) continue;
        operands.push_back({weight, K, N, backward});
        chosen.push_back(i);
    }
    if (operands.empty()) return results;
    const std::vector<const Real*> packed = pack_weights(*pad, packing_slot(backward), operands);
    for (size_t i = 0; i < chosen.size(); i++) results[chosen[i]] = packed[i];
    return results;
}

static const Tile FALLBACK_TILE5 = {64, 64};

template <class Real>
static void matmul6(LaunchPad& pad, const WeightGemm<Real>& g, Tile tile) {
    if (!can_pack<Real>(pad, g.K, g.N)) return matmul5(pad, g, FALLBACK_TILE5);
    plan_weight_gemm(pad, g, tile, false, packed_operand(pad, g)).run(pad);
}

// --- tables ---

static const char* const VERSION3 = "16 x 8 elements per invocation, 16-byte loads, next tile prefetched";
static const char* const VERSION6 =
    "cooperative matrices; packs the weight and loads it without shared memory";
static const char* const VERSION7 = "cooperative matrices; splits fp32 operands into three bf16 numbers each";
static const char* const VERSION4 = "16 x 8 elements per invocation, no shared memory: for software devices";

template <class Params, auto launch>
static void launch_weight_gemm(LaunchPad& pad, const Params& p, Tile tile) {
    launch(pad, weight_gemm(p), tile);
}

// Of a GEMM with the weight, whose kernel on cooperative matrices has this layout.
template <class Params, class Real>
static std::vector<KernelVersion<Params, Tile>> weight_gemm_versions(GemmLayout layout) {
    const bool fp32 = std::is_same_v<Real, float>;
    std::vector<KernelVersion<Params, Tile>> versions = {
        {"matmul3",
         VERSION3,
         launch_weight_gemm<Params, matmul3<Real>>,
         {LARGE_TILE3, MEDIUM_TILE3, SMALL_TILE3, LARGE_FRUGAL_TILE3, FRUGAL_TILE3}},
        {"matmul4", VERSION4, launch_weight_gemm<Params, matmul4<Real>>, {{16, 64}, {16, 256}}},
        {gemm_kernel<Real>(layout), fp32 ? VERSION7 : "cooperative matrices",
         launch_weight_gemm<Params, matmul5<Real>>, tensor_core_tiles<Real>(layout)},
    };
    if (!fp32)
        versions.push_back({"matmul6", VERSION6, launch_weight_gemm<Params, matmul6<Real>>,
                            tensor_core_tiles<Real>(GemmLayout::packed)});
    return versions;
}

template <class Real>
std::vector<KernelVersion<MatmulForward<Real>, Tile>> matmul_forward_versions() {
    return weight_gemm_versions<MatmulForward<Real>, Real>(GemmLayout::nt);
}

template <class Real>
std::vector<KernelVersion<MatmulBackwardInput<Real>, Tile>> matmul_dinp_versions() {
    return weight_gemm_versions<MatmulBackwardInput<Real>, Real>(GemmLayout::nn);
}

template <class Real>
std::vector<KernelVersion<MatmulBackwardParameters<Real>, Tile>> matmul_dweight_versions() {
    return {
        {"matmul3", VERSION3, matmul_dweight3<Real>, {LARGE_TILE3, MEDIUM_TILE3, FRUGAL_TILE3}},
        {"matmul4", VERSION4, matmul_dweight4<Real>, {{16, 64}, {16, 256}}},
        {gemm_kernel<Real>(GemmLayout::tn),
         std::is_same_v<Real, float> ? VERSION7 : "cooperative matrices, split-K", matmul_dweight5<Real>,
         tensor_core_tiles<Real>(GemmLayout::tn)},
    };
}

template <class Real>
std::vector<KernelVersion<MatmulDbias<Real>>> matmul_dbias_versions() {
    return {
        {"matmul_dbias2",
         "rows split, reduced by a second kernel",
         matmul_dbias2<Real>,
         {DBIAS_BLOCK, 32, 128, 512}},
    };
}

// --- the choice that training makes ---

// The tile of version 3 for a GEMM (M,N), from measurements on a GPU of 132 SMs: the largest of which each SM
// still gets three, or two in one wave; small ones with k_groups if even the medium ones are fewer than SMs.
// The tile decides the order of sums: the numbers do not depend on the device.
static Tile choose_tile3(const LaunchPad& pad, uint64_t M, uint64_t N) {
    if (pad.limits().few_registers)
        return count_tiles(LARGE_FRUGAL_TILE3, M, N) >= 132 ? LARGE_FRUGAL_TILE3 : FRUGAL_TILE3;
    const uint64_t large = count_tiles(LARGE_TILE3, M, N);
    if (large >= 384 || (large > 224 && large <= 264)) return LARGE_TILE3;
    return count_tiles(MEDIUM_TILE3, M, N) >= 132 || pad.limits().max_block < 256 ? MEDIUM_TILE3
                                                                                  : SMALL_TILE3;
}

// Split-K multiplies the tiles, so no k_groups are needed.
static Tile choose_dweight_tile3(const LaunchPad& pad, int num_rows, int C, int OC) {
    if (pad.limits().few_registers) return FRUGAL_TILE3;
    const uint64_t tiles =
        count_tiles(LARGE_TILE3, OC, C) * dweight_splits(num_rows, C, OC, LARGE_TILE3).splits;
    return tiles >= 512 ? LARGE_TILE3 : MEDIUM_TILE3;
}

static const Tile TILE4 = {16, 64};

// Whether version 4 takes the place of version 3 for sums of K terms. Version 3 is compiled for every C and
// OC, which takes a software device seconds each.
static bool takes_version4(const LaunchPad& pad, int K) {
    return pad.limits().compiles_slowly && uint32_t(K) <= pad.limits().max_iterations;
}

// The loop of version 3 has an iteration for 8 terms of a sum.
static void check_version3(const LaunchPad& pad, int K) { check_iterations(pad, "matmul3", ceil_div(K, 8)); }

// Starts a GEMM whose result, in `out`, the next layer reads. The reduction of split-K partial sums is
// postponed, so that it overlaps with the reductions of other GEMMs in the same group. It also reads or
// writes `pre`, which has the size of the result, unless that is null.
template <class Real>
static void start_gemm(LaunchPad& pad, const GemmLaunch<Real>& launch, const Real* out, const Real* pre) {
    launch.start(pad);
    if (launch.plan.splits == 1) return;
    const size_t bytes = size_t(launch.gemm.M) * launch.gemm.N * sizeof(Real);
    pad.postpone(Scratch::gemm, {{out, bytes}, {pre, pre ? bytes : 0}},
                 [launch, &pad] { launch.finish(pad); });
}

template <class Real>
static void run_on_tensor_cores(LaunchPad& pad, const WeightGemm<Real>& g) {
    const bool packs = g.packed || packing_pays<Real>(pad, g.M, g.K, g.N);
    const Real* packed = packs ? packed_operand(pad, g) : nullptr;
    start_gemm<Real>(pad, plan_weight_gemm<Real>(pad, g, {}, true, packed), g.out, g.pre);
}

// Versions 3 and 4 with the tile of each: the one that training takes, or the other one if that is wrong.
template <class Real, class Params>
static ChosenVersion<Params, Tile> choose_plain(LaunchPad& pad,
                                                std::vector<KernelVersion<Params, Tile>> versions,
                                                bool prefers4, Tile tile3) {
    versions.resize(2);
    if (!prefers4) std::swap(versions[0], versions[1]);
    return choose_version<Real>(pad, versions, prefers4 ? "matmul4" : "matmul3", prefers4 ? TILE4 : tile3);
}

template <class Real, class Params>
static void run_without_tensor_cores(LaunchPad& pad, const Params& p,
                                     const std::vector<KernelVersion<Params, Tile>>& versions) {
    const WeightGemm<Real> g = weight_gemm(p);
    const bool prefers4 = takes_version4(pad, g.K);
    if (!prefers4) check_version3(pad, g.K);
    const auto chosen = choose_plain<Real>(pad, versions, prefers4, choose_tile3(pad, g.M, g.N));
    chosen.version.launch(pad, p, chosen.config);
}

template <class Real>
void matmul_forward(LaunchPad* pad, const MatmulForward<Real>& p) {
    if (pad && on_tensor_cores<Real>(*pad, p.C, p.OC)) return run_on_tensor_cores(*pad, weight_gemm(p));
    MatmulForward<Real> gemm = p;
    if (p.pre) gemm.out = p.pre;
    gemm.pre = nullptr;
    if (pad)
        run_without_tensor_cores<Real>(*pad, gemm, matmul_forward_versions<Real>());
    else if (p.num_rows <= 4)  // bound by reading the weight, which a packed GEMM reads slower
        decode_linear<Real>(nullptr, {.out = gemm.out,
                                      .stream = nullptr,
                                      .inp = p.inp,
                                      .weight = p.weight,
                                      .bias = p.bias,
                                      .text_stride = size_t(p.OC),
                                      .num_texts = p.num_rows,
                                      .C = p.C,
                                      .OC = p.OC});
    else
        matmul_forward_cpu(gemm);
    if (!p.pre) return;
    if (pad) pad->barrier();
    gelu_forward<Real>(pad, {.out = p.out, .inp = p.pre, .n = size_t(p.num_rows) * p.OC});
}

template <class Real>
void matmul_backward_input(LaunchPad* pad, const MatmulBackwardInput<Real>& p) {
    if (pad && on_tensor_cores<Real>(*pad, p.C, p.OC)) return run_on_tensor_cores(*pad, weight_gemm(p));
    MatmulBackwardInput<Real> gemm = p;
    gemm.pre = nullptr;
    pad ? run_without_tensor_cores<Real>(*pad, gemm, matmul_dinp_versions<Real>()) : matmul_dinp_cpu(gemm);
    if (!p.pre) return;
    if (pad) pad->barrier();
    gelu_backward<Real>(pad, {.dinp = p.dinp, .inp = p.pre, .dout = p.dinp, .n = size_t(p.num_rows) * p.C});
}

template <class Real>
static void backward_parameters_on_gpu(LaunchPad& pad, const MatmulBackwardParameters<Real>& p) {
    const bool tensor_cores = on_tensor_cores<Real>(pad, p.C, p.OC);
    Tile tile = choose_dweight_tile3(pad, p.num_rows, p.C, p.OC);
    bool version4 = false;
    if (!tensor_cores) {
        const auto chosen =
            choose_plain<Real>(pad, matmul_dweight_versions<Real>(), takes_version4(pad, p.num_rows), tile);
        version4 = chosen.version.name == std::string_view("matmul4");
        tile = chosen.config;
    }
    const size_t size = size_t(p.OC) * p.C;
    const MatmulDbias<Real> dbias = {p.dbias, p.dout, p.num_rows, p.OC};
    const int dbias_block =
        p.dbias
            ? choose_version<Real>(pad, matmul_dbias_versions<Real>(), "matmul_dbias2", DBIAS_BLOCK).config
            : DBIAS_BLOCK;
    RowSplits split = {1, p.num_rows}, dbias_split = {1, p.num_rows};
    size_t dweight_scratch = 0;
    if (tensor_cores) {
        const GemmShape gemm = dweight_gemm(p.num_rows, p.C, p.OC, p.accumulate);
        dweight_scratch = partial_floats(gemm, plan_gemm<Real>(pad, gemm, std::nullopt, true));
    } else if (!version4) {
        split = dweight_splits(p.num_rows, p.C, p.OC, tile);
        check_version3(pad, split.rows);
        if (split.splits > 1) dweight_scratch = dweight3_floats(p.num_rows, p.C, p.OC);
    }
    if (p.dbias) dbias_split = dbias_splits<Real>(p.num_rows, p.OC, dbias_block);
    const size_t dbias_scratch = dbias_split.splits > 1 ? size_t(dbias_split.splits) * p.OC : 0;
    float* scratch = pad.scratch(Scratch::parameters, dweight_scratch + dbias_scratch);
    std::optional<GemmLaunch<Real>> tensor_core;
    if (tensor_cores) tensor_core.emplace(plan_dweight(pad, p));

    const ConcurrentGroup group(&pad);
    if (tensor_core)
        tensor_core->start(pad);
    else if (version4)
        matmul_dweight4(pad, p, tile);
    else
        dweight_partials(pad, p, scratch, split, tile);
    if (p.dbias) dbias_partials(pad, dbias, scratch + dweight_scratch, dbias_split, dbias_block);
    if (!scratch) return;
    const size_t bias_bytes = p.dbias ? p.OC * sizeof(Real) : 0;
    pad.postpone(Scratch::parameters, {{p.dweight, size * sizeof(Real)}, {p.dbias, bias_bytes}}, [=, &pad] {
        if (tensor_core) tensor_core->finish(pad);
        reduce_partials(pad, p.dweight, scratch, size, split.splits, p.accumulate);
        if (p.dbias) reduce_partials(pad, p.dbias, scratch + dweight_scratch, p.OC, dbias_split.splits, true);
    });
}

template <class Real>
void matmul_backward_parameters(LaunchPad* pad, const MatmulBackwardParameters<Real>& p) {
    if (pad) return backward_parameters_on_gpu(*pad, p);
    matmul_dweight_cpu(p);
    if (p.dbias) matmul_dbias_cpu<Real>({p.dbias, p.dout, p.num_rows, p.OC});
}

template <class Real>
void matmul_backward(LaunchPad* pad, const MatmulBackward<Real>& p) {
    const MatmulBackwardInput<Real> input = {p.dinp,     p.dout, p.weight, p.pre,
                                             p.num_rows, p.C,    p.OC,     p.packed};
    const MatmulBackwardParameters<Real> parameters = {p.dweight,  p.dbias, p.dout, p.inp,
                                                       p.num_rows, p.C,     p.OC,   p.accumulate};
    const ConcurrentGroup group(pad);
    matmul_backward_input(pad, input);  // first, since it may wait for its packed weight
    matmul_backward_parameters(pad, parameters);
}

#define INSTANTIATE(Real)                                                                                \
    template std::vector<KernelVersion<MatmulForward<Real>, Tile>> matmul_forward_versions();            \
    template std::vector<KernelVersion<MatmulBackwardInput<Real>, Tile>> matmul_dinp_versions();         \
    template std::vector<KernelVersion<MatmulBackwardParameters<Real>, Tile>> matmul_dweight_versions(); \
    template std::vector<KernelVersion<MatmulDbias<Real>>> matmul_dbias_versions();                      \
    template std::vector<const Real*> matmul_pack(LaunchPad*, Direction, int,                            \
                                                  const std::vector<LinearWeight<Real>>&);               \
    template void matmul_forward(LaunchPad*, const MatmulForward<Real>&);                                \
    template void matmul_backward_input(LaunchPad*, const MatmulBackwardInput<Real>&);                   \
    template void matmul_backward_parameters(LaunchPad*, const MatmulBackwardParameters<Real>&);         \
    template void matmul_backward(LaunchPad*, const MatmulBackward<Real>&);
FOR_EACH_REAL(INSTANTIATE)
