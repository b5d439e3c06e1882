// GEMMs on cooperative matrices: tiles, split-K, the cost model that chooses them, launch.
#include "llmc/layers/tensor_core.h"

#include <algorithm>
#include <span>
#include <string>
#include <type_traits>

#include "llmc/base/ceil_div.h"
#include "llmc/launchpad/kernel_version.h"

// How a workgroup computes a tile. A subgroup accumulates fragments_m x fragments_n fragments; subgroups_m x
// subgroups_n subgroups cover the tile, k_groups times. One main-loop iteration consumes k_steps fragments of
// K, shared among the k_groups, and refills shared memory after early_steps of them. workgroups_per_sm run at
// the same time on an SM; iteration_us is how long an iteration takes them on an H200.
struct TileShape {
    Tile tile;
    uint32_t fragments_m, fragments_n, subgroups_m, subgroups_n, k_groups, k_steps, early_steps;
    int workgroups_per_sm;
    double iteration_us;
};
// 128 x 256 and 256 x 128 read least and win if there is enough work. The others are for few rows, where an
// iteration takes as long as a memory access: of 64 x 64, two workgroups share an SM; 64 x 96 and 32 x 64
// make so many tiles that each has an SM to itself.
static const TileShape tile_shapes[] = {
    {{128, 256}, 4, 4, 2, 4, 1, 2, 1, 1, 0.85}, {{256, 128}, 4, 4, 4, 2, 1, 2, 1, 1, 0.87},
    {{128, 128}, 4, 4, 2, 2, 1, 2, 2, 2, 0.92}, {{64, 64}, 2, 2, 2, 2, 1, 4, 0, 2, 0.65},
    {{64, 96}, 2, 3, 2, 2, 2, 8, 0, 1, 1.2},    {{32, 64}, 2, 2, 1, 2, 2, 8, 0, 1, 0.6}};

// From a packed weight: the fastest of some 200 variants that were measured on an H100 and an H200
// (docs/experiments.md). 64 x 320 divides the widths of d36 and d48. 32 x 64 is for devices that compile
// slowly, which take no other.
static const Tile SMALL_PACKED_TILE = {32, 64};
static const TileShape packed_tile_shapes[] = {{{64, 256}, 4, 4, 1, 4, 1, 8, 0, 2, 2.8},
                                               {{64, 320}, 4, 5, 1, 4, 1, 4, 0, 2, 1.72},
                                               {SMALL_PACKED_TILE, 2, 2, 1, 2, 1, 4, 0, 1, 0.6}};

// Of fp32 operands, which take six times the multiply-adds.
static const TileShape fp32_tile_shapes[] = {{{128, 64}, 4, 2, 2, 2, 1, 1, 0, 2, 1.21},
                                             {{64, 64}, 2, 2, 2, 2, 1, 1, 0, 3, 1.0}};

template <class Real>
static std::span<const TileShape> shapes_of(GemmLayout layout) {
    if (std::is_same_v<Real, float>) return fp32_tile_shapes;
    if (layout == GemmLayout::packed) return packed_tile_shapes;
    return tile_shapes;
}

// The cost model, measured on an H200.
static const int MAX_SPLITS = 32, DEFAULT_COMPUTE_UNITS = 132;
static const double WORKGROUP_START_US = 3, REDUCTION_US = 4, BYTES_PER_US = 3e6;

template <class Real>
static const TileShape& find_shape(GemmLayout layout, Tile tile) {
    for (const TileShape& shape : shapes_of<Real>(layout))
        if (shape.tile == tile) return shape;
    fail("tensor-core GEMMs have no tile of %d x %d", tile.m, tile.n);
}

// Workgroups of this tile that run at the same time.
static int concurrent_workgroups(const LaunchPad& pad, const TileShape& shape) {
    const uint32_t known = pad.limits().compute_units;
    return int(known ? known : DEFAULT_COMPUTE_UNITS) * shape.workgroups_per_sm;
}

template <class Real>
const char* gemm_kernel(GemmLayout layout) {
    static const char* const names[] = {"matmul5_nt", "matmul5_nn", "matmul5_tn", "matmul6"};
    static const char* const fp32_names[] = {"matmul7_nt", "matmul7_nn", "matmul7_tn", "matmul6"};
    return (std::is_same_v<Real, float> ? fp32_names : names)[size_t(layout)];
}

