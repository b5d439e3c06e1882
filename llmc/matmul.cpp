// Matrix products of the linear layers: GPU versions, their tables, and the choice that training makes. The
// CPU versions are in matmul_cpu.cpp.
#include "llmc/matmul.h"

#include <algorithm>
#include <optional>

#include "llmc/gelu.h"
#include "llmc/matmul_matrix.h"
#include "llmc/packs.h"
#include "shaders/args.h"

template <class T>
static MatmulForwardArgs forward_args(LaunchPad& pad, T* out, const T* inp, const T* weight, const T* bias,
                                      int N, int C, int OC) {
    const size_t n = N, c = C, oc = OC;
    return {pad.at(out, n * oc), pad.at(inp, n * c), pad.at(weight, oc * c), pad.at(bias, oc), N, C, OC};
}

template <class T>
static MatmulDinpArgs dinp_args(LaunchPad& pad, T* dinp, const T* dout, const T* weight, int N, int C,
                                int OC) {
    const size_t n = N, c = C, oc = OC;
    return {pad.at(dinp, n * c), pad.at(dout, n * oc), pad.at(weight, oc * c), N, C, OC};
}

static Work product_work(int N, int C, int OC) { return {.flops = 2.0 * N * C * OC}; }

// Rows cut into slices, so that a product which sums over many rows has work for every part of the device.
struct Slices {
    int count, rows;
};

static Slices cut_rows(int N, int count, int multiple) {
    const int rows = int(blocks(blocks(N, count), multiple)) * multiple;
    return {int(blocks(N, rows)), rows};
}

template <class T>
static MatmulDweightArgs dweight_args(LaunchPad& pad, T* dweight, float* scratch, const T* dout, const T* inp,
                                      int N, int C, int OC, bool accumulate, Slices slices) {
    const size_t n = N, c = C, oc = OC;
    const uint64_t partials = slices.count > 1 ? pad.at(scratch, slices.count * oc * c) : 0;
    return {pad.at(dweight, oc * c),
            partials,
            pad.at(dout, n * oc),
            pad.at(inp, n * c),
            N,
            C,
            OC,
            slices.count,
            slices.rows,
            accumulate};
}

template <class T>
static MatmulDbiasArgs dbias_args(LaunchPad& pad, T* dbias, float* scratch, const T* dout, int N, int OC,
                                  Slices slices) {
    const size_t n = N, oc = OC;
    const uint64_t partials = slices.count > 1 ? pad.at(scratch, slices.count * oc) : 0;
    return {pad.at(dbias, oc), partials, pad.at(dout, n * oc), N, OC, slices.count, slices.rows};
}

// out (n) = the sum of `count` partial results, or += that; nothing to do for one, which its kernel has
// brought there itself.
template <class T>
static void add_partials(LaunchPad& pad, T* out, const float* partials, size_t n, int count,
                         bool accumulate) {
    if (count == 1) return;
    MatmulSumArgs args = {pad.at(out, n), pad.at(partials, n * count), int(n), count, accumulate};
    const bool aligned = args.partials % 16 == 0;
    const uint32_t width = aligned ? pack_width<T>(n, {args.outp}) : 1, block = 256;
    const uint32_t lanes = count < 64 ? 1 : 32;  // a few columns of many slices: dbias
    pad.dispatch<T>("matmul_sum", {blocks(n / width, block / lanes)}, {block, width, lanes}, args,
                    {.bytes = double(n) * (4.0 * count + (accumulate ? 2.0 : 1.0) * sizeof(T))});
}

template <class T>
static void matmul_forward1(LaunchPad& pad, T* out, const T* inp, const T* weight, const T* bias, int N,
                            int C, int OC, int block_size) {
    MatmulForwardArgs args = forward_args(pad, out, inp, weight, bias, N, C, OC);
    pad.dispatch<T>("matmul_forward1", {blocks(uint64_t(N) * OC, block_size)}, {uint32_t(block_size)}, args,
                    product_work(N, C, OC));
}

