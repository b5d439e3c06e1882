// Products on matrix cores: tiles, slices of K, launch.
#include "llmc/matmul_matrix.h"

#include <algorithm>
#include <cstring>

#include "llmc/peak.h"

// How a workgroup cuts a product: a subgroup computes down x across fragments, the workgroup has subgroups_m
// x subgroups_n subgroups, `teams` times, and a round takes `steps` of a fragment's K, shared among the
// teams; after early_steps of theirs it refills the shared memory. The last two numbers are an H200's:
// workgroups that run at once, and microseconds that a round takes them.
struct MatrixTiles {
    int block_size;
    uint32_t down, across, subgroups_m, subgroups_n, teams, steps, early_steps;
    int at_once;
    double round_us;
};
// Measured there (SPEED.md): 256, which is 128 x 256, and 512, 256 x 128, read least and win where there is
// work. The others are for few rows, where a round takes as long as memory takes to answer: 64, two
// workgroups of which share a multiprocessor; 96 and 32, which are 64 x 96 and 32 x 64, where they are so
// many tiles that each has one to itself.
static const MatrixTiles matrix_tiles[] = {
    {256, 4, 4, 2, 4, 1, 2, 1, 132, 0.85}, {512, 4, 4, 4, 2, 1, 2, 1, 132, 0.87},
    {128, 4, 4, 2, 2, 1, 2, 2, 264, 0.92}, {64, 2, 2, 2, 2, 1, 4, 0, 264, 0.65},
    {96, 2, 3, 2, 2, 2, 8, 0, 132, 1.2},   {32, 2, 2, 1, 2, 2, 8, 0, 132, 0.6}};

static const int MOST_SLICES = 32;
static const double START_US = 3;   // what a workgroup takes to begin and to end
static const double FINISH_US = 4;  // what the second kernel takes, besides its traffic
static const double FOLDED_US = 1;  // what the next layer's takes longer where it does that kernel's work
static const double BYTES_PER_US = 3e6;

static const MatrixTiles& find_tiles(int block_size) {
    for (const MatrixTiles& tiles : matrix_tiles)
        if (tiles.block_size == block_size) return tiles;
    fail("matmul version 5 has no block size %d", block_size);
}

// Invocations cannot share lines of 96 columns of a factor evenly.
static bool takes(const char* kernel, const MatrixTiles& tiles) {
    return tiles.across != 3 || !strcmp(kernel, "matmul_forward5");
}

std::vector<int> matrix_block_sizes(const char* kernel) {
    std::vector<int> sizes;
    for (const MatrixTiles& tiles : matrix_tiles)
        if (takes(kernel, tiles)) sizes.push_back(tiles.block_size);
    return sizes;
}

int matrix_teams(int block_size) { return int(find_tiles(block_size).teams); }

template <class T>
bool on_matrix_cores(const LaunchPad& pad, int C, int OC) {
    return pad.limits().matrix<T>() && C % 8 == 0 && OC % 8 == 0;
}

// On an H200 products of 65536 rows are 3 to 5 % quicker, and transposing takes as long as 1000 rows do.
template <class T>
bool transposing_pays(const LaunchPad& pad, int N, int C, int OC) {
    return N >= 16384 && on_matrix_cores<T>(pad, C, OC);
}

// The tiles' sizes in elements.
struct TileSizes {
    uint32_t m, n, k, sub_m, sub_n, subgroups, teams;  // subgroups of a team
};
static TileSizes sizes_of(const MatrixTiles& tiles, MatrixShape f) {
    const uint32_t sub_m = tiles.down * f.M, sub_n = tiles.across * f.N;
    return {sub_m * tiles.subgroups_m,
            sub_n * tiles.subgroups_n,
            tiles.steps * f.K,
            sub_m,
            sub_n,
            tiles.subgroups_m * tiles.subgroups_n,
            tiles.teams};
}

static uint64_t count_tiles(const MatrixProduct& p, const TileSizes& t) {
    return blocks(p.M, t.m) * blocks(p.N, t.n);
}

// A factor's tile in shared memory, as matmul5.glsl lays it out: lines of chunks of 16 bytes.
struct FactorTile {
    uint32_t lines, chunks;
    uint32_t padded() const { return lines * (chunks + 1); }
};
static FactorTile a_tile(const MatrixProduct& p, const TileSizes& t) {
    const bool k_major = !strcmp(p.kernel, "matmul_dweight5");
    return k_major ? FactorTile{t.k, t.m / 8} : FactorTile{t.m, t.k / 8};
}
static FactorTile b_tile(const MatrixProduct& p, const TileSizes& t) {
    const bool k_major = strcmp(p.kernel, "matmul_forward5") != 0;
    return k_major ? FactorTile{t.k, t.n / 8} : FactorTile{t.n, t.k / 8};
}

