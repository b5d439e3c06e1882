// Packed GEMM on the CPU, after Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication"
// (2008), in BLIS terms: each thread takes a tile of the result and walks K in blocks of KC. It packs its
// columns of b into micro-panels, in the order in which the microkernel reads them; they stay in L2. It then
// walks the rows of a in micro-panels that stay in L1; if instead a micro-panel of b fits in L1 (b_in_l1), it
// is multiplied by a group of rows of a. The microkernel keeps MR x NR accumulators in vector registers.
//
// The microkernel multiplies an element of a, broadcast, by vectors of b. Packing a is therefore a mere copy
// for either layout, and b needs transposing only if the operand is not transposed.
//
// Panels consist of 32-bit units: a float, or a pair of bf16 that are consecutive in K. The instructions that
// multiply pairs (AVX512_BF16, AMX, Arm's BF16) flush subnormals to zero. AMX multiplies blocks of units
// without a broadcast: it needs rows of a with consecutive units, so a transposed a must be transposed back.
#include "llmc/cpu/gemm.h"

#include <omp.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "llmc/base/ceil_div.h"
#include "llmc/cpu/gemm_kernels.h"
#include "llmc/cpu/prefetch.h"

static constexpr int KC = 384;                 // units of K in a block; fewer if b_in_l1
static constexpr int A_STRIDE = KC + 16;       // between packed rows of a: maps rows to different cache sets
static constexpr int B_PANEL_UNITS = 1 << 17;  // capacity of b's packed panel: half a megabyte, for L2

// dst (ceil(rows / 2), n): pairs of elements of two consecutive rows. Zeros pair with an odd last row.
static SIMD_INLINE void interleave(float* dst, size_t dst_ld, const bf16* src, size_t ld, int rows, int n) {
    for (int i = 0; i < rows; i += 2, dst += dst_ld, src += 2 * ld) {
        const bf16* second = i + 1 < rows ? src + ld : src;
        const uint32_t mask = i + 1 < rows ? ~0u : 0;
#pragma omp simd
        for (int j = 0; j < n; j++)
            dst[j] = std::bit_cast<float>(uint32_t(src[j].bits) | (uint32_t(second[j].bits) << 16 & mask));
    }
}

// Packing into units that are floats.
template <class Real>
struct FloatUnits {
    static constexpr int per_unit = 1;  // elements
    // Units u to u + 3, or unit u, of a row whose elements are consecutive in K.
    static Float4 load_four(const Real* row, int u) { return load4(row + u); }
    static float load_one(const Real* row, int u, int) { return float(row[u]); }
    // `rows` rows whose kc elements are consecutive in K: dst (rows, units).
    static void pack(float* dst, size_t dst_ld, const Real* src, size_t ld, int rows, int kc) {
        copy_to_floats(dst, dst_ld, src, ld, rows, kc);
    }
    // n columns of a transposed operand: dst (units, n).
    static void pack_transposed(float* dst, size_t dst_ld, const Real* src, size_t ld, int kc, int n) {
        copy_to_floats(dst, dst_ld, src, ld, kc, n);
    }
    // Whether kc consecutive elements in memory already are units.
    static bool are_units(int) { return std::is_same_v<Real, float>; }
};

// Packing into units that are pairs of bf16. Zero pairs with an odd last element.
struct PairUnits {
    static constexpr int per_unit = 2;
    static Float4 load_four(const bf16* row, int u) {
        Float4 v;
        memcpy(&v, row + 2 * u, sizeof v);
        return v;
    }
    static float load_one(const bf16* row, int u, int kc) {
        const uint32_t second = 2 * u + 1 < kc ? row[2 * u + 1].bits : 0;
        return std::bit_cast<float>(row[2 * u].bits | second << 16);
    }
    static void pack(float* dst, size_t dst_ld, const bf16* src, size_t ld, int rows, int kc) {
        for (int i = 0; i < rows; i++, dst += dst_ld, src += ld) {
            memcpy(dst, src, size_t(kc / 2) * sizeof(float));
            if (kc % 2) dst[kc / 2] = load_one(src, kc / 2, kc);
        }
    }
    static void pack_transposed(float* dst, size_t dst_ld, const bf16* src, size_t ld, int kc, int n) {
        simd<interleave>(dst, dst_ld, src, ld, kc, n);
    }
    static bool are_units(int kc) { return kc % 2 == 0; }
};

// A block of K of an operand: kc elements from k0 on.
template <class Real>
struct KBlock {
    Operand<Real> x;
    size_t k0;
    int kc;