template <class T>
static void matmul_dinp1(LaunchPad& pad, T* dinp, const T* dout, const T* weight, int N, int C, int OC,
                         int block_size) {
    MatmulDinpArgs args = dinp_args(pad, dinp, dout, weight, N, C, OC);
    pad.dispatch<T>("matmul_dinp1", {blocks(uint64_t(N) * C, block_size)}, {uint32_t(block_size)}, args,
                    product_work(N, C, OC));
}

template <class T>
static void matmul_dweight1(LaunchPad& pad, T* dweight, float* scratch, const T* dout, const T* inp, int N,
                            int C, int OC, bool accumulate, int block_size) {
    MatmulDweightArgs args = dweight_args(pad, dweight, scratch, dout, inp, N, C, OC, accumulate, {1, N});
    pad.dispatch<T>("matmul_dweight1", {blocks(uint64_t(OC) * C, block_size)}, {uint32_t(block_size)}, args,
                    product_work(N, C, OC));
}

template <class T>
static void matmul_dbias1(LaunchPad& pad, T* dbias, float* scratch, const T* dout, int N, int OC,
                          int block_size) {
    MatmulDbiasArgs args = dbias_args(pad, dbias, scratch, dout, N, OC, {1, N});
    pad.dispatch<T>("matmul_dbias1", {blocks(OC, block_size)}, {uint32_t(block_size)}, args,
                    moves<T>(double(N) * OC));
}

// Version 2: a tile of block_size elements; its side is a specialization constant.
static uint32_t tile_side(int block_size) { return block_size >= 256 ? 16 : 8; }

template <class T>
static void matmul_forward2(LaunchPad& pad, T* out, const T* inp, const T* weight, const T* bias, int N,
                            int C, int OC, int block_size) {
    MatmulForwardArgs args = forward_args(pad, out, inp, weight, bias, N, C, OC);
    const uint32_t side = tile_side(block_size);
    pad.dispatch<T>("matmul_forward2", {blocks(N, side) * blocks(OC, side)}, {uint32_t(block_size), side},
                    args, product_work(N, C, OC));
}

template <class T>
static void matmul_dinp2(LaunchPad& pad, T* dinp, const T* dout, const T* weight, int N, int C, int OC,
                         int block_size) {
    MatmulDinpArgs args = dinp_args(pad, dinp, dout, weight, N, C, OC);
    const uint32_t side = tile_side(block_size);
    pad.dispatch<T>("matmul_dinp2", {blocks(N, side) * blocks(C, side)}, {uint32_t(block_size), side}, args,
                    product_work(N, C, OC));
}

template <class T>
static void matmul_dweight2(LaunchPad& pad, T* dweight, float* scratch, const T* dout, const T* inp, int N,
                            int C, int OC, bool accumulate, int block_size) {
    MatmulDweightArgs args = dweight_args(pad, dweight, scratch, dout, inp, N, C, OC, accumulate, {1, N});
    const uint32_t side = tile_side(block_size);
    pad.dispatch<T>("matmul_dweight2", {blocks(OC, side) * blocks(C, side)}, {uint32_t(block_size), side},
                    args, product_work(N, C, OC));
}

// Version 3: the tile of a workgroup, the rows of an invocation (its columns are 8), and the teams among
// which K is divided. Large tiles read least; small ones, with teams, fill a large GPU where the product is
// small.
struct Shape3 {
    int block_size, rows, columns, rows_each, teams;
};
static const Shape3 shapes3[] = {{128, 128, 128, 16, 1}, {64, 64, 64, 8, 1}, {256, 32, 64, 8, 8}};

static const Shape3& shape3(int block_size) {
    for (const Shape3& shape : shapes3)
        if (shape.block_size == block_size) return shape;
    fail("matmul version 3 has no block size %d", block_size);
}

static uint64_t tiles3(const Shape3& s, uint64_t M, uint64_t N) {
    return blocks(M, s.rows) * blocks(N, s.columns);
}