// Bytes of shared memory: the factors, later the sums that teams hand over, then the strips of results.
static uint32_t shared_bytes(const MatrixProduct& p, const TileSizes& t, MatrixShape f, bool partial) {
    const uint32_t factors = a_tile(p, t).padded() + b_tile(p, t).padded();
    const uint32_t strips = t.subgroups * t.teams * f.M * (t.sub_n / (partial ? 4 : 8) + 1);
    return 16 * std::max({factors, strips, t.teams / 2 * t.m * t.n / 4});
}

size_t partial_floats(const MatrixProduct& p, const MatrixCut& cut) {
    return cut.slices > 1 ? size_t(cut.slices) * p.M * p.N : 0;
}

static bool fills_tiles(const MatrixProduct& p, const TileSizes& t) {
    return p.M % t.m == 0 && p.N % t.n == 0 && p.K % t.k == 0;
}

// Microseconds that a cut should take on a large GPU: rounds of workgroups, which take longer where they must
// look after the edges, and the partial results' traffic.
static double estimate(const MatrixProduct& p, const MatrixTiles& tiles, const TileSizes& t,
                       const MatrixCut& cut) {
    const double turns = double(blocks(count_tiles(p, t) * uint64_t(cut.slices), tiles.at_once));
    const double round = tiles.round_us * (fills_tiles(p, t) ? 1 : 1.2);
    const double workgroup = double(blocks(cut.slice_k, t.k)) * round + START_US;
    const double traffic = 8 * double(partial_floats(p, cut)) / BYTES_PER_US;
    const double finish = cut.slices > 1 ? (p.left_partial ? FOLDED_US : FINISH_US) + traffic : 0;
    return turns * workgroup + finish;
}

// Slices are whole rounds of all tiles of as many teams, so that those can take the place of these.
static MatrixCut make_cut(const MatrixProduct& p, MatrixShape f, const MatrixTiles& cut_into, int slices) {
    uint32_t most_steps = 0;
    for (const MatrixTiles& tiles : matrix_tiles)
        if (tiles.teams == cut_into.teams) most_steps = std::max(most_steps, tiles.steps);
    const int unit = int(most_steps * f.K), slice_k = int(blocks(blocks(p.K, slices), unit) * unit);
    return {cut_into.block_size, int(blocks(p.K, slice_k)), slice_k};
}

// Whether a workgroup can be started, and its invocations share the pieces of each strip of results evenly.
template <class T>
static bool fits(const LaunchPad& pad, const MatrixProduct& p, const MatrixTiles& tiles, bool may_slice) {
    const MatrixShape f = pad.limits().matrix<T>();
    const TileSizes t = sizes_of(tiles, f);
    const uint32_t lanes = pad.limits().subgroup_size;
    return takes(p.kernel, tiles) && t.subgroups * t.teams * lanes <= pad.limits().max_block &&
           f.M * (t.sub_n / 8) % lanes == 0 && shared_bytes(p, t, f, may_slice) <= pad.limits().shared_bytes;
}

// Gradients of weights run beside other kernels (llmc/gpt2.h). Where their tiles are so few that those
// kernels find room, tiles that take a whole multiprocessor each leave less of it.
static bool crowds(const MatrixProduct& p, const MatrixTiles& tiles, const TileSizes& t, int slices) {
    return !strcmp(p.kernel, "matmul_dweight5") && tiles.teams == 1 && tiles.at_once == 132 &&
           count_tiles(p, t) * uint64_t(slices) < uint64_t(tiles.at_once);
}

// Under which name the quickest tiles are kept; a result that is added to shares those of one that is not. A
// product that is left partial has other slices.
template <class T>
static std::string name_of(const MatrixProduct& p) {
    const int epilogue = p.epilogue == EPILOGUE_ADD ? EPILOGUE_NONE : p.epilogue;
    return format_string("%s_%s/%dx%dx%d/epilogue%d%s", p.kernel, real_name<T>(), p.M, p.N, p.K, epilogue,
                         p.left_partial ? "/left" : "");
}

// Whether tiles can take the place of those of a cut, without a change in any bit of the result.
template <class T>
static bool replaces(const LaunchPad& pad, const MatrixProduct& p, const MatrixTiles& tiles,
                     const MatrixCut& cut, bool may_slice) {
    return tiles.teams == find_tiles(cut.block_size).teams && fits<T>(pad, p, tiles, may_slice) &&
           !crowds(p, tiles, sizes_of(tiles, pad.limits().matrix<T>()), cut.slices);
}

