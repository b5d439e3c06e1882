// Products on matrix cores: tiles, slices of K, launch.
#include "llmc/matmul_matrix.h"

#include <algorithm>
#include <cstring>

// How a workgroup cuts a product: a subgroup computes down x across fragments, and the workgroup has
// subgroups_m x subgroups_n subgroups. The shared memory is refilled after early_steps of a round's two.
struct MatrixTiles {
    int block_size;
    uint32_t down, across, subgroups_m, subgroups_n, early_steps;
};
// Measured on an H200 (SPEED.md): 128 runs two workgroups on a multiprocessor, 256 one that reads less.
static const MatrixTiles matrix_tiles[] = {{128, 4, 4, 2, 2, 2}, {256, 4, 4, 2, 4, 1}, {64, 2, 4, 2, 1, 2}};

static const uint32_t STEPS = 2;            // of a fragment's K in a round
static const uint32_t PANEL = 8;            // rows of tiles that workgroups walk together
static const int WORKGROUPS_AT_ONCE = 264;  // of a large GPU: two on each of an H200's multiprocessors

static const MatrixTiles& find_tiles(int block_size) {
    for (const MatrixTiles& tiles : matrix_tiles)
        if (tiles.block_size == block_size) return tiles;
    fail("matmul version 5 has no block size %d", block_size);
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

std::vector<int> matrix_block_sizes() {
    std::vector<int> sizes;
    for (const MatrixTiles& tiles : matrix_tiles) sizes.push_back(tiles.block_size);
    return sizes;
}

// The tiles' sizes in elements.
struct TileSizes {
    uint32_t m, n, k, sub_m, sub_n, subgroups;
};
static TileSizes sizes_of(const MatrixTiles& tiles, MatrixShape f) {
    const uint32_t sub_m = tiles.down * f.M, sub_n = tiles.across * f.N;
    return {sub_m * tiles.subgroups_m,
            sub_n * tiles.subgroups_n,
            STEPS * f.K,
            sub_m,
            sub_n,
            tiles.subgroups_m * tiles.subgroups_n};
}

// Bytes of shared memory, as matmul5.glsl lays it out: factors in padded lines, later the strips of results.
static uint32_t shared_bytes(const MatrixProduct& p, const TileSizes& t, MatrixShape f) {
    const bool a_k_major = !strcmp(p.kernel, "matmul_dweight5"),
               b_k_major = strcmp(p.kernel, "matmul_forward5") != 0;
    const uint32_t a = a_k_major ? t.k * (t.m / 8 + 1) : t.m * (t.k / 8 + 1);
    const uint32_t b = b_k_major ? t.k * (t.n / 8 + 1) : t.n * (t.k / 8 + 1);
    const uint32_t strips = t.subgroups * f.M * (t.sub_n / (p.epilogue == EPILOGUE_PARTIAL ? 4 : 8) + 1);
    return 16 * std::max(a + b, strips);
}

static uint64_t count_tiles(const MatrixProduct& p, const TileSizes& t) {
    return blocks(p.M, t.m) * blocks(p.N, t.n);
}

template <class T>
int choose_matrix_block(const LaunchPad& pad, const MatrixProduct& product) {
    const MatrixShape f = fragment<T>(pad);
    auto fits = [&](int block_size) {
        const TileSizes t = sizes_of(find_tiles(block_size), f);
        return t.subgroups * pad.limits().subgroup_size <= pad.limits().max_block &&
               shared_bytes(product, t, f) <= pad.limits().shared_bytes;
    };
    auto workgroups = [&](int block_size) {
        return count_tiles(product, sizes_of(find_tiles(block_size), f)) * uint64_t(product.slices);
    };
    if (fits(256) && product.K >= 2048 && workgroups(256) >= uint64_t(WORKGROUPS_AT_ONCE) * 4) return 256;
    return fits(128) && workgroups(128) * 2 >= uint64_t(WORKGROUPS_AT_ONCE) ? 128 : 64;
}

template <class T>
MatrixProduct sliced(const LaunchPad& pad, MatrixProduct product, int block_size) {
    const TileSizes t = sizes_of(find_tiles(block_size), fragment<T>(pad));
    const uint64_t tiles = count_tiles(product, t),
                   most = std::clamp<uint64_t>(blocks(product.K, 8 * t.k), 1, 64);
    int best = 1;
    double best_time = 1e30;
    for (uint64_t slices = 1; slices <= most; slices++) {
        const uint64_t rounds = blocks(tiles * slices, WORKGROUPS_AT_ONCE);
        // a round takes as long as a slice is, and a little to begin and to end; partial sums cost their
        // traffic
        const double time =
            double(rounds) * (double(product.K) / double(slices) + 200) + 2.0 * double(slices);
        if (time >= best_time) continue;
        best_time = time;
        best = int(slices);
    }
    product.slice_k = int(blocks(blocks(product.K, best), t.k) * t.k);
    product.slices = int(blocks(product.K, product.slice_k));
    return product;
}

template <class T>
void launch_matrix_product(LaunchPad& pad, const MatrixProduct& p, MatmulMatrixArgs args, int block_size) {
    const MatrixTiles& tiles = find_tiles(block_size);
    const MatrixShape f = fragment<T>(pad);
    const TileSizes t = sizes_of(tiles, f);
    args.slices = p.slices;
    args.slice_k = p.slice_k ? p.slice_k : p.K;
    const bool exact = p.M % t.m == 0 && p.N % t.n == 0 && p.K % t.k == 0;
    pad.dispatch<T>(
        p.kernel, {count_tiles(p, t) * uint64_t(p.slices)},
        {t.subgroups * pad.limits().subgroup_size, f.M, f.N, f.K, t.m, t.n, t.k, t.sub_m, t.sub_n,
         tiles.early_steps, PANEL, uint32_t(p.M), uint32_t(p.N), uint32_t(p.K), !exact, uint32_t(p.epilogue)},
        args, {.flops = 2.0 * p.M * p.N * p.K});
}

#define INSTANTIATE(T)                                                           \
    template bool on_matrix_cores<T>(const LaunchPad&, int, int);                \
    template int choose_matrix_block<T>(const LaunchPad&, const MatrixProduct&); \
    template MatrixProduct sliced<T>(const LaunchPad&, MatrixProduct, int);      \
    template void launch_matrix_product<T>(LaunchPad&, const MatrixProduct&, MatmulMatrixArgs, int);
FOR_EACH_REAL(INSTANTIATE)