// Whether the kernel may access four elements at a time: every row of every tensor is aligned to that. Null
// is fine.
template <class T>
static bool wide(int C, int OC, std::initializer_list<uint64_t> addresses) {
    return OC % 4 == 0 && pack_width<T>(C, addresses) == 4;
}

// Whether tiles of a product (M,N) over K fill it exactly; a team takes 8 of K at a time.
static bool exact(const Shape3& s, int M, int N, int K) {
    return M % s.rows == 0 && N % s.columns == 0 && K % (8 * s.teams) == 0;
}

// Runs `kernel`, whose product is (M,N) over K, in `slices` of K.
template <class T, class Args>
static void dispatch3(LaunchPad& pad, const char* kernel, const Shape3& s, const Args& args, bool is_wide,
                      int M, int N, int K, int slices = 1) {
    const uint32_t guarded = !is_wide || !exact(s, M, N, K);
    pad.dispatch<T>(kernel, {tiles3(s, M, N) * slices},
                    {uint32_t(s.block_size), uint32_t(args.C), uint32_t(args.OC), is_wide, guarded,
                     uint32_t(s.rows), uint32_t(s.columns), uint32_t(s.rows_each), uint32_t(s.teams)},
                    args, product_work(args.N, args.C, args.OC));
}

template <class T>
static void matmul_forward3(LaunchPad& pad, T* out, const T* inp, const T* weight, const T* bias, int N,
                            int C, int OC, int block_size) {
    MatmulForwardArgs args = forward_args(pad, out, inp, weight, bias, N, C, OC);
    const bool is_wide = wide<T>(C, OC, {args.outp, args.inp, args.weight, args.bias});
    dispatch3<T>(pad, "matmul_forward3", shape3(block_size), args, is_wide, N, OC, C);
}

template <class T>
static void matmul_dinp3(LaunchPad& pad, T* dinp, const T* dout, const T* weight, int N, int C, int OC,
                         int block_size) {
    MatmulDinpArgs args = dinp_args(pad, dinp, dout, weight, N, C, OC);
    const bool is_wide = wide<T>(C, OC, {args.dinp, args.dout, args.weight});
    dispatch3<T>(pad, "matmul_dinp3", shape3(block_size), args, is_wide, N, C, OC);
}

// As many slices as give 1024 workgroups (several for each multiprocessor of a large GPU, so that the last
// round costs little), each of 128 rows at least.
static Slices dweight_slices(int N, int C, int OC, int block_size) {
    const Shape3& s = shape3(block_size);
    const uint64_t most = std::max<uint64_t>(1024 / tiles3(s, OC, C), 1);
    return cut_rows(N, int(std::min(most, blocks(N, 128))), 8);
}

// The first half of version 3; add_partials() is the second.
template <class T>
static Slices dweight_partials(LaunchPad& pad, T* dweight, float* scratch, const T* dout, const T* inp, int N,
                               int C, int OC, bool accumulate, int block_size) {
    const Slices slices = dweight_slices(N, C, OC, block_size);
    MatmulDweightArgs args = dweight_args(pad, dweight, scratch, dout, inp, N, C, OC, accumulate, slices);
    const bool is_wide = wide<T>(C, OC, {args.dweight, args.partials, args.dout, args.inp});
    dispatch3<T>(pad, "matmul_dweight3", shape3(block_size), args, is_wide, OC, C, N, slices.count);
    return slices;
}

template <class T>
static void matmul_dweight3(LaunchPad& pad, T* dweight, float* scratch, const T* dout, const T* inp, int N,
                            int C, int OC, bool accumulate, int block_size) {
    const Slices slices =
        dweight_partials(pad, dweight, scratch, dout, inp, N, C, OC, accumulate, block_size);
    pad.barrier();
    add_partials(pad, dweight, scratch, size_t(OC) * C, slices.count, accumulate);
}

// Version 4: workgroups for a product (M,N), 16 rows by 8 columns to an invocation.
static Groups groups4(int M, int N, int block_size) {
    return {blocks(M, 16) * blocks(N, uint64_t(block_size) * 8)};
}