    const Real* at(size_t row) const { return x.transposed ? x.p + k0 * x.ld + row : x.p + row * x.ld + k0; }
    template <class Units>
    int units() const {
        return (kc + Units::per_unit - 1) / Units::per_unit;
    }
};

// Rows of a that are packed at a time. For a transposed a these are enough to read whole cache lines.
static constexpr int MAX_GROUP = 64;
static int group_rows(const KernelSet& set, bool transposed) {
    return transposed || set.b_in_l1 ? std::min(4 * set.mr, MAX_GROUP) : set.mr;
}

// Rows of a that are multiplied by a micro-panel of b before the next one. Their tiles form a strip.
// Transposed results are stored a strip at a time, because its rows are their columns: longer stores, fewer
// of them.
static int strip_rows(const KernelSet& set, bool transposed) {
    return set.b_in_l1 ? group_rows(set, transposed) : set.mr;
}

// Units of K in a block. Two thirds leave room in L1 for rows of a beside a micro-panel of b.
static int block_units(const KernelSet& set) { return set.b_in_l1 ? KC * 2 / 3 : KC; }

// Packs rows of a transposed operand so that the units of each are consecutive: dst (rows, A_STRIDE). Pads
// the last block of units with zeros.
template <class Units, class Real>
static void transpose_rows(float* dst, const KBlock<Real>& s, size_t row, int rows) {
    constexpr int STEP = 16;  // units at a time, which stay in L1: whole blocks
    float columns[STEP * MAX_GROUP];
    const Real* src = s.at(row);
    for (int k = 0; k < s.kc; k += STEP * Units::per_unit, dst += STEP) {
        const int kc = std::min(STEP * Units::per_unit, s.kc - k);
        if (kc < STEP * Units::per_unit || rows % 4) std::fill_n(columns, STEP * MAX_GROUP, 0.0f);
        Units::pack_transposed(columns, MAX_GROUP, src + k * s.x.ld, s.x.ld, kc, rows);
        for (int i = 0; i < rows; i += 4)
            for (int u = 0; u < STEP; u += 4) {
                const float* from = columns + u * MAX_GROUP + i;
                const Float4 r[4] = {load4(from), load4(from + MAX_GROUP), load4(from + 2 * MAX_GROUP),
                                     load4(from + 3 * MAX_GROUP)};
                transpose4(dst + size_t(i) * A_STRIDE + u, A_STRIDE, r);
            }
    }
}

// Packs a group of `rows` rows of a, and returns them as operand a of microkernels. A transposed a gives (KC,
// group_rows()) if the microkernel can read columns; otherwise rows have consecutive units. The microkernel
// reads rows in place if they already are units in whole blocks and their lines do not crowd into a few cache
// sets. Missing rows and units are zero.
template <class Units, class Real>
static KernelInput pack_a(float* dst, const KernelSet& set, const KBlock<Real>& s, size_t row, int rows) {
    const Real* src = s.at(row);
    const size_t stride = s.x.ld * sizeof(Real);
    const int units = s.template units<Units>(), padded_units = round_up(units, set.unit_multiple);
    if (s.x.transposed && set.unit_multiple == 1) {
        const int width = group_rows(set, true);
        if (rows % set.mr) std::fill_n(dst, size_t(KC) * width, 0.0f);
        Units::pack_transposed(dst, width, src, s.x.ld, s.kc, rows);
        return {reinterpret_cast<const char*>(dst), sizeof(float), width * sizeof(float)};
    }
    if (s.x.transposed) {
        transpose_rows<Units>(dst, s, row, rows);
    } else {
        if (Units::are_units(s.kc) && units == padded_units && stride % 2048 && rows % set.row_step == 0)
            return {reinterpret_cast<const char*>(src), stride, sizeof(float)};
        Units::pack(dst, A_STRIDE, src, s.x.ld, rows, s.kc);
        for (int i = 0; i < rows && units < padded_units; i++)
            std::fill_n(dst + size_t(i) * A_STRIDE + units, padded_units - units, 0.0f);
    }
    for (int i = rows; i % set.row_step; i++) std::fill_n(dst + size_t(i) * A_STRIDE, KC, 0.0f);
    return {reinterpret_cast<const char*>(dst), A_STRIDE * sizeof(float), sizeof(float)};
}