// An N-major operand of 96 columns cannot be divided evenly among the invocations that load it.
static bool has_shape(GemmLayout layout, const TileShape& shape) {
    return shape.fragments_n != 3 || layout == GemmLayout::nt;
}

template <class Real>
std::vector<Tile> tensor_core_tiles(GemmLayout layout) {
    std::vector<Tile> tiles;
    for (const TileShape& shape : shapes_of<Real>(layout))
        if (has_shape(layout, shape)) tiles.push_back(shape.tile);
    return tiles;
}

template <class Real>
int k_groups(GemmLayout layout, Tile tile) {
    return int(find_shape<Real>(layout, tile).k_groups);
}

template <class Real>
FragmentShape gemm_fragment(const LaunchPad& pad) {
    if (std::is_same_v<Real, float>) return pad.limits().fp32_pieces();
    return pad.limits().fragment<Real>();
}

template <class Real>
bool fits_tensor_cores(const LaunchPad& pad, int C, int OC) {
    return gemm_fragment<Real>(pad) && C % 8 == 0 && OC % 8 == 0 && has_tile<Real>(pad, GemmLayout::nt) &&
           has_tile<Real>(pad, GemmLayout::nn) && has_tile<Real>(pad, GemmLayout::tn);
}

template <class Real>
bool on_tensor_cores(const LaunchPad& pad, int C, int OC) {
    return (!std::is_same_v<Real, float> || pad.limits().splits_fp32) && fits_tensor_cores<Real>(pad, C, OC);
}

// Steps of an iteration, all of whose operand fragments are in registers at once. Where accumulators cannot
// serve as operands, as on RDNA 3, operands are assumed to take twice the registers: with all steps, every
// tile spills there.
static uint32_t k_steps(const TileShape& shape, FragmentShape f) {
    return f.in_place ? shape.k_steps : std::max(1u, shape.k_steps / 2);
}

// With 16 accumulator fragments, the registers of such a device hold operands unless both are transposed.
static bool has_registers(GemmLayout layout, const TileShape& shape, FragmentShape f) {
    return f.in_place || layout != GemmLayout::tn || shape.fragments_m * shape.fragments_n < 16;
}

// Sizes in elements, with this device's fragments.
struct TileSizes {
    uint32_t m, n, k, subgroup_m, subgroup_n, subgroups, k_groups;  // subgroups of one k_group
};
static TileSizes sizes_of(const TileShape& shape, FragmentShape f) {
    const uint32_t subgroup_m = shape.fragments_m * f.M, subgroup_n = shape.fragments_n * f.N;
    return {.m = subgroup_m * shape.subgroups_m,
            .n = subgroup_n * shape.subgroups_n,
            .k = k_steps(shape, f) * f.K,
            .subgroup_m = subgroup_m,
            .subgroup_n = subgroup_n,
            .subgroups = shape.subgroups_m * shape.subgroups_n,
            .k_groups = shape.k_groups};
}

static uint64_t count_tiles(const GemmShape& g, const TileSizes& t) {
    return ceil_div(g.M, t.m) * ceil_div(g.N, t.n) * uint64_t(g.batch);
}

// Without the tiles of symmetric results that are above the diagonal.
static uint64_t count_computed_tiles(const GemmShape& g, const TileSizes& t) {
    if (!g.symmetric) return count_tiles(g, t);
    uint64_t tiles = 0;
    for (uint32_t row = 0; row < uint32_t(g.M); row += t.m)
        tiles += std::min(ceil_div(g.N, t.n), ceil_div(row + t.m, t.n));
    return tiles * uint64_t(g.batch);
}

// 16-byte chunks of an operand's tile in shared memory, as matmul5.glsl lays it out: each line is padded by
// one chunk. Each element has one or, in matmul7.glsl, three pieces.
static uint32_t operand_chunks(uint32_t lines, uint32_t line_elements, uint32_t pieces) {
    return lines * (pieces * line_elements / 8 + 1);
}