template <class T>
static void matmul_forward4(LaunchPad& pad, T* out, const T* inp, const T* weight, const T* bias, int N,
                            int C, int OC, int block_size) {
    MatmulForwardArgs args = forward_args(pad, out, inp, weight, bias, N, C, OC);
    pad.dispatch<T>("matmul_forward4", groups4(N, OC, block_size), {uint32_t(block_size)}, args,
                    product_work(N, C, OC));
}

template <class T>
static void matmul_dinp4(LaunchPad& pad, T* dinp, const T* dout, const T* weight, int N, int C, int OC,
                         int block_size) {
    MatmulDinpArgs args = dinp_args(pad, dinp, dout, weight, N, C, OC);
    pad.dispatch<T>("matmul_dinp4", groups4(N, C, block_size), {uint32_t(block_size)}, args,
                    product_work(N, C, OC));
}

template <class T>
static void matmul_dweight4(LaunchPad& pad, T* dweight, float* scratch, const T* dout, const T* inp, int N,
                            int C, int OC, bool accumulate, int block_size) {
    MatmulDweightArgs args = dweight_args(pad, dweight, scratch, dout, inp, N, C, OC, accumulate, {1, N});
    pad.dispatch<T>("matmul_dweight4", groups4(OC, C, block_size), {uint32_t(block_size)}, args,
                    product_work(N, C, OC));
}

// Version 5: on matrix cores, for T and rows that allow it, else version 3.
static const int FALLBACK_BLOCK = 64;  // of version 3

// bias, pre and transposed may be null; with pre, it gets the product, and out GELU of it.
template <class T>
static MatrixLaunch<T> forward5(LaunchPad& pad, T* out, T* pre, float* scratch, const T* inp, const T* weight,
                                const T* bias, int N, int C, int OC, int block_size, bool left_partial,
                                const T* transposed) {
    const size_t n = N, c = C, oc = OC;
    const int epilogue = pre ? EPILOGUE_GELU : bias ? EPILOGUE_BIAS : EPILOGUE_NONE;
    return {pad,
            forward5_product(N, C, OC, epilogue, left_partial, transposed != nullptr),
            block_size,
            scratch,
            {pad.at(out, n * oc), pad.at(inp, n * c), pad.at(transposed ? transposed : weight, oc * c),
             pad.at(bias, oc), pad.at(pre, n * oc)}};
}

// pre may be null; with it, dinp is multiplied by the slope of GELU there.
template <class T>
static MatrixLaunch<T> dinp5(LaunchPad& pad, T* dinp, float* scratch, const T* dout, const T* weight,
                             const T* pre, int N, int C, int OC, int block_size, bool left_partial = false) {
    const size_t n = N, c = C, oc = OC;
    return {pad,
            dinp5_product(N, C, OC, pre ? EPILOGUE_GELU_SLOPE : EPILOGUE_NONE, left_partial),
            block_size,
            scratch,
            {pad.at(dinp, n * c), pad.at(dout, n * oc), pad.at(weight, oc * c), 0, pad.at(pre, n * c)}};
}

template <class T>
static MatrixLaunch<T> dweight5(LaunchPad& pad, T* dweight, float* scratch, const T* dout, const T* inp,
                                int N, int C, int OC, bool accumulate, int block_size) {
    const size_t n = N, c = C, oc = OC;
    return {pad,
            dweight5_product(N, C, OC, accumulate),
            block_size,
            scratch,
            {pad.at(dweight, oc * c), pad.at(dout, n * oc), pad.at(inp, n * c)}};
}

template <class T>
static void matmul_forward5(LaunchPad& pad, T* out, const T* inp, const T* weight, const T* bias, int N,
                            int C, int OC, int block_size) {
    if (!on_matrix_cores<T>(pad, C, OC))
        return matmul_forward3(pad, out, inp, weight, bias, N, C, OC, FALLBACK_BLOCK);
    forward5<T>(pad, out, nullptr, nullptr, inp, weight, bias, N, C, OC, block_size, false, nullptr).run(pad);
}