// Transposes `columns` columns of b into a micro-panel (units, nr). Missing columns are zero.
template <class Units, class Real>
static void transpose_micro_panel(float* dst, int nr, const KBlock<Real>& s, size_t column, int columns) {
    const Real* src = s.at(column);
    const size_t ld = s.x.ld;
    const int units = s.template units<Units>(), whole = s.kc / Units::per_unit / 4 * 4,
              whole_columns = columns / 4 * 4;
    for (int u = 0; u < whole; u += 4)
        for (int c = 0; c < whole_columns; c += 4) {
            const Real* x = src + c * ld;
            const Float4 r[4] = {Units::load_four(x, u), Units::load_four(x + ld, u),
                                 Units::load_four(x + 2 * ld, u), Units::load_four(x + 3 * ld, u)};
            transpose4(dst + size_t(u) * nr + c, nr, r);
        }
    for (int c = 0; c < columns; c++)
        for (int u = c < whole_columns ? whole : 0; u < units; u++)
            dst[size_t(u) * nr + c] = Units::load_one(src + c * ld, u, s.kc);
    if (columns < nr)
        for (int u = 0; u < units; u++)
            std::fill(dst + size_t(u) * nr + columns, dst + size_t(u + 1) * nr, 0.0f);
}

// Packs a tile's columns of b into consecutive micro-panels. Pads the last block of units with zeros.
template <class Units, class Real>
static void pack_b(float* dst, const KernelSet& set, const KBlock<Real>& s, size_t column, int columns) {
    const int units = s.template units<Units>(), padded_units = round_up(units, set.unit_multiple);
    const int nr = set.nr;
    for (int c = 0; c < columns; c += nr) {
        const int n = std::min(nr, columns - c);
        float* panel = dst + size_t(c) * padded_units;
        if (!s.x.transposed) {
            transpose_micro_panel<Units>(panel, nr, s, column + c, n);
        } else {
            if (n < nr) std::fill_n(panel, size_t(units) * nr, 0.0f);
            Units::pack_transposed(panel, nr, s.at(column) + c, s.x.ld, s.kc, n);
        }
        std::fill_n(panel + size_t(units) * nr, size_t(padded_units - units) * nr, 0.0f);
    }
}

// Prefetches what is packed next while the microkernel runs: each call of fetch() requests a share of its
// cache lines.
struct Prefetcher {
    RowLines rows;
    int share = 0;

    Prefetcher() = default;
    template <class Real>
    Prefetcher(const KBlock<Real>& s, size_t first, int count, int calls)
        : rows(s.at(first), s.x.ld, s.x.transposed ? s.kc : count, s.x.transposed ? count : s.kc),
          share(int(ceil_div(rows.left(), calls))) {}
    void fetch() { rows.prefetch(share); }
};

// A part of the result: the tile of a thread, or of one microkernel call.
struct Region {
    size_t row, column;
    int rows, columns;
    Region transposed() const { return {column, row, columns, rows}; }
};

// With `accumulate`, first adds dst to the tile. A separate loop avoids that loads wait for stores whose
// addresses may alias.
template <class Real>
static SIMD_INLINE void store_columns(Real* dst, size_t ld, float* tile, int nr, int rows, int columns,
                                      bool accumulate) {
    if (accumulate)
        for (int i = 0; i < rows; i++)
#pragma omp simd
            for (int j = 0; j < columns; j++) tile[i * nr + j] += float(dst[i * ld + j]);
    for (int i = 0; i < rows; i++)
#pragma omp simd
        for (int j = 0; j < columns; j++) dst[i * ld + j] = round_to<Real>(tile[i * nr + j]);
}
// Constant column counts are faster.
template <class Real>
static SIMD_INLINE void store_rows(const Result<Real>& c, const Region& part, float* tile, int nr) {
    Real* dst = c.p + part.row * c.ld + part.column;
    if (part.columns == 32) return store_columns(dst, c.ld, tile, nr, part.rows, 32, c.accumulate);
    if (part.columns == 12) return store_columns(dst, c.ld, tile, nr, part.rows, 12, c.accumulate);
    if (part.columns == 16) return store_columns(dst, c.ld, tile, nr, part.rows, 16, c.accumulate);
    if (part.columns == 6) return store_columns(dst, c.ld, tile, nr, part.rows, 6, c.accumulate);
    if (part.columns == 24) return store_columns(dst, c.ld, tile, nr, part.rows, 24, c.accumulate);
    store_columns(dst, c.ld, tile, nr, part.rows, part.columns, c.accumulate);
}

// Adds a bias to each of `rows` rows of tile (rows, nr), and transposes it: dst (nr, ld).
static SIMD_INLINE void transpose_tile(float* dst, int ld, const float* tile, int nr, int rows,
                                       const float* bias) {
    const auto row = [&](int i, int j) { return i < rows ? load4(tile + i * nr + j) + bias[i] : Float4{}; };
    for (int i = 0; i < rows; i += 4)
        for (int j = 0; j < nr; j += 4) {
            const Float4 r[4] = {row(i, j), row(i + 1, j), row(i + 2, j), row(i + 3, j)};
            transpose4(dst + j * ld + i, ld, r);
        }
}

