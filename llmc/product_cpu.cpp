// Matrix products on the CPU. A thread takes a tile of the result; for a stretch of K it packs its columns of
// b into panels, in the order in which the kernel reads them, and they stay in the second cache; then panel
// by panel of the rows of a, which stay in the first, the kernel keeps MR x NR sums in vector registers (Goto
// and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008). It multiplies a number of a,
// broadcast, with vectors of b: so rows of a are merely copied, whatever their order, and only a b that is
// not k_major is transposed. CMakeLists.txt allows fused multiply-adds in this file.
//
// Panels consist of units of 32 bits: a float, or a pair of bf16 that follow each other in K, for the
// instructions that multiply pairs (AVX512_BF16, AMX and Arm's BF16; they take subnormal numbers for zeros).
// AMX multiplies blocks of units and has no broadcast: rows of a must be consecutive for it, so that a
// k_major a is transposed.
#include "llmc/product_cpu.h"

#include <omp.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "llmc/launchpad.h"
#include "llmc/product_kernels.h"

static constexpr int STRETCH = 384;  // units of K packed at a time
static constexpr int ROW_STRIDE =
    STRETCH + 16;  // of a's rows in their panel: lines of different sets of the cache
static constexpr int PANEL_UNITS = 1 << 17;  // that b's panels hold: half a megabyte, for the second cache

// dst (ceil(rows / 2), n): pairs of what lies in two rows; a last row without another pairs with zeros.
SIMD_CLONES static void interleave(float* dst, size_t dst_ld, const bf16* src, size_t ld, int rows, int n) {
    for (int i = 0; i < rows; i += 2, dst += dst_ld, src += 2 * ld) {
        const bf16* second = i + 1 < rows ? src + ld : src;
        const uint32_t keep = i + 1 < rows ? ~0u : 0;
#pragma omp simd
        for (int j = 0; j < n; j++)
            dst[j] = std::bit_cast<float>(uint32_t(src[j].bits) | (uint32_t(second[j].bits) << 16 & keep));
    }
}

// How a stretch of an operand becomes units: elements, or pairs of them.
template <class T>
struct Elements {
    static constexpr int per_unit = 1;
    // Units of a row that is consecutive in K: four of them, one.
    static Float4 four(const T* row, int u) { return load4(row + u); }
    static float one(const T* row, int u, int) { return float(row[u]); }
    // kc elements of each of `rows` rows, dst_ld apart.
    static void along(float* dst, size_t dst_ld, const T* src, size_t ld, int rows, int kc) {
        copy_to_floats(dst, dst_ld, src, ld, rows, kc);
    }
    // n columns of a k_major operand: dst (kc, n).
    static void across(float* dst, size_t dst_ld, const T* src, size_t ld, int kc, int n) {
        copy_to_floats(dst, dst_ld, src, ld, kc, n);
    }
    static bool lie_ready(int) { return std::is_same_v<T, float>; }
};

struct Pairs {
    static constexpr int per_unit = 2;
    static Float4 four(const bf16* row, int u) {
        Float4 v;
        memcpy(&v, row + 2 * u, sizeof v);
        return v;
    }
    static float one(const bf16* row, int u, int kc) {
        const uint32_t second = 2 * u + 1 < kc ? row[2 * u + 1].bits : 0;
        return std::bit_cast<float>(row[2 * u].bits | second << 16);
    }
    static void along(float* dst, size_t dst_ld, const bf16* src, size_t ld, int rows, int kc) {
        for (int i = 0; i < rows; i++, dst += dst_ld, src += ld) {
            memcpy(dst, src, size_t(kc / 2) * sizeof(float));
            if (kc % 2) dst[kc / 2] = one(src, kc / 2, kc);
        }
    }
    static void across(float* dst, size_t dst_ld, const bf16* src, size_t ld, int kc, int n) {
        interleave(dst, dst_ld, src, ld, kc, n);
    }
    static bool lie_ready(int kc) { return kc % 2 == 0; }
};

// A stretch of K of an operand: from k0 on, kc elements.
template <class T>
struct Stretch {
    Operand<T> x;
    size_t k0;
    int kc;