template <class T>
static void matmul_dinp5(LaunchPad& pad, T* dinp, const T* dout, const T* weight, int N, int C, int OC,
                         int block_size) {
    if (!on_matrix_cores<T>(pad, C, OC))
        return matmul_dinp3(pad, dinp, dout, weight, N, C, OC, FALLBACK_BLOCK);
    dinp5<T>(pad, dinp, nullptr, dout, weight, nullptr, N, C, OC, block_size).run(pad);
}

template <class T>
static void matmul_dweight5(LaunchPad& pad, T* dweight, float* scratch, const T* dout, const T* inp, int N,
                            int C, int OC, bool accumulate, int block_size) {
    if (!on_matrix_cores<T>(pad, C, OC))
        return matmul_dweight3(pad, dweight, scratch, dout, inp, N, C, OC, accumulate, FALLBACK_BLOCK);
    dweight5(pad, dweight, scratch, dout, inp, N, C, OC, accumulate, block_size).run(pad);
}

// What a workgroup of matmul_dbias2 takes: 32 packs of columns, and 8 rows at a time in each of its lanes.
static const int DBIAS_PACKS = 32, DBIAS_ROWS = 8;
static const std::initializer_list<int> DBIAS_BLOCKS = {256, 32, 128, 512};

// As many slices as give 2^18 invocations, each of so many rows that none is read alone; one where rows are
// so few that a second kernel would take longer.
template <class T>
static Slices dbias_slices(int N, int OC, int block_size) {
    if (N <= 1024) return {1, N};
    const uint64_t across = blocks(OC, DBIAS_PACKS * 16 / sizeof(T)), wanted = (1 << 18) / block_size;
    return cut_rows(N, int(std::max<uint64_t>(wanted / across, 1)), DBIAS_ROWS * block_size / DBIAS_PACKS);
}

template <class T>
static Slices dbias_partials(LaunchPad& pad, T* dbias, float* scratch, const T* dout, int N, int OC,
                             int block_size) {
    const Slices slices = dbias_slices<T>(N, OC, block_size);
    MatmulDbiasArgs args = dbias_args(pad, dbias, scratch, dout, N, OC, slices);
    const uint32_t width = wide_pack_width<T>(OC, {args.dout, args.dbias});
    pad.dispatch<T>("matmul_dbias2", {blocks(OC / width, DBIAS_PACKS) * slices.count},
                    {uint32_t(block_size), width}, args, moves<T>(double(N) * OC));
    return slices;
}

template <class T>
static void matmul_dbias2(LaunchPad& pad, T* dbias, float* scratch, const T* dout, int N, int OC,
                          int block_size) {
    const Slices slices = dbias_partials(pad, dbias, scratch, dout, N, OC, block_size);
    pad.barrier();
    add_partials(pad, dbias, scratch, OC, slices.count, true);
}

template <class T>
std::vector<KernelVersion<MatmulForward<T>>> matmul_forward_versions() {
    return {
        {"matmul_forward1", "one invocation per element", matmul_forward1<T>, {128, 64, 256}},
        {"matmul_forward2", "tiles through shared memory", matmul_forward2<T>, {256, 64}},
        {"matmul_forward3",
         "16 x 8 elements an invocation, 16-byte reads, next tile fetched ahead",
         matmul_forward3<T>,
         {128, 64, 256}},
        {"matmul_forward4",
         "16 x 8 elements an invocation, no shared memory: for software devices",
         matmul_forward4<T>,
         {8, 32}},
        {"matmul_forward5", "on matrix cores, fused bias", matmul_forward5<T>,
         matrix_block_sizes("matmul_forward5")},
    };
}