// The epilogue: stores a tile, or a strip of them, (part.rows, nr) to the result, with bias, transposition
// and accumulation.
template <class Real>
static void store_tile(const Result<Real>& c, const Region& part, float* tiles, int nr) {
    if (!c.transposed && !c.bias) return simd<store_rows<Real>>(c, part, tiles, nr);
    float bias[MAX_GROUP], finished[MAX_NR * MAX_GROUP];
    for (int i = 0; i < part.rows; i++) bias[i] = c.bias ? float(c.bias[part.row + i]) : 0.0f;
    if (c.transposed) {
        const int ld = round_up(part.rows, 4);
        simd<transpose_tile>(finished, ld, tiles, nr, part.rows, bias);
        return simd<store_rows<Real>>(c, part.transposed(), finished, ld);
    }
    for (int i = 0; i < part.rows; i++)
        for (int j = 0; j < nr; j++) finished[i * nr + j] = tiles[i * nr + j] + bias[i];
    simd<store_rows<Real>>(c, part, finished, nr);
}

// Prefetches the lines that store_tile() writes, to hide the memory latency.
template <class Real>
static void prefetch_tile(const Result<Real>& c, const Region& part) {
    const Region stored = c.transposed ? part.transposed() : part;
    for (int i = 0; i < stored.rows; i++) {
        const char* first = reinterpret_cast<const char*>(c.p + (stored.row + i) * c.ld + stored.column);
        const char* last = first + size_t(stored.columns) * sizeof(Real) - 1;
        __builtin_prefetch(first, 1);
        __builtin_prefetch(last, 1);
    }
}

// A thread's buffers, which it keeps until it ends.
struct ThreadBuffers {
    LineFloats a, b;          // packed panels
    LineFloats accumulators;  // (mr, nr) for each microkernel call of the tile, consecutive
};

// Multiplies one block of K of a tile, from k0 on: runs all its microkernel calls, strip by strip.
// Consecutive calls have consecutive accumulators. With a single block of K, all strips use the same ones,
// and all calls if each stores its own tile.
template <class Units, class Real>
static void multiply_k_block(ThreadBuffers& buffers, const KernelSet& set, const Gemm<Real>& gemm,
                             const Region& tile, size_t k0, float* accumulators) {
    const size_t block = size_t(block_units(set)) * Units::per_unit;
    const int kc = int(std::min(block, gemm.K - k0)), next_kc = int(std::min(block, gemm.K - k0 - kc));
    const KBlock<Real> a = {gemm.a, k0, kc}, b = {gemm.b, k0, kc}, next_b = {gemm.b, k0 + kc, next_kc};
    const int units = round_up(a.template units<Units>(), set.unit_multiple),
              group = group_rows(set, gemm.a.transposed), strip = strip_rows(set, gemm.a.transposed);
    const int calls_per_row = int(ceil_div(tile.columns, set.nr)),
              calls = int(ceil_div(tile.rows, set.mr)) * calls_per_row;
    const bool last = next_kc == 0, single = last && k0 == 0;
    float *a_panel = buffers.a.data(), *b_panel = buffers.b.data();
    pack_b<Units>(b_panel, set, b, tile.column, tile.columns);
    Prefetcher next_columns = last ? Prefetcher() : Prefetcher(next_b, tile.column, tile.columns, calls);
    for (int g = 0; g < tile.rows; g += group) {
        const int rows_here = std::min(group, tile.rows - g),
                  rows_after = std::min(group, tile.rows - g - rows_here);
        const KernelInput from = pack_a<Units>(a_panel, set, a, tile.row + g, rows_here);
        Prefetcher next_rows(a, tile.row + g + rows_here, rows_after,
                             int(ceil_div(rows_here, set.mr)) * calls_per_row);
        // One microkernel call: row i of the group, column j of the tile.
        const auto run = [&](float* sums, int i, int j) {
            const Region part = {tile.row + g + i, tile.column + j, std::min(set.mr, rows_here - i),
                                 std::min(set.nr, tile.columns - j)};
            next_rows.fetch();
            next_columns.fetch();
            if (last) prefetch_tile(gemm.c, part);
            kernel_for(set, part.rows)(sums, {.a = from.a + size_t(i) * from.a_row,
                                              .a_row = from.a_row,
                                              .a_unit = from.a_unit,
                                              .b = b_panel + size_t(units) * j,
                                              .units = units,
                                              .add = k0 > 0});
            if (last && !gemm.c.transposed) store_tile(gemm.c, part, sums, set.nr);
        };
        for (int i = 0; i < rows_here; i += strip)
            for (int j = 0; j < tile.columns; j += set.nr) {
                const Region part = {tile.row + g + i, tile.column + j, std::min(strip, rows_here - i),
                                     std::min(set.nr, tile.columns - j)};
                float* sums = accumulators;
                for (int m = 0; m < part.rows; m += set.mr) {
                    run(sums, i + m, j);
                    if (!single || gemm.c.transposed) sums += set.mr * set.nr;
                }
                if (last && gemm.c.transposed) store_tile(gemm.c, part, accumulators, set.nr);
                if (!single) accumulators = sums;
            }
    }
}