    const T* at(size_t row) const { return x.k_major ? x.p + k0 * x.ld + row : x.p + row * x.ld + k0; }
    template <class Units>
    int units() const {
        return (kc + Units::per_unit - 1) / Units::per_unit;
    }
};

// Where the kernel finds rows of a, and how far apart in bytes.
struct Rows {
    const char* p;
    size_t row, unit;
};

// Rows of a that are packed at a time: where a is k_major, so many that whole cache lines are read.
static constexpr int MAX_GROUP = 64;
static int group_rows(int mr, bool k_major) { return k_major ? std::min(4 * mr, MAX_GROUP) : mr; }

// Rows of a k_major operand, turned so that each is consecutive: dst (rows, ROW_STRIDE). What fills up their
// last block of units is zero.
template <class Units, class T>
static void turn_rows(float* dst, const Stretch<T>& s, size_t row, int rows) {
    constexpr int SOME = 16;  // units at a time, which stay in the first cache: whole blocks
    float across[SOME * MAX_GROUP];
    const T* src = s.at(row);
    for (int k = 0; k < s.kc; k += SOME * Units::per_unit, dst += SOME) {
        const int kc = std::min(SOME * Units::per_unit, s.kc - k);
        if (kc < SOME * Units::per_unit || rows % 4) std::fill_n(across, SOME * MAX_GROUP, 0.0f);
        Units::across(across, MAX_GROUP, src + k * s.x.ld, s.x.ld, kc, rows);
        for (int i = 0; i < rows; i += 4)
            for (int u = 0; u < SOME; u += 4) {
                const float* from = across + u * MAX_GROUP + i;
                const Float4 r[4] = {load4(from), load4(from + MAX_GROUP), load4(from + 2 * MAX_GROUP),
                                     load4(from + 3 * MAX_GROUP)};
                transpose4(dst + size_t(i) * ROW_STRIDE + u, ROW_STRIDE, r);
            }
    }
}

// A group of `rows` rows of a: (STRETCH, group_rows()) where it is k_major and the kernel reads columns; else
// consecutive rows, which the kernel reads from where they lie if they hold units, in whole blocks, and their
// lines do not crowd in a few sets of the cache. What is missing, rows and units, is zero.
template <class Units, class T>
static Rows pack_rows(float* dst, const KernelSet& set, const Stretch<T>& s, size_t row, int rows) {
    const T* src = s.at(row);
    const size_t stride = s.x.ld * sizeof(T);
    const int units = s.template units<Units>(), units_read = round_up(units, set.block);
    if (s.x.k_major && set.block == 1) {
        const int width = group_rows(set.mr, true);
        if (rows % set.mr) std::fill_n(dst, size_t(STRETCH) * width, 0.0f);
        Units::across(dst, width, src, s.x.ld, s.kc, rows);
        return {reinterpret_cast<const char*>(dst), sizeof(float), width * sizeof(float)};
    }
    if (s.x.k_major) {
        turn_rows<Units>(dst, s, row, rows);
    } else {
        if (Units::lie_ready(s.kc) && units == units_read && stride % 2048 && rows % set.step == 0)
            return {reinterpret_cast<const char*>(src), stride, sizeof(float)};
        Units::along(dst, ROW_STRIDE, src, s.x.ld, rows, s.kc);
        for (int i = 0; i < rows && units < units_read; i++)
            std::fill_n(dst + size_t(i) * ROW_STRIDE + units, units_read - units, 0.0f);
    }
    for (int i = rows; i % set.step; i++) std::fill_n(dst + size_t(i) * ROW_STRIDE, STRETCH, 0.0f);
    return {reinterpret_cast<const char*>(dst), ROW_STRIDE * sizeof(float), sizeof(float)};
}