// Bytes of shared memory: the operands; later the accumulators that k_groups hand over; then the strips of
// results. The bias lies behind them.
template <class Real>
static uint32_t shared_bytes(const GemmShape& g, const TileSizes& t, FragmentShape f, bool partial) {
    const uint32_t pieces = std::is_same_v<Real, float> ? 3 : 1;
    const uint32_t chunk_elements = partial ? 4 : 16 / sizeof(Real);
    uint32_t operands =
        g.layout == GemmLayout::tn ? operand_chunks(t.k, t.m, pieces) : operand_chunks(t.m, t.k, pieces);
    if (g.layout != GemmLayout::packed)
        operands +=
            g.layout == GemmLayout::nt ? operand_chunks(t.n, t.k, pieces) : operand_chunks(t.k, t.n, pieces);
    const uint32_t strip = f.M * (t.subgroup_n / chunk_elements + 1);
    const uint32_t copy = g.symmetric ? t.subgroup_n * (f.M / chunk_elements + 1) : 0;
    const uint32_t strips = t.subgroups * t.k_groups * std::max(strip, copy);
    return 16 * (std::max({operands, strips, t.k_groups / 2 * t.m * t.n / 4}) + t.n / 4);
}

size_t partial_floats(const GemmShape& g, const GemmPlan& plan) {
    return plan.splits > 1 ? size_t(plan.splits) * g.M * g.N : 0;
}

static bool fills_tiles(const GemmShape& g, const TileSizes& t) {
    return g.M % t.m == 0 && g.N % t.n == 0 && g.K % t.k == 0;
}

// Microseconds that a plan should take on a large GPU: waves of workgroups, which take longer if they must
// guard edges, and the traffic of the partials.
static double estimate(const LaunchPad& pad, const GemmShape& g, const TileShape& shape, FragmentShape f,
                       const GemmPlan& plan) {
    const TileSizes t = sizes_of(shape, f);
    const double waves = double(
        ceil_div(count_computed_tiles(g, t) * uint64_t(plan.splits), concurrent_workgroups(pad, shape)));
    const double shortened = double(t.k) / (shape.k_steps * f.K);
    const double iteration = shape.iteration_us * shortened * (fills_tiles(g, t) ? 1 : 1.2);
    const double workgroup = double(ceil_div(plan.split_k, t.k)) * iteration + WORKGROUP_START_US;
    const double traffic = 8 * double(partial_floats(g, plan)) / BYTES_PER_US;
    const double reduction = plan.splits > 1 ? REDUCTION_US + traffic : 0;
    return waves * workgroup + reduction;
}

// split_k is a multiple of an iteration of all tiles with as many k_groups, so that those are
// interchangeable.
template <class Real>
static GemmPlan make_plan(const GemmShape& g, FragmentShape f, const TileShape& chosen, int splits) {
    uint32_t max_steps = 0;
    for (const TileShape& shape : shapes_of<Real>(g.layout))
        if (shape.k_groups == chosen.k_groups) max_steps = std::max(max_steps, shape.k_steps);
    const int unit = int(max_steps * f.K), split_k = int(ceil_div(ceil_div(g.K, splits), unit) * unit);
    return {chosen.tile, int(ceil_div(g.K, split_k)), split_k};
}

// Whether the device can run a workgroup of this shape, whose invocations must share each strip of results
// evenly, and the self-test found no error.
template <class Real>
static bool fits(const LaunchPad& pad, const GemmShape& g, const TileShape& shape, bool may_split) {
    const FragmentShape f = gemm_fragment<Real>(pad);
    const TileSizes t = sizes_of(shape, f);
    const uint32_t lanes = pad.limits().subgroup_size;
    const uint32_t block = t.subgroups * t.k_groups * lanes;
    const bool is_small = shape.tile == SMALL_PACKED_TILE;
    return (g.layout != GemmLayout::packed || is_small == pad.limits().compiles_slowly) &&
           has_shape(g.layout, shape) && has_registers(g.layout, shape, f) &&
           block <= pad.limits().max_block &&
           8 * block <= std::min(t.m, t.n) * t.k &&  // each loads whole chunks of an operand
           f.M * (t.subgroup_n / 8) % lanes == 0 &&
           shared_bytes<Real>(g, t, f, may_split) <= pad.limits().shared_bytes &&
           !pad.is_wrong(version_name<Real>(gemm_kernel<Real>(g.layout), shape.tile));
}