template <class T>
std::vector<KernelVersion<MatmulDinp<T>>> matmul_dinp_versions() {
    return {
        {"matmul_dinp1", "one invocation per element", matmul_dinp1<T>, {128, 64, 256}},
        {"matmul_dinp2", "tiles through shared memory", matmul_dinp2<T>, {256, 64}},
        {"matmul_dinp3",
         "16 x 8 elements an invocation, 16-byte reads, next tile fetched ahead",
         matmul_dinp3<T>,
         {128, 64, 256}},
        {"matmul_dinp4",
         "16 x 8 elements an invocation, no shared memory: for software devices",
         matmul_dinp4<T>,
         {8, 32}},
        {"matmul_dinp5", "on matrix cores", matmul_dinp5<T>, matrix_block_sizes("matmul_dinp5")},
    };
}

template <class T>
std::vector<KernelVersion<MatmulDweight<T>>> matmul_dweight_versions() {
    return {
        {"matmul_dweight1", "one invocation per element", matmul_dweight1<T>, {128, 64, 256}},
        {"matmul_dweight2", "tiles through shared memory", matmul_dweight2<T>, {256, 64}},
        {"matmul_dweight3",
         "16 x 8 elements an invocation, 16-byte reads, next tile fetched ahead, rows in slices",
         matmul_dweight3<T>,
         {128, 64}},
        {"matmul_dweight4",
         "16 x 8 elements an invocation, no shared memory: for software devices",
         matmul_dweight4<T>,
         {8, 32}},
        {"matmul_dweight5", "on matrix cores, rows in slices", matmul_dweight5<T>,
         matrix_block_sizes("matmul_dweight5")},
    };
}

template <class T>
std::vector<KernelVersion<MatmulDbias<T>>> matmul_dbias_versions() {
    return {
        {"matmul_dbias1", "one invocation per column", matmul_dbias1<T>, {64, 128}},
        {"matmul_dbias2", "slices of the rows, summed by a second kernel", matmul_dbias2<T>, DBIAS_BLOCKS},
    };
}

// On software devices barriers are expensive.
static bool is_software(const LaunchPad& pad) { return pad.device().type == DeviceType::software; }

// The block size of version 3 for a product (M,N): the largest tiles of which a large GPU (132
// multiprocessors here) still gets three each, or little tiles in teams where even those of 64 are fewer than
// one each.
static int block_size3(const LaunchPad& pad, uint64_t M, uint64_t N) {
    const uint64_t large = tiles3(shape3(128), M, N);
    if (large >= 384 || (large > 224 && large <= 264)) return 128;  // two at a time on each multiprocessor
    return tiles3(shape3(64), M, N) >= 132 || pad.limits().max_block < 256 ? 64 : 256;
}

// Slices of the rows multiply the tiles; no teams are needed.
static int dweight_block_size3(int N, int C, int OC) {
    return tiles3(shape3(128), OC, C) * dweight_slices(N, C, OC, 128).count >= 512 ? 128 : 64;
}

template <class T>
void matmul_forward(LaunchPad* pad, T* out, const T* inp, const T* weight, const T* bias, int N, int C,
                    int OC, float* scratch, const T* transposed) {
    if (!pad) return matmul_forward_cpu(out, inp, weight, bias, N, C, OC);
    if (on_matrix_cores<T>(*pad, C, OC))
        return forward5<T>(*pad, out, nullptr, scratch, inp, weight, bias, N, C, OC, 0, false, transposed)
            .run(*pad);
    if (is_software(*pad)) return matmul_forward4(*pad, out, inp, weight, bias, N, C, OC, 8);
    matmul_forward3(*pad, out, inp, weight, bias, N, C, OC, block_size3(*pad, N, OC));
}

template <class T>
void matmul_gelu_forward(LaunchPad* pad, T* out, T* pre, const T* inp, const T* weight, const T* bias, int N,
                         int C, int OC, float* scratch, const T* transposed) {
    if (pad && on_matrix_cores<T>(*pad, C, OC))
        return forward5(*pad, out, pre, scratch, inp, weight, bias, N, C, OC, 0, false, transposed).run(*pad);
    matmul_forward(pad, pre, inp, weight, bias, N, C, OC);
    if (pad) pad->barrier();
    gelu_forward(pad, out, pre, size_t(N) * OC);
}

