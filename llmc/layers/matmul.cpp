// GEMMs of the linear layers: tensor-core versions, the tables of all GPU versions, and the functions that
// training calls. The other GPU versions are in matmul_simt.cpp, the CPU versions in matmul_cpu.cpp.
#include "llmc/layers/matmul.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "llmc/base/ceil_div.h"
#include "llmc/gemm/packed_weight.h"
#include "llmc/gemm/tensor_core.h"
#include "llmc/layers/gelu.h"
#include "llmc/layers/matmul_simt.h"
#include "shaders/args.h"

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

template <class Real>
static void run_without_tensor_cores(LaunchPad& pad, const WeightGemm<Real>& g) {
    if (takes_version4(pad, g.K)) return matmul4(pad, g, TILE4);
    check_version3(pad, g.K);
    matmul3(pad, g, choose_tile3(pad, g.M, g.N));
}

template <class Real>
void matmul_forward(LaunchPad* pad, const MatmulForward<Real>& p) {
    if (pad && on_tensor_cores<Real>(*pad, p.C, p.OC)) return run_on_tensor_cores(*pad, weight_gemm(p));
    MatmulForward<Real> gemm = p;
    if (p.pre) gemm.out = p.pre;
    gemm.pre = nullptr;
    pad ? run_without_tensor_cores(*pad, weight_gemm(gemm)) : matmul_forward_cpu(gemm);
    if (!p.pre) return;
    if (pad) pad->barrier();
    gelu_forward<Real>(pad, {.out = p.out, .inp = p.pre, .n = size_t(p.num_rows) * p.OC});
}

template <class Real>
void matmul_backward_input(LaunchPad* pad, const MatmulBackwardInput<Real>& p) {
    if (pad && on_tensor_cores<Real>(*pad, p.C, p.OC)) return run_on_tensor_cores(*pad, weight_gemm(p));
    MatmulBackwardInput<Real> gemm = p;
    gemm.pre = nullptr;
    pad ? run_without_tensor_cores(*pad, weight_gemm(gemm)) : matmul_dinp_cpu(gemm);
    if (!p.pre) return;
    if (pad) pad->barrier();
    gelu_backward<Real>(pad, {.dinp = p.dinp, .inp = p.pre, .dout = p.dinp, .n = size_t(p.num_rows) * p.C});
}

template <class Real>
static void backward_parameters_on_gpu(LaunchPad& pad, const MatmulBackwardParameters<Real>& p) {
    const bool tensor_cores = on_tensor_cores<Real>(pad, p.C, p.OC);
    const bool version4 = !tensor_cores && takes_version4(pad, p.num_rows);
    const size_t size = size_t(p.OC) * p.C;
    const MatmulDbias<Real> dbias = {p.dbias, p.dout, p.num_rows, p.OC};
    const Tile tile = choose_dweight_tile3(pad, p.num_rows, p.C, p.OC);
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
    if (p.dbias) dbias_split = dbias_splits<Real>(p.num_rows, p.OC, DBIAS_BLOCK);
    const size_t dbias_scratch = dbias_split.splits > 1 ? size_t(dbias_split.splits) * p.OC : 0;
    float* scratch = pad.scratch(Scratch::parameters, dweight_scratch + dbias_scratch);
    std::optional<GemmLaunch<Real>> tensor_core;
    if (tensor_cores) tensor_core.emplace(plan_dweight(pad, p));

    const ConcurrentGroup group(&pad);
    if (tensor_core)
        tensor_core->start(pad);
    else if (version4)
        matmul_dweight4(pad, p, TILE4);
    else
        dweight_partials(pad, p, scratch, split, tile);
    if (p.dbias) dbias_partials(pad, dbias, scratch + dweight_scratch, dbias_split, DBIAS_BLOCK);
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