template <class Real>
bool has_tile(const LaunchPad& pad, GemmLayout layout) {
    const GemmShape any = {.layout = layout, .M = 1, .N = 8, .K = 8, .epilogue = EPILOGUE_NONE};
    const bool may_split = layout != GemmLayout::packed;
    return std::ranges::any_of(shapes_of<Real>(layout), [&](const TileShape& shape) {
        return fits<Real>(pad, any, shape, may_split);
    });
}

template <class Real>
std::string tuning_name(const GemmShape& g) {
    const int epilogue = g.epilogue == EPILOGUE_ADD ? EPILOGUE_NONE : g.epilogue;
    return format_string("%s_%s/%dx%dx%d/epilogue%d", gemm_kernel<Real>(g.layout), real_name<Real>(), g.M,
                         g.N, g.K, epilogue);
}

template <class Real>
std::vector<Tile> interchangeable_tiles(const LaunchPad& pad, const GemmShape& gemm, const GemmPlan& plan,
                                        bool may_split) {
    std::vector<Tile> tiles;
    for (const TileShape& shape : shapes_of<Real>(gemm.layout))
        if (int(shape.k_groups) == k_groups<Real>(gemm.layout, plan.tile) &&
            fits<Real>(pad, gemm, shape, may_split))
            tiles.push_back(shape.tile);
    return tiles;
}

// The tile that was measured to be fastest, if it is one that can take the place of the plan's.
template <class Real>
static Tile measured_tile(LaunchPad& pad, const GemmShape& g, const GemmPlan& plan, bool may_split) {
    const std::vector<Tile> tiles = interchangeable_tiles<Real>(pad, g, plan, may_split);
    if (tiles.size() < 2 || pad.limits().compiles_slowly) return plan.tile;
    for (const Tile tile : tiles) pad.take(version_name<Real>(gemm_kernel<Real>(g.layout), tile));
    const std::optional<int> code =
        pad.tuned(tuning_name<Real>(g), {.measure = [&pad, g] { return tile_code(tune_gemm<Real>(pad, g)); },
                                         .prepare = [&pad, g] { prepare_tuning<Real>(pad, g); }});
    for (const Tile tile : tiles)
        if (code == tile_code(tile)) return tile;
    return plan.tile;
}

template <class Real>
GemmPlan plan_gemm(LaunchPad& pad, const GemmShape& gemm, std::optional<Tile> tile, bool may_split) {
    const FragmentShape f = gemm_fragment<Real>(pad);
    GemmPlan best = {};
    double best_time = 1e30;
    if (gemm.layout == GemmLayout::packed || gemm.batch > 1 || gemm.symmetric) may_split = false;
    for (const TileShape& shape : shapes_of<Real>(gemm.layout)) {
        const TileSizes t = sizes_of(shape, f);
        if (tile ? shape.tile != *tile : !fits<Real>(pad, gemm, shape, may_split)) continue;
        const int most = may_split ? std::clamp(int(ceil_div(gemm.K, 4 * t.k)), 1, MAX_SPLITS) : 1;
        for (int splits = 1; splits <= most; splits++) {
            const GemmPlan plan = make_plan<Real>(gemm, f, shape, splits);
            const double time = estimate(pad, gemm, shape, f, plan);
            if (time < best_time) best = plan, best_time = time;
        }
    }
    if (!best.splits)
        fail("%s has no tile for a GEMM of %d x %d x %d on tensor cores: ask has_tile() first",
             pad.device().name.c_str(), gemm.M, gemm.N, gemm.K);
    if (!tile && gemm.batch == 1 && !gemm.symmetric)
        best.tile = measured_tile<Real>(pad, gemm, best, may_split);
    return best;
}

