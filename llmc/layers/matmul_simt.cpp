// GEMMs without cooperative matrices, versions 3 and 4, and the bias gradients.
#include "llmc/layers/matmul_simt.h"

#include <algorithm>

#include "llmc/base/ceil_div.h"
#include "llmc/launchpad/packs.h"
#include "shaders/args.h"

template <class Real>
MatmulArgs matmul_args(LaunchPad& pad, const WeightGemm<Real>& g) {
    const size_t M = g.M, N = g.N, K = g.K;
    return {.outp = pad.at(g.out, M * N),
            .a = pad.at(g.a, M * K),
            .b = pad.at(g.weight, N * K),
            .bias = pad.at(g.bias, N),
            .M = g.M,
            .N = g.N,
            .K = g.K,
            .splits = 1,
            .k_per_split = g.K};
}

static RowSplits split_rows(int num_rows, int splits, int multiple) {
    const int rows = int(ceil_div(ceil_div(num_rows, splits), multiple)) * multiple;
    return {int(ceil_div(num_rows, rows)), rows};
}

template <class Real>
MatmulArgs dweight_args(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, float* scratch,
                        RowSplits split) {
    const size_t n = p.num_rows, c = p.C, oc = p.OC;
    return {.outp = pad.at(p.dweight, oc * c),
            .partials = split.splits > 1 ? pad.at(scratch, split.splits * oc * c) : 0,
            .a = pad.at(p.dout, n * oc),
            .b = pad.at(p.inp, n * c),
            .M = p.OC,
            .N = p.C,
            .K = p.num_rows,
            .splits = split.splits,
            .k_per_split = split.rows,
            .accumulate = p.accumulate};
}