// Computes one tile of the result over all of K.
template <class Units, class Real>
static void compute_tile(ThreadBuffers& buffers, const KernelSet& set, const Gemm<Real>& gemm,
                         const Region& tile) {
    const size_t block = size_t(block_units(set)) * Units::per_unit;
    const size_t rows = size_t(round_up(tile.rows, set.mr)), columns = size_t(round_up(tile.columns, set.nr)),
                 strip = size_t(strip_rows(set, gemm.a.transposed)) * set.nr;
    buffers.a.at_least(size_t(A_STRIDE) * MAX_GROUP);
    buffers.b.at_least(columns * KC);
    float* accumulators = buffers.accumulators.at_least(gemm.K > block ? rows * columns : strip);
    if (set.begin) set.begin();
    for (size_t k0 = 0; k0 < gemm.K; k0 += block)
        multiply_k_block<Units>(buffers, set, gemm, tile, k0, accumulators);
    if (set.end) set.end();
}

struct TileShape {
    size_t rows, columns;
};

// Chooses the tile shape that minimizes the time of the slowest thread. The model counts cycles per unit of
// K: rows * columns multiply-adds at 16 per cycle, and packing at about a third of a cycle for a float that
// is copied, two thirds for one that is transposed.
static TileShape choose_tiles(const KernelSet& set, size_t rows, size_t columns, size_t K, bool transposes,
                              int threads) {
    const size_t max_columns = B_PANEL_UNITS / std::clamp<size_t>(K, 64, size_t(KC)) / set.nr * set.nr,
                 max_accumulators = K > size_t(block_units(set)) ? 768 * 256 : ~size_t(0);
    TileShape best = {};
    double least = 0;
    for (size_t across = ceil_div(columns, max_columns); across <= ceil_div(columns, set.nr); across++) {
        const size_t width = ceil_div(ceil_div(columns, across), set.nr) * set.nr;
        for (size_t down = 1; down <= ceil_div(rows, set.mr); down++) {
            const size_t height = ceil_div(ceil_div(rows, down), set.mr) * set.mr;
            if (height * width > max_accumulators) continue;
            const size_t waves = ceil_div(ceil_div(rows, height) * ceil_div(columns, width), threads);
            const double cycles = double(waves) * (double(height * width) / 16 + 0.3 * double(height) +
                                                   (transposes ? 0.7 : 0.3) * double(width));
            if (!best.rows || cycles < least) {
                best = {height, width};
                least = cycles;
            }
            if (waves > 8) break;
        }
        if (across >= 8 + ceil_div(columns, max_columns)) break;
    }
    return best;
}

template <class Units, class Real>
static void run_tiles(const KernelSet& set, const Gemm<Real>& gemm) {
    const size_t M = gemm.M, N = gemm.N;
    const TileShape shape = choose_tiles(set, M, N, gemm.K, !gemm.b.transposed, omp_get_max_threads());
    const size_t across = ceil_div(N, shape.columns), count = across * ceil_div(M, shape.rows);
#pragma omp parallel for schedule(dynamic)
    for (size_t t = 0; t < count; t++) {
        static thread_local ThreadBuffers buffers;
        const size_t row = t / across * shape.rows, column = t % across * shape.columns;
        const Region tile = {row, column, int(std::min(shape.rows, M - row)),
                             int(std::min(shape.columns, N - column))};
        compute_tile<Units>(buffers, set, gemm, tile);
    }
}

template <class Real>
void gemm_cpu(const Gemm<Real>& gemm) {
    const KernelSet& set = best_kernels<Real>();
    if constexpr (std::is_same_v<Real, bf16>)
        if (set.bf16_pairs) return run_tiles<PairUnits>(set, gemm);
    run_tiles<FloatUnits<Real>>(set, gemm);
}

#define INSTANTIATE(Real) template void gemm_cpu(const Gemm<Real>&);
FOR_EACH_REAL(INSTANTIATE)