// The tiles that were measured to be the quickest for a product, if they can take the place of the usual
// ones.
template <class T>
static int measured_block_size(const LaunchPad& pad, const MatrixProduct& p, const MatrixCut& usual,
                               bool may_slice) {
    const int block_size = pad.measured(name_of<T>(p)).value_or(0);
    for (const MatrixTiles& tiles : matrix_tiles)
        if (tiles.block_size == block_size && replaces<T>(pad, p, tiles, usual, may_slice)) return block_size;
    return usual.block_size;
}

template <class T>
MatrixCut cut_matrix_product(const LaunchPad& pad, const MatrixProduct& product, int block_size,
                             bool may_slice) {
    const MatrixShape f = pad.limits().matrix<T>();
    MatrixCut best = {};
    double best_time = 1e30;
    for (const MatrixTiles& tiles : matrix_tiles) {
        const TileSizes t = sizes_of(tiles, f);
        if (block_size ? tiles.block_size != block_size : !fits<T>(pad, product, tiles, may_slice)) continue;
        const int most = may_slice ? std::clamp(int(blocks(product.K, 4 * t.k)), 1, MOST_SLICES) : 1;
        for (int slices = 1; slices <= most; slices++) {
            const MatrixCut cut = make_cut(product, f, tiles, slices);
            if (!block_size && crowds(product, tiles, t, cut.slices)) continue;
            const double time = estimate(product, tiles, t, cut);
            if (time < best_time) best = cut, best_time = time;
        }
    }
    if (!block_size) best.block_size = measured_block_size<T>(pad, product, best, may_slice);
    return best;
}

// Rows of tiles that workgroups walk together: eight, or, where K is short, as many, of a power of two, as
// run at once. On an H200, 65536 x 768 x 768: 282 -> 292 TFLOP/s with 32, but 273 with 44 (SPEED.md).
static uint32_t panel_rows(const MatrixProduct& p, const MatrixTiles& tiles, const TileSizes& t) {
    uint32_t rows = 8;
    while (p.K <= 1024 && 2 * rows * blocks(p.N, t.n) <= uint32_t(tiles.at_once)) rows *= 2;
    return rows;
}

template <class T>
void launch_matrix_product(LaunchPad& pad, const MatrixProduct& p, const MatrixCut& cut,
                           MatmulMatrixArgs args) {
    const MatrixTiles& tiles = find_tiles(cut.block_size);
    const MatrixShape f = pad.limits().matrix<T>();
    const TileSizes t = sizes_of(tiles, f);
    args.slices = cut.slices;
    args.slice_k = cut.slice_k;
    const int epilogue = cut.slices > 1 ? EPILOGUE_PARTIAL : p.epilogue;
    pad.dispatch<T>(p.kernel, {count_tiles(p, t) * uint64_t(cut.slices)},
                    {t.subgroups * t.teams * pad.limits().subgroup_size, f.M, f.N, f.K, t.m, t.n, t.k,
                     t.sub_m, t.sub_n, tiles.early_steps, panel_rows(p, tiles, t), uint32_t(p.M),
                     uint32_t(p.N), uint32_t(p.K), !fills_tiles(p, t), uint32_t(epilogue), t.teams},
                    args, {.flops = 2.0 * p.M * p.N * p.K});
}

// N: columns.
template <class T>
static void dispatch_finish(LaunchPad& pad, const MatmulFinishArgs& args, int N, int epilogue) {
    // the constants between the block size and N are the product's alone
    pad.dispatch<T>("matmul5_finish", {blocks(args.n / 8, 128)},
                    {128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, uint32_t(N), 0, 0, uint32_t(epilogue)}, args,
                    {.bytes = double(args.n) * (4.0 * args.slices + 2.0 * sizeof(T))});
}

template <class T>
void finish_matrix_product(LaunchPad& pad, const MatrixProduct& p, const MatrixCut& cut,
                           const MatmulMatrixArgs& args) {
    if (cut.slices == 1) return;
    const uint64_t n = uint64_t(p.M) * p.N;
    dispatch_finish<T>(pad, {args.outp, args.bias, args.other, args.partials, n, cut.slices}, p.N,
                       p.epilogue);
}