// Rows of tiles that consecutive workgroups walk together, for L2 reuse: eight or, with a short K, as many (a
// power of two) as run at once. On an H200, 65536 x 768 x 768: 282 TFLOP/s with 8, 292 with 32, but 273 with
// 44; from a packed weight, 32 was 4 % slower than 8.
static uint32_t panel_rows(const LaunchPad& pad, const GemmShape& g, const TileShape& shape,
                           const TileSizes& t) {
    uint32_t rows = 8;
    if (g.layout == GemmLayout::packed) return rows;
    while (g.K <= 1024 && 2 * rows * ceil_div(g.N, t.n) <= uint32_t(concurrent_workgroups(pad, shape)))
        rows *= 2;
    return rows;
}

static double gemm_flops(const GemmShape& g) {
    return (g.symmetric ? 1.0 : 2.0) * g.batch * g.M * g.N * g.K;  // half of a symmetric result is needed
}

template <class Real>
void GemmLaunch<Real>::start(LaunchPad& pad) const {
    const TileShape& shape = find_shape<Real>(gemm.layout, plan.tile);
    const FragmentShape f = gemm_fragment<Real>(pad);
    const TileSizes t = sizes_of(shape, f);
    const uint32_t early_steps = std::min(shape.early_steps, k_steps(shape, f));
    const char* const pieces = std::is_same_v<Real, float> && pad.limits().fp16_pieces ? "_half" : "";
    MatmulMatrixArgs launch_args = args;
    launch_args.splits = gemm.batch > 1 ? gemm.batch : plan.splits;
    launch_args.k_per_split = plan.split_k;
    const int epilogue = plan.splits > 1 ? EPILOGUE_PARTIAL : gemm.epilogue;
    check_iterations(pad, gemm_kernel<Real>(gemm.layout), ceil_div(plan.split_k, t.k));
    pad.take(version_name<Real>(gemm_kernel<Real>(gemm.layout), plan.tile));
    pad.dispatch<Real>(std::string(gemm_kernel<Real>(gemm.layout)) + pieces,
                       {count_tiles(gemm, t) * uint64_t(plan.splits)},
                       {t.subgroups * t.k_groups * pad.limits().subgroup_size,
                        f.M,
                        f.N,
                        f.K,
                        uint32_t(f.conversion),
                        t.m,
                        t.n,
                        t.k,
                        t.subgroup_m,
                        t.subgroup_n,
                        early_steps,
                        panel_rows(pad, gemm, shape, t),
                        uint32_t(gemm.M),
                        uint32_t(gemm.N),
                        uint32_t(gemm.K),
                        !fills_tiles(gemm, t),
                        uint32_t(epilogue),
                        t.k_groups,
                        gemm.batch > 1,
                        gemm.symmetric},
                       launch_args, {.flops = gemm_flops(gemm)});
}

template <class Real>
void GemmLaunch<Real>::finish(LaunchPad& pad) const {
    if (plan.splits == 1) return;
    const MatmulReduceArgs reduction = {
        args.outp, args.bias, args.other, args.partials, uint64_t(gemm.M) * gemm.N, plan.splits};
    pad.dispatch<Real>("matmul5_reduce", {ceil_div(reduction.n / 8, 128)},
                       {128, uint32_t(gemm.N), uint32_t(gemm.epilogue)}, reduction,
                       {.bytes = double(reduction.n) * (4.0 * plan.splits + 2.0 * sizeof(Real))});
}

#define INSTANTIATE(Real)                                                                       \
    template const char* gemm_kernel<Real>(GemmLayout);                                         \
    template FragmentShape gemm_fragment<Real>(const LaunchPad&);                               \
    template bool fits_tensor_cores<Real>(const LaunchPad&, int, int);                          \
    template std::vector<Tile> tensor_core_tiles<Real>(GemmLayout);                             \
    template int k_groups<Real>(GemmLayout, Tile);                                              \
    template bool on_tensor_cores<Real>(const LaunchPad&, int, int);                            \
    template bool has_tile<Real>(const LaunchPad&, GemmLayout);                                 \
    template std::string tuning_name<Real>(const GemmShape&);                                   \
    template std::vector<Tile> interchangeable_tiles<Real>(const LaunchPad&, const GemmShape&,  \
                                                           const GemmPlan&, bool);              \
    template GemmPlan plan_gemm<Real>(LaunchPad&, const GemmShape&, std::optional<Tile>, bool); \
    template struct GemmLaunch<Real>;
FOR_EACH_REAL(INSTANTIATE)