// A panel of b that is not k_major, transposed: (units, nr).
template <class Units, class T>
static void transpose_panel(float* dst, int nr, const Stretch<T>& s, size_t column, int columns) {
    const T* src = s.at(column);
    const size_t ld = s.x.ld;
    const int units = s.template units<Units>(), whole = s.kc / Units::per_unit / 4 * 4,
              whole_columns = columns / 4 * 4;
    for (int u = 0; u < whole; u += 4)
        for (int c = 0; c < whole_columns; c += 4) {
            const T* x = src + c * ld;
            const Float4 r[4] = {Units::four(x, u), Units::four(x + ld, u), Units::four(x + 2 * ld, u),
                                 Units::four(x + 3 * ld, u)};
            transpose4(dst + size_t(u) * nr + c, nr, r);
        }
    for (int c = 0; c < columns; c++)
        for (int u = c < whole_columns ? whole : 0; u < units; u++)
            dst[size_t(u) * nr + c] = Units::one(src + c * ld, u, s.kc);
    if (columns < nr)
        for (int u = 0; u < units; u++)
            std::fill(dst + size_t(u) * nr + columns, dst + size_t(u + 1) * nr, 0.0f);
}

// All panels of a tile's columns, one after the other; what fills up the last block of units is zero.
template <class Units, class T>
static void pack_columns(float* dst, const KernelSet& set, const Stretch<T>& s, size_t column, int columns) {
    const int units = s.template units<Units>(), units_read = round_up(units, set.block), nr = set.nr;
    for (int c = 0; c < columns; c += nr) {
        const int n = std::min(nr, columns - c);
        float* panel = dst + size_t(c) * units_read;
        if (!s.x.k_major) {
            transpose_panel<Units>(panel, nr, s, column + c, n);
        } else {
            if (n < nr) std::fill_n(panel, size_t(units) * nr, 0.0f);
            Units::across(panel, nr, s.at(column) + c, s.x.ld, s.kc, n);
        }
        std::fill_n(panel + size_t(units) * nr, size_t(units_read - units) * nr, 0.0f);
    }
}

// What is to be packed next, on its way from memory while the kernel works: each call asks for a share of its
// lines.
struct Ahead {
    const char* next = nullptr;
    size_t gap = 0;  // bytes from the end of a row's lines to the next row
    int rows = 0, lines = 0, line = 0, share = 0;

    Ahead() = default;
    template <class T>
    Ahead(const Stretch<T>& s, size_t first, int count, int calls)
        : next(reinterpret_cast<const char*>(s.at(first))),
          rows(s.x.k_major ? s.kc : count),
          lines(int(blocks((s.x.k_major ? count : s.kc) * sizeof(T), 64))),
          share(int(blocks(size_t(rows) * lines, calls))) {
        gap = s.x.ld * sizeof(T) - size_t(lines) * 64;
    }
    void fetch() {
        for (int n = 0; n < share && rows > 0; n++, next += 64) {
            __builtin_prefetch(next, 0, 2);
            if (++line == lines) line = 0, next += gap, rows--;
        }
    }
};

// The part of a result that a kernel call has computed.
struct Part {
    size_t row, column;
    int rows, columns;
};

// With `add`, first tile += dst, in a loop of its own: no load has to wait for a store that may or may not be
// to its address.
template <class T>
static inline __attribute__((always_inline)) void store_columns(T* dst, size_t ld, float* tile, int nr,
                                                                int rows, int columns, bool add) {
    if (add)
        for (int i = 0; i < rows; i++)
#pragma omp simd
            for (int j = 0; j < columns; j++) tile[i * nr + j] += float(dst[i * ld + j]);
    for (int i = 0; i < rows; i++)
#pragma omp simd
        for (int j = 0; j < columns; j++) dst[i * ld + j] = round_to<T>(tile[i * nr + j]);
}
template <class T>
static inline void store_rows(T* dst, size_t ld, float* tile, int nr, const Part& part, bool add) {
    if (part.columns == 32) return store_columns(dst, ld, tile, nr, part.rows, 32, add);  // constants are
    if (part.columns == 12) return store_columns(dst, ld, tile, nr, part.rows, 12, add);  // quicker
    store_columns(dst, ld, tile, nr, part.rows, part.columns, add);
}
SIMD_CLONES static void store(float* dst, size_t ld, float* tile, int nr, const Part& part, bool add) {
    store_rows(dst, ld, tile, nr, part, add);
}
SIMD_CLONES static void store(bf16* dst, size_t ld, float* tile, int nr, const Part& part, bool add) {
    store_rows(dst, ld, tile, nr, part, add);
}
SIMD_CLONES static void store(fp16* dst, size_t ld, float* tile, int nr, const Part& part, bool add) {
    store_rows(dst, ld, tile, nr, part, add);
}