template <class T>
PartialProduct<T> matmul_forward_partial(LaunchPad* pad, T* out, const T* inp, const T* weight, const T* bias,
                                         int N, int C, int OC, float* scratch, const T* transposed) {
    if (pad && on_matrix_cores<T>(*pad, C, OC))
        return forward5<T>(*pad, out, nullptr, scratch, inp, weight, bias, N, C, OC, 0, true, transposed)
            .leave(*pad, out, bias, scratch);
    matmul_forward(pad, out, inp, weight, bias, N, C, OC);
    return {out};
}

// Of a product that is finished, or left to the next layer.
template <class T>
static size_t scratch5(const LaunchPad& pad, MatrixProduct product) {
    size_t floats = 0;
    for (const bool left : {false, true}) {
        product.left_partial = left;
        floats = std::max(floats, partial_floats(product, cut_matrix_product<T>(pad, product, 0, true)));
    }
    return floats;
}

template <class T>
size_t matmul_forward_scratch(const LaunchPad* pad, int N, int C, int OC) {
    if (!pad || !on_matrix_cores<T>(*pad, C, OC)) return 0;
    return std::max(scratch5<T>(*pad, forward5_product(N, C, OC, EPILOGUE_BIAS)),
                    scratch5<T>(*pad, forward5_product(N, C, OC, EPILOGUE_BIAS, false, true)));
}

template <class T>
size_t matmul_dinp_scratch(const LaunchPad* pad, int N, int C, int OC) {
    if (!pad || !on_matrix_cores<T>(*pad, C, OC)) return 0;
    return scratch5<T>(*pad, dinp5_product(N, C, OC, EPILOGUE_NONE));
}

// Floats of the partial results of dweight, which those of dbias follow: both are in use at the same time.
template <class T>
static size_t dweight_floats(const LaunchPad& pad, int N, int C, int OC) {
    if (!on_matrix_cores<T>(pad, C, OC)) {
        const int count = std::max(dweight_slices(N, C, OC, 64).count, dweight_slices(N, C, OC, 128).count);
        return count > 1 ? blocks(size_t(count) * OC * C, 4) * 4 : 0;  // 16-byte accesses
    }
    const MatrixProduct product = dweight5_product(N, C, OC, false);
    size_t floats = 0;
    for (int block_size : matrix_block_sizes(product.kernel))  // a benchmark may ask for any of them
        floats =
            std::max(floats, partial_floats(product, cut_matrix_product<T>(pad, product, block_size, true)));
    return floats;
}

template <class T>
size_t matmul_dweight_scratch(const LaunchPad* pad, int N, int C, int OC) {
    if (!pad) return 0;
    size_t dbias = 0;
    for (int block_size : DBIAS_BLOCKS)
        dbias = std::max(dbias, size_t(dbias_slices<T>(N, OC, block_size).count) * OC);
    return dweight_floats<T>(*pad, N, C, OC) + dbias;
}

template <class T>
void matmul_backward_input(LaunchPad* pad, T* dinp, float* scratch, const T* dout, const T* weight, int N,
                           int C, int OC, const T* pre) {
    if (pad && on_matrix_cores<T>(*pad, C, OC))
        return dinp5(*pad, dinp, scratch, dout, weight, pre, N, C, OC, 0).run(*pad);
    if (!pad)
        matmul_dinp_cpu(dinp, dout, weight, N, C, OC);
    else if (is_software(*pad))
        matmul_dinp4(*pad, dinp, dout, weight, N, C, OC, 8);
    else
        matmul_dinp3(*pad, dinp, dout, weight, N, C, OC, block_size3(*pad, N, C));
    if (!pre) return;
    if (pad) pad->barrier();
    gelu_backward(pad, dinp, pre, dinp, size_t(N) * C);
}

template <class T>
PartialProduct<T> matmul_backward_input_partial(LaunchPad* pad, T* dinp, float* scratch, const T* dout,
                                                const T* weight, int N, int C, int OC) {
    if (pad && on_matrix_cores<T>(*pad, C, OC))
        return dinp5<T>(*pad, dinp, scratch, dout, weight, nullptr, N, C, OC, 0, true)
            .leave(*pad, dinp, nullptr, scratch);
    matmul_backward_input(pad, dinp, scratch, dout, weight, N, C, OC);
    return {dinp};
}

