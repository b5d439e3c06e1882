// Products on matrix cores: tiles, slices of K, launch.
#include "llmc/matmul_matrix.h"

#include <algorithm>
#include <cstring>

// How a workgroup cuts a product: a subgroup computes down x across fragments, the workgroup has subgroups_m
// x subgroups_n subgroups, and a round takes `steps` of a fragment's K; after early_steps of them it refills
// the shared memory. The last two numbers are an H200's: workgroups that run at once, and microseconds that a
// round takes them.
struct MatrixTiles {
    int block_size;
    uint32_t down, across, subgroups_m, subgroups_n, steps, early_steps;
    int at_once;
    double round_us;
};
// Measured there (SPEED.md): 256, which is 128 x 256, and 512, 256 x 128, read least and win where there is
// work; 64 is for few rows, where a round takes as long as memory takes to answer, so it asks for much at
// once.
static const MatrixTiles matrix_tiles[] = {{256, 4, 4, 2, 4, 2, 1, 132, 0.85},
                                           {512, 4, 4, 4, 2, 2, 1, 132, 0.87},
                                           {128, 4, 4, 2, 2, 2, 2, 264, 0.92},
                                           {64, 2, 2, 2, 2, 8, 0, 132, 0.8}};

static const uint32_t PANEL = 8;  // rows of tiles that workgroups walk together
static const int MOST_SLICES = 32;
static const double START_US = 3;   // what a workgroup takes to begin and to end
static const double FINISH_US = 4;  // what the second kernel takes, besides its traffic
static const double BYTES_PER_US = 3e6;

static const MatrixTiles& find_tiles(int block_size) {
    for (const MatrixTiles& tiles : matrix_tiles)
        if (tiles.block_size == block_size) return tiles;
    fail("matmul version 5 has no block size %d", block_size);
}

std::vector<int> matrix_block_sizes() {
    std::vector<int> sizes;
    for (const MatrixTiles& tiles : matrix_tiles) sizes.push_back(tiles.block_size);
    return sizes;
}

template <class T>
static MatrixShape fragment(const LaunchPad& pad) {
    if (std::is_same_v<T, bf16>) return pad.limits().bf16_matrix;
    if (std::is_same_v<T, fp16>) return pad.limits().fp16_matrix;
    return {};
}

template <class T>
bool on_matrix_cores(const LaunchPad& pad, int C, int OC) {
    return fragment<T>(pad) && C % 8 == 0 && OC % 8 == 0;
}

// The tiles' sizes in elements.
struct TileSizes {
    uint32_t m, n, k, sub_m, sub_n, subgroups;
};
static TileSizes sizes_of(const MatrixTiles& tiles, MatrixShape f) {
    const uint32_t sub_m = tiles.down * f.M, sub_n = tiles.across * f.N;
    return {sub_m * tiles.subgroups_m,
            sub_n * tiles.subgroups_n,
            tiles.steps * f.K,
            sub_m,
            sub_n,
            tiles.subgroups_m * tiles.subgroups_n};
}

static uint64_t count_tiles(const MatrixProduct& p, const TileSizes& t) {
    return blocks(p.M, t.m) * blocks(p.N, t.n);
}

// Bytes of shared memory, as matmul5.glsl lays it out: factors in padded lines, later the strips of results.
static uint32_t shared_bytes(const MatrixProduct& p, const TileSizes& t, MatrixShape f, bool partial) {
    const bool a_k_major = !strcmp(p.kernel, "matmul_dweight5"),
               b_k_major = strcmp(p.kernel, "matmul_forward5") != 0;
    const uint32_t a = a_k_major ? t.k * (t.m / 8 + 1) : t.m * (t.k / 8 + 1);
    const uint32_t b = b_k_major ? t.k * (t.n / 8 + 1) : t.n * (t.k / 8 + 1);
    const uint32_t strips = t.subgroups * f.M * (t.sub_n / (partial ? 4 : 8) + 1);
    return 16 * std::max(a + b, strips);
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
    const double finish = cut.slices > 1 ? FINISH_US + 8 * double(partial_floats(p, cut)) / BYTES_PER_US : 0;
    return turns * workgroup + finish;
}