// tile (mr, nr) with a bias for each of `rows` rows, transposed: dst (nr, ld).
static void turn_tile(float* dst, int ld, const float* tile, int nr, int rows, const float* bias) {
    for (int i = 0; i < rows; i += 4)
        for (int j = 0; j < nr; j += 4) {
            Float4 r[4] = {};
            for (int k = 0; k < std::min(4, rows - i); k++)
                r[k] = load4(tile + (i + k) * nr + j) + bias[i + k];
            transpose4(dst + j * ld + i, ld, r);
        }
}

// tile (mr, nr) to where it belongs.
template <class T>
static void store_tile(const Result<T>& result, const Part& part, float* tile, const KernelSet& set) {
    float bias[MAX_MR] = {}, turned[MAX_NR * MAX_MR];
    if (!result.transposed && !result.bias)
        return store(result.p + part.row * result.ld + part.column, result.ld, tile, set.nr, part,
                     result.add);
    for (int i = 0; i < part.rows && result.bias; i++) bias[i] = float(result.bias[part.row + i]);
    if (result.transposed) {
        const int ld = round_up(set.mr, 4);
        turn_tile(turned, ld, tile, set.nr, part.rows, bias);
        return store(result.p + part.column * result.ld + part.row, result.ld, turned, ld,
                     {part.column, part.row, part.columns, part.rows}, result.add);
    }
    for (int i = 0; i < part.rows; i++)
        for (int j = 0; j < set.nr; j++) turned[i * set.nr + j] = tile[i * set.nr + j] + bias[i];
    store(result.p + part.row * result.ld + part.column, result.ld, turned, set.nr, part, result.add);
}

// Memory may take its time to bring the lines that a tile is written to.
template <class T>
static void prefetch_tile(const Result<T>& result, const Part& part) {
    const bool turned = result.transposed;
    const size_t row = turned ? part.column : part.row, column = turned ? part.row : part.column;
    const int rows = turned ? part.columns : part.rows, columns = turned ? part.rows : part.columns;
    for (int i = 0; i < rows; i++) {
        const char* first = reinterpret_cast<const char*>(result.p + (row + i) * result.ld + column);
        const char* last = first + size_t(columns) * sizeof(T) - 1;
        __builtin_prefetch(first, 1);
        __builtin_prefetch(last, 1);
    }
}

// What a thread needs; each keeps its own until it ends.
struct TileMemory {
    LineFloats a, b, sums;  // panels of rows, of columns; sums so far, a kernel call's after the other's
};

template <class T>
struct Product {
    const KernelSet& set;
    const Result<T>& result;
    const Operand<T>&a, &b;
    size_t K;
};

// A stretch of K of one tile: all of its kernel calls. `next`: the following stretch of b.
template <class Units, class T>
static void add_stretch(TileMemory& memory, const Product<T>& x, const Part& tile, const Stretch<T>& of_a,
                        const Stretch<T>& of_b, const Stretch<T>& next, float* sums, size_t sums_step) {
    const KernelSet& set = x.set;
    const int units = round_up(of_a.template units<Units>(), set.block),
              group = group_rows(set.mr, x.a.k_major);
    const int calls_each = int(blocks(tile.columns, set.nr)),
              calls = int(blocks(tile.rows, set.mr)) * calls_each;
    const bool last = of_a.k0 + of_a.kc == x.K;
    float *a_panels = memory.a.data(), *b_panels = memory.b.data();
    pack_columns<Units>(b_panels, set, of_b, tile.column, tile.columns);
    Ahead next_columns = next.kc ? Ahead(next, tile.column, tile.columns, calls) : Ahead();
    for (int g = 0; g < tile.rows; g += group) {
        const int rows_here = std::min(group, tile.rows - g),
                  rows_after = std::min(group, tile.rows - g - rows_here);
        const Rows from = pack_rows<Units>(a_panels, set, of_a, tile.row + g, rows_here);
        Ahead next_rows(of_a, tile.row + g + rows_here, rows_after,
                        int(blocks(rows_here, set.mr)) * calls_each);
        for (int i = 0; i < rows_here; i += set.mr) {
            const int rows = std::min(set.mr, rows_here - i);
            Kernel* kernel = kernel_for(set, rows);
            KernelInput in = {
                from.p + size_t(i) * from.row, from.row, from.unit, b_panels, units, of_a.k0 > 0};
            for (int j = 0; j < tile.columns;
                 j += set.nr, sums += sums_step, in.b += size_t(units) * set.nr) {
                const Part part = {tile.row + g + i, tile.column + j, rows,
                                   std::min(set.nr, tile.columns - j)};
                next_rows.fetch();
                next_columns.fetch();
                if (last) prefetch_tile(x.result, part);
                kernel(sums, in);
                if (last) store_tile(x.result, part, sums, set);
            }
        }
    }
}