template <class T>
void matmul_backward_parameters(LaunchPad* pad, T* dweight, T* dbias, float* scratch, const T* dout,
                                const T* inp, int N, int C, int OC, bool accumulate) {
    if (!pad) {
        matmul_dweight_cpu(dweight, dout, inp, N, C, OC, accumulate);
        if (dbias) matmul_dbias_cpu(dbias, dout, N, OC);
        return;
    }
    float* dbias_scratch = scratch + dweight_floats<T>(*pad, N, C, OC);
    const int block_size3 = dweight_block_size3(N, C, OC);
    std::optional<MatrixLaunch<T>> matrix;
    Slices cut = {1, N}, dbias_cut = {1, N};
    if (on_matrix_cores<T>(*pad, C, OC))
        matrix.emplace(dweight5(*pad, dweight, scratch, dout, inp, N, C, OC, accumulate, 0));
    else if (!is_software(*pad))
        cut = dweight_slices(N, C, OC, block_size3);
    if (dbias) dbias_cut = dbias_slices<T>(N, OC, 256);
    const bool sliced = cut.count > 1 || dbias_cut.count > 1 || (matrix && matrix->cut.slices > 1);

    pad->begin_group();
    if (sliced) pad->barrier();  // what this runs beside may be a call that has the same scratch
    if (matrix)
        matrix->start(*pad);
    else if (is_software(*pad))
        matmul_dweight4(*pad, dweight, scratch, dout, inp, N, C, OC, accumulate, 8);
    else
        dweight_partials(*pad, dweight, scratch, dout, inp, N, C, OC, accumulate, block_size3);
    if (dbias) dbias_partials(*pad, dbias, dbias_scratch, dout, N, OC, 256);
    if (sliced) pad->barrier();
    if (matrix) matrix->finish(*pad);
    add_partials(*pad, dweight, scratch, size_t(OC) * C, cut.count, accumulate);
    if (dbias) add_partials(*pad, dbias, dbias_scratch, OC, dbias_cut.count, true);
    pad->end_group();
}

#define INSTANTIATE(T)                                                                                      \
    template std::vector<KernelVersion<MatmulForward<T>>> matmul_forward_versions();                        \
    template std::vector<KernelVersion<MatmulDinp<T>>> matmul_dinp_versions();                              \
    template std::vector<KernelVersion<MatmulDweight<T>>> matmul_dweight_versions();                        \
    template std::vector<KernelVersion<MatmulDbias<T>>> matmul_dbias_versions();                            \
    template void matmul_forward(LaunchPad*, T*, const T*, const T*, const T*, int, int, int, float*,       \
                                 const T*);                                                                 \
    template void matmul_gelu_forward(LaunchPad*, T*, T*, const T*, const T*, const T*, int, int, int,      \
                                      float*, const T*);                                                    \
    template PartialProduct<T> matmul_forward_partial(LaunchPad*, T*, const T*, const T*, const T*, int,    \
                                                      int, int, float*, const T*);                          \
    template PartialProduct<T> matmul_backward_input_partial(LaunchPad*, T*, float*, const T*, const T*,    \
                                                             int, int, int);                                \
    template size_t matmul_forward_scratch<T>(const LaunchPad*, int, int, int);                             \
    template size_t matmul_dinp_scratch<T>(const LaunchPad*, int, int, int);                                \
    template size_t matmul_dweight_scratch<T>(const LaunchPad*, int, int, int);                             \
    template void matmul_backward_input(LaunchPad*, T*, float*, const T*, const T*, int, int, int,          \
                                        const T*);                                                          \
    template void matmul_backward_parameters(LaunchPad*, T*, T*, float*, const T*, const T*, int, int, int, \
                                             bool);
FOR_EACH_REAL(INSTANTIATE)