static MatrixCut make_cut(const MatrixProduct& p, const TileSizes& t, int block_size, int slices) {
    const int slice_k = int(blocks(blocks(p.K, slices), t.k) * t.k);
    return {block_size, int(blocks(p.K, slice_k)), slice_k};
}

template <class T>
MatrixCut cut_matrix_product(const LaunchPad& pad, const MatrixProduct& product, int block_size,
                             bool may_slice) {
    const MatrixShape f = fragment<T>(pad);
    MatrixCut best = {};
    double best_time = 1e30;
    for (const MatrixTiles& tiles : matrix_tiles) {
        const TileSizes t = sizes_of(tiles, f);
        const bool fits = t.subgroups * pad.limits().subgroup_size <= pad.limits().max_block &&
                          shared_bytes(product, t, f, may_slice) <= pad.limits().shared_bytes;
        if (block_size ? tiles.block_size != block_size : !fits) continue;
        const int most = may_slice ? std::clamp(int(blocks(product.K, 4 * t.k)), 1, MOST_SLICES) : 1;
        for (int slices = 1; slices <= most; slices++) {
            const MatrixCut cut = make_cut(product, t, tiles.block_size, slices);
            const double time = estimate(product, tiles, t, cut);
            if (time < best_time) best = cut, best_time = time;
        }
    }
    return best;
}

template <class T>
void launch_matrix_product(LaunchPad& pad, const MatrixProduct& p, const MatrixCut& cut,
                           MatmulMatrixArgs args) {
    const MatrixTiles& tiles = find_tiles(cut.block_size);
    const MatrixShape f = fragment<T>(pad);
    const TileSizes t = sizes_of(tiles, f);
    args.slices = cut.slices;
    args.slice_k = cut.slice_k;
    const int epilogue = cut.slices > 1 ? EPILOGUE_PARTIAL : p.epilogue;
    pad.dispatch<T>(p.kernel, {count_tiles(p, t) * uint64_t(cut.slices)},
                    {t.subgroups * pad.limits().subgroup_size, f.M, f.N, f.K, t.m, t.n, t.k, t.sub_m, t.sub_n,
                     tiles.early_steps, PANEL, uint32_t(p.M), uint32_t(p.N), uint32_t(p.K),
                     !fills_tiles(p, t), uint32_t(epilogue)},
                    args, {.flops = 2.0 * p.M * p.N * p.K});
}

template <class T>
void finish_matrix_product(LaunchPad& pad, const MatrixProduct& p, const MatrixCut& cut,
                           const MatmulMatrixArgs& args) {
    if (cut.slices == 1) return;
    const uint64_t n = uint64_t(p.M) * p.N;
    const MatmulFinishArgs finish = {args.outp, args.bias, args.other, args.partials, n, cut.slices};
    // the constants between the block size and N are the product's alone
    pad.dispatch<T>("matmul5_finish", {blocks(n / 8, 128)},
                    {128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, uint32_t(p.N), 0, 0, uint32_t(p.epilogue)}, finish,
                    {.bytes = double(n) * (4.0 * cut.slices + 2.0 * sizeof(T))});
}

#define INSTANTIATE(T)                                                                           \
    template bool on_matrix_cores<T>(const LaunchPad&, int, int);                                \
    template MatrixCut cut_matrix_product<T>(const LaunchPad&, const MatrixProduct&, int, bool); \
    template void launch_matrix_product<T>(LaunchPad&, const MatrixProduct&, const MatrixCut&,   \
                                           MatmulMatrixArgs);                                    \
    template void finish_matrix_product<T>(LaunchPad&, const MatrixProduct&, const MatrixCut&,   \
                                           const MatmulMatrixArgs&);
FOR_EACH_REAL(INSTANTIATE)