template <class T>
void finish_product(LaunchPad& pad, const PartialProduct<T>& p, int N, int C) {
    if (p.slices == 1) return;
    if (C % 8) fail("finish_product: rows of %d elements; a product in slices has a multiple of 8", C);
    const size_t n = size_t(N) * C;
    dispatch_finish<T>(pad,
                       {pad.at(p.value, n), pad.at(p.bias, size_t(C)), 0,
                        pad.at(p.partials, n * size_t(p.slices)), n, p.slices},
                       C, p.bias ? EPILOGUE_BIAS : EPILOGUE_NONE);
}

template <class T>
std::vector<MatrixProduct> unmeasured_tiles(const LaunchPad& pad,
                                            const std::vector<MatrixProduct>& products) {
    std::vector<MatrixProduct> left;
    for (const MatrixProduct& p : products)
        if (!pad.measured(name_of<T>(p))) left.push_back(p);
    return left;
}

// Memory for any of some products.
template <class T>
struct Operands {
    LaunchPad& pad;
    std::vector<void*> memory;
    MatmulMatrixArgs args = {};

    explicit Operands(LaunchPad& launchpad) : pad(launchpad) {}
    Operands(const Operands&) = delete;
    ~Operands() {
        for (void* p : memory) pad.free(p);
    }
    // Ones in every element: the speed of zeros would be that of an idle device's clock.
    template <class Element>
    uint64_t array(size_t n) {
        memory.push_back(pad.allocate((n + 1) * sizeof(Element), "operands to be measured"));
        pad.fill(memory.back(), sizeof(Element) == 4 ? 0x3f800000u : 0x3c003c00u,
                 n * sizeof(Element) / 4 * 4);
        return pad.at(static_cast<Element*>(memory.back()), n);
    }
    void make(const std::vector<MatrixProduct>& products) {
        size_t out = 0, a = 0, b = 0, bias = 0, partials = 0;
        for (const MatrixProduct& p : products) {
            out = std::max(out, size_t(p.M) * p.N);
            a = std::max(a, size_t(p.M) * p.K);
            b = std::max(b, size_t(p.N) * p.K);
            bias = std::max(bias, size_t(p.N));
            partials = std::max(partials, partial_floats(p, cut_matrix_product<T>(pad, p, 0, true)));
        }
        args.outp = array<T>(out);
        args.a = array<T>(a);
        args.b = array<T>(b);
        args.bias = array<T>(bias);
        args.other = array<T>(out);
        args.partials = array<float>(partials);
    }
};

template <class T>
void measure_tiles(LaunchPad& pad, const std::vector<MatrixProduct>& products) {
    Operands<T> operands(pad);
    operands.make(products);
    bool warm = false;
    for (const MatrixProduct& p : products) {
        MatrixCut cut = cut_matrix_product<T>(pad, p, 0, true);
        const int usual = cut.block_size;
        double best_time = 1e30;
        int best = usual;
        for (const MatrixTiles& tiles : matrix_tiles) {
            if (!replaces<T>(pad, p, tiles, cut, true)) continue;
            cut.block_size = tiles.block_size;
            const auto launch = [&] { launch_matrix_product<T>(pad, p, cut, operands.args); };
            warm_up(pad, launch, warm ? 0 : 0.5);  // compiles the kernel; the first time, raises the clock
            warm = true;
            double time = 1e30;
            for (int turn = 0; turn < 3; turn++) time = std::min(time, seconds_per_launch(pad, launch, 1e-3));
            if (tiles.block_size == usual) time *= 0.98;  // others must be better by more than chance
            if (time < best_time) best = cut.block_size, best_time = time;
        }
        pad.keep_measured(name_of<T>(p), best);
    }
    pad.reset_kernel_times();
}

#define INSTANTIATE(T)                                                                           \
    template bool on_matrix_cores<T>(const LaunchPad&, int, int);                                \
    template bool transposing_pays<T>(const LaunchPad&, int, int, int);                          \
    template MatrixCut cut_matrix_product<T>(const LaunchPad&, const MatrixProduct&, int, bool); \
    template void launch_matrix_product<T>(LaunchPad&, const MatrixProduct&, const MatrixCut&,   \
                                           MatmulMatrixArgs);                                    \
    template void finish_matrix_product<T>(LaunchPad&, const MatrixProduct&, const MatrixCut&,   \
                                           const MatmulMatrixArgs&);                             \
    template void finish_product<T>(LaunchPad&, const PartialProduct<T>&, int, int);             \
    template std::vector<MatrixProduct> unmeasured_tiles<T>(const LaunchPad&,                    \
                                                            const std::vector<MatrixProduct>&);  \
    template void measure_tiles<T>(LaunchPad&, const std::vector<MatrixProduct>&);
FOR_EACH_REAL(INSTANTIATE)