// One tile of the result over all of K.
template <class Units, class T>
static void compute_tile(TileMemory& memory, const Product<T>& x, const Part& tile) {
    const size_t stretch = size_t(STRETCH) * Units::per_unit, mr = x.set.mr, nr = x.set.nr,
                 columns = size_t(round_up(tile.columns, x.set.nr));
    memory.a.at_least(size_t(ROW_STRIDE) * MAX_GROUP);
    memory.b.at_least(columns * STRETCH);
    const size_t sums_step =
        x.K > stretch ? mr * nr : 0;  // sums need no memory but one call's if it does all of K
    float* sums = memory.sums.at_least(sums_step ? size_t(round_up(tile.rows, x.set.mr)) * columns : mr * nr);
    if (x.set.begin) x.set.begin();
    for (size_t k0 = 0; k0 < x.K; k0 += stretch) {
        const int kc = int(std::min(stretch, x.K - k0)), next_kc = int(std::min(stretch, x.K - k0 - kc));
        add_stretch<Units>(memory, x, tile, Stretch<T>{x.a, k0, kc}, Stretch<T>{x.b, k0, kc},
                           Stretch<T>{x.b, k0 + kc, next_kc}, sums, sums_step);
    }
    if (x.set.end) x.set.end();
}

struct TileShape {
    size_t rows, columns;
};

// The shape with which the slowest thread is done first. Cycles of a unit of K: rows * columns multiply-adds,
// 16 at a time, and packing: about a third of a cycle for a float copied, two thirds for one that is
// transposed.
static TileShape choose_tiles(const KernelSet& set, size_t rows, size_t columns, size_t K, bool transposes,
                              int threads) {
    const size_t most_columns = PANEL_UNITS / std::clamp<size_t>(K, 64, STRETCH) / set.nr * set.nr,
                 most_sums = K > STRETCH ? 768 * 256 : ~size_t(0);
    TileShape best = {};
    double least = 0;
    for (size_t across = blocks(columns, most_columns); across <= blocks(columns, set.nr); across++) {
        const size_t width = blocks(blocks(columns, across), set.nr) * set.nr;
        for (size_t down = 1; down <= blocks(rows, set.mr); down++) {
            const size_t height = blocks(blocks(rows, down), set.mr) * set.mr;
            if (height * width > most_sums) continue;
            const size_t rounds = blocks(blocks(rows, height) * blocks(columns, width), threads);
            const double cycles = double(rounds) * (double(height * width) / 16 + 0.3 * double(height) +
                                                    (transposes ? 0.7 : 0.3) * double(width));
            if (!best.rows || cycles < least) {
                best = {height, width};
                least = cycles;
            }
            if (rounds > 8) break;
        }
        if (across >= 8 + blocks(columns, most_columns)) break;
    }
    return best;
}