template <class Real>
void reduce_partials(LaunchPad& pad, Real* out, const float* partials, size_t n, int splits,
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
void matmul3(LaunchPad& pad, const WeightGemm<Real>& g, Tile tile) {
    dispatch3<Real>(pad, matmul_args(pad, g), tile, g.backward ? BACKWARD : FORWARD);
}

// Enough splits for 1024 workgroups (several per SM of a large GPU, so that the last wave costs little), each
// of at least 128 rows. The numbers decide the order of sums: they do not depend on the device.
RowSplits dweight_splits(int num_rows, int C, int OC, Tile tile) {
    const uint64_t most = std::max<uint64_t>(1024 / count_tiles(tile, OC, C), 1);
    return split_rows(num_rows, int(std::min(most, ceil_div(num_rows, 128))), 8);
}

template <class Real>
void dweight_partials(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, float* scratch,
                      RowSplits split, Tile tile) {
    dispatch3<Real>(pad, dweight_args(pad, p, scratch, split), tile, DWEIGHT);
}

size_t dweight3_floats(int num_rows, int C, int OC) {
    const int splits = std::max(dweight_splits(num_rows, C, OC, MEDIUM_TILE3).splits,
                                dweight_splits(num_rows, C, OC, LARGE_TILE3).splits);
    return splits > 1 ? ceil_div(size_t(splits) * OC * C, 4) * 4 : 0;  // 16-byte accesses
}

template <class Real>
void matmul_dweight3(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, Tile tile) {
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
void matmul4(LaunchPad& pad, const WeightGemm<Real>& g, Tile tile) {
    dispatch4<Real>(pad, matmul_args(pad, g), tile, g.backward ? BACKWARD : FORWARD);
}

template <class Real>
void matmul_dweight4(LaunchPad& pad, const MatmulBackwardParameters<Real>& p, Tile tile) {
    dispatch4<Real>(pad, dweight_args<Real>(pad, p, nullptr, {1, p.num_rows}), tile, DWEIGHT);
}

// The tile of version 3 for a GEMM (M,N), from measurements on a GPU of 132 SMs: the largest of which each SM
// still gets three, or two in one wave; small ones with k_groups if even the medium ones are fewer than SMs.
// The tile decides the order of sums: the numbers do not depend on the device.
Tile choose_tile3(const LaunchPad& pad, uint64_t M, uint64_t N) {
    if (pad.limits().few_registers)
        return count_tiles(LARGE_FRUGAL_TILE3, M, N) >= 132 ? LARGE_FRUGAL_TILE3 : FRUGAL_TILE3;
    const uint64_t large = count_tiles(LARGE_TILE3, M, N);
    if (large >= 384 || (large > 224 && large <= 264)) return LARGE_TILE3;
    return count_tiles(MEDIUM_TILE3, M, N) >= 132 || pad.limits().max_block < 256 ? MEDIUM_TILE3
                                                                                  : SMALL_TILE3;
}

// Split-K multiplies the tiles, so no k_groups are needed.
Tile choose_dweight_tile3(const LaunchPad& pad, int num_rows, int C, int OC) {
    if (pad.limits().few_registers) return FRUGAL_TILE3;
    const uint64_t tiles =
        count_tiles(LARGE_TILE3, OC, C) * dweight_splits(num_rows, C, OC, LARGE_TILE3).splits;
    return tiles >= 512 ? LARGE_TILE3 : MEDIUM_TILE3;
}

// --- bias gradients ---

// A workgroup of matmul_dbias2 takes 32 packs of columns, and 8 rows at a time in each of its lanes.
static const int DBIAS_PACKS = 32, DBIAS_ROWS = 8;

// Enough splits for 2^18 invocations, each of enough rows that none is loaded alone; one split if rows are so
// few that a second kernel would take longer.
template <class Real>
RowSplits dbias_splits(int num_rows, int OC, int block_size) {
    if (num_rows <= 1024) return {1, num_rows};
    const uint64_t across = ceil_div(OC, DBIAS_PACKS * 16 / sizeof(Real)), wanted = (1 << 18) / block_size;
    return split_rows(num_rows, int(std::max<uint64_t>(wanted / across, 1)),
                      DBIAS_ROWS * block_size / DBIAS_PACKS);
}

template <class Real>
void dbias_partials(LaunchPad& pad, const MatmulDbias<Real>& p, float* scratch, RowSplits split,
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
void matmul_dbias2(LaunchPad& pad, const MatmulDbias<Real>& p, int block_size) {
    const RowSplits split = dbias_splits<Real>(p.num_rows, p.OC, block_size);
    float* scratch = pad.scratch(Scratch::parameters, size_t(split.splits) * p.OC);
    dbias_partials(pad, p, scratch, split, block_size);
    pad.barrier();
    reduce_partials(pad, p.dbias, scratch, p.OC, split.splits, true);
}

#define INSTANTIATE(Real)                                                                                   \
    template void reduce_partials(LaunchPad&, Real*, const float*, size_t, int, bool);                      \
    template MatmulArgs matmul_args(LaunchPad&, const WeightGemm<Real>&);                                   \
    template MatmulArgs dweight_args(LaunchPad&, const MatmulBackwardParameters<Real>&, float*, RowSplits); \
    template void matmul3(LaunchPad&, const WeightGemm<Real>&, Tile);                                       \
    template void matmul4(LaunchPad&, const WeightGemm<Real>&, Tile);                                       \
    template void matmul_dweight3(LaunchPad&, const MatmulBackwardParameters<Real>&, Tile);                 \
    template void matmul_dweight4(LaunchPad&, const MatmulBackwardParameters<Real>&, Tile);                 \
    template void dweight_partials(LaunchPad&, const MatmulBackwardParameters<Real>&, float*, RowSplits,    \
                                   Tile);                                                                   \
    template void matmul_dbias2(LaunchPad&, const MatmulDbias<Real>&, int);                                 \
    template RowSplits dbias_splits<Real>(int, int, int);                                                   \
    template void dbias_partials(LaunchPad&, const MatmulDbias<Real>&, float*, RowSplits, int);
FOR_EACH_REAL(INSTANTIATE)