template <class Units, class T>
static void run_product(const KernelSet& set, const Result<T>& result, const Operand<T>& a,
                        const Operand<T>& b, size_t rows, size_t columns, size_t K) {
    const TileShape shape = choose_tiles(set, rows, columns, K, !b.k_major, omp_get_max_threads());
    const size_t across = blocks(columns, shape.columns), count = across * blocks(rows, shape.rows);
#pragma omp parallel for schedule(dynamic)
    for (size_t t = 0; t < count; t++) {
        static thread_local TileMemory memory;
        const size_t row = t / across * shape.rows, column = t % across * shape.columns;
        const Part tile = {row, column, int(std::min(shape.rows, rows - row)),
                           int(std::min(shape.columns, columns - column))};
        compute_tile<Units>(memory, Product<T>{set, result, a, b, K}, tile);
    }
}

// Products of so few columns, as when text is generated, are bound by reading a: it streams through, and no
// tile is filled with columns that do not exist.
static const size_t FEW_COLUMNS = 4;
static const int DOT_ROWS = 4;

// sums[i] = row i of a times b, for DOT_ROWS rows, of which those past `rows` repeat the last.
template <class T>
static inline void dot_rows(float* sums, const T* a, size_t ld, const float* b, int rows, size_t K) {
    const T *a0 = a, *a1 = a + size_t(std::min(1, rows - 1)) * ld,
            *a2 = a + size_t(std::min(2, rows - 1)) * ld, *a3 = a + size_t(std::min(3, rows - 1)) * ld;
    float sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
#pragma omp simd reduction(+ : sum0, sum1, sum2, sum3)
    for (size_t k = 0; k < K; k++) {
        sum0 += float(a0[k]) * b[k];
        sum1 += float(a1[k]) * b[k];
        sum2 += float(a2[k]) * b[k];
        sum3 += float(a3[k]) * b[k];
    }
    const float all[DOT_ROWS] = {sum0, sum1, sum2, sum3};
    memcpy(sums, all, sizeof all);
}
SIMD_CLONES static void dots(float* sums, const float* a, size_t ld, const float* b, int rows, size_t K) {
    dot_rows(sums, a, ld, b, rows, K);
}
SIMD_CLONES static void dots(float* sums, const bf16* a, size_t ld, const float* b, int rows, size_t K) {
    dot_rows(sums, a, ld, b, rows, K);
}
SIMD_CLONES static void dots(float* sums, const fp16* a, size_t ld, const float* b, int rows, size_t K) {
    dot_rows(sums, a, ld, b, rows, K);
}

template <class T>
static void run_few_columns(const Result<T>& result, const Operand<T>& a, const Operand<T>& b, size_t rows,
                            size_t columns, size_t K) {
    std::vector<float> b_floats(columns * K);
    copy_to_floats(b_floats.data(), K, b.p, b.ld, int(columns), int(K));
#pragma omp parallel for
    for (size_t row = 0; row < rows; row += DOT_ROWS)
        for (size_t column = 0; column < columns; column++) {
            float sums[DOT_ROWS];
            const int count = int(std::min<size_t>(DOT_ROWS, rows - row));
            dots(sums, a.p + row * a.ld, a.ld, b_floats.data() + column * K, count, K);
            for (size_t i = 0; i < size_t(count); i++) {
                T& to =
                    result
                        .p[result.transposed ? column * result.ld + row + i : (row + i) * result.ld + column];
                const float bias = result.bias ? float(result.bias[row + i]) : 0.0f;
                to = T((result.add ? float(to) : 0.0f) + sums[i] + bias);
            }
        }
}

template <class T>
void product_cpu(const Result<T>& result, const Operand<T>& a, const Operand<T>& b, size_t rows,
                 size_t columns, size_t K) {
    if (columns <= FEW_COLUMNS && !a.k_major && !b.k_major)
        return run_few_columns(result, a, b, rows, columns, K);
    const KernelSet& set = best_kernels<T>();
    if constexpr (std::is_same_v<T, bf16>)
        if (set.pairs) return run_product<Pairs>(set, result, a, b, rows, columns, K);
    run_product<Elements<T>>(set, result, a, b, rows, columns, K);
}

#define INSTANTIATE(T) \
    template void product_cpu(const Result<T>&, const Operand<T>&, const Operand<T>&, size_t, size_t, size_t);
FOR_EACH_REAL(INSTANTIATE)
