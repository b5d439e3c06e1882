// Muon: the CPU version, the GPU versions with their table, and the dispatcher that training calls.
#include "llmc/layers/muon.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "llmc/base/ceil_div.h"
#include "llmc/cpu/gemm.h"
#include "llmc/cpu/simd.h"
#include "llmc/launchpad/packs.h"
#include "llmc/layers/adamw.h"
#include "llmc/layers/matmul.h"
#include "llmc/layers/tensor_core.h"

MuonStep muon_step(float learning_rate, float momentum, int t) {
    return {learning_rate, momentum, hash(uint32_t(t))};
}

// Newton-Schulz: the number of steps, and the coefficients of their polynomial a x + b x^3 + c x^5.
static const int NEWTON_SCHULZ_STEPS = 5;
static const float COEFFICIENT_A = 3.4445f, COEFFICIENT_B = -4.7750f, COEFFICIENT_C = 2.0315f;
static const float MIN_NORM = 1e-7f;  // of what is normalized

// The learning rate's factor: the update's root mean square is then about 0.2, like AdamW's.
static float rate_factor(int rows, int columns) { return 0.2f * std::sqrt(float(std::max(rows, columns))); }

template <class Real>
static void check_update(const MuonUpdate<Real>& p) {
    if (p.rows < 1 || p.columns < 1) fail("muon_update: matrices of %d x %d", p.rows, p.columns);
    for (const MuonMatrix<Real>& matrix : p.matrices)
        if (std::is_same_v<Real, float> && matrix.master)
            fail("muon_update: fp32 parameters take no master weights: pass null");
}

// --- the CPU version, in fp32; bit-identical for any number of threads ---

static const size_t CHUNK = 16384;  // elements that a thread takes at a time

// Updates m, sets u to the Nesterov momentum, and returns the sum of its squares.
template <class Real>
static SIMD_INLINE double momentum_of(float* u, float* m, const Real* grads, size_t n, MuonStep s,
                                      float scale) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) {
        const float g = float(grads[i]) * scale;
        m[i] = s.momentum * m[i] + (1 - s.momentum) * g;
        u[i] = s.momentum * m[i] + (1 - s.momentum) * g;
        sum += double(u[i]) * double(u[i]);
    }
    return sum;
}

// Memory of a thread, contents undefined: each thread touches its own first.
struct Workspace {
    std::unique_ptr<float[]> x, next;       // (rows, columns)
    std::unique_ptr<float[]> gram, square;  // (n, n) with n = min(rows, columns)
    std::unique_ptr<double[]> sums;         // of each chunk
    Workspace(size_t rows, size_t columns)
        : x(new float[rows * columns]),
          next(new float[rows * columns]),
          gram(new float[std::min(rows, columns) * std::min(rows, columns)]),
          square(new float[std::min(rows, columns) * std::min(rows, columns)]),
          sums(new double[ceil_div(rows * columns, CHUNK)]) {}
};

// Updates m and sets w.x to the normalized Nesterov momentum. The chunks' sums are added in order.
template <class Real>
static void start(Workspace& w, const MuonMatrix<Real>& matrix, size_t n, MuonStep s, float scale) {
#pragma omp parallel for
    for (size_t i = 0; i < n; i += CHUNK)
        w.sums[i / CHUNK] = simd<momentum_of<Real>>(w.x.get() + i, matrix.m + i, matrix.grads + i,
                                                    std::min(CHUNK, n - i), s, scale);
    const double sum = std::accumulate(w.sums.get(), w.sums.get() + ceil_div(n, CHUNK), 0.0);
    const float factor = float(1 / std::max(std::sqrt(sum), double(MIN_NORM)));
#pragma omp parallel for simd
    for (size_t i = 0; i < n; i++) w.x[i] *= factor;
}

// c (n, n), symmetric: copies the elements below the diagonal to those above, in blocks that stay in L1.
static void mirror(float* c, size_t n) {
    const size_t block = 32;
#pragma omp parallel for schedule(dynamic)
    for (size_t row = 0; row < n; row += block)
        for (size_t column = 0; column <= row; column += block)
            for (size_t i = row; i < std::min(row + block, n); i++)
                for (size_t j = column; j < std::min(column + block, i); j++) c[j * n + i] = c[i * n + j];
}

// c (n, n) = x (n, K) x^T. Computes strips of rows up to the diagonal.
static void gram_matrix(float* c, Operand<float> x, size_t n, size_t K) {
    const size_t strip = 192;  // 62 % of the multiply-adds for n = 768; narrower strips repack x more often
    for (size_t row = 0; row < n; row += strip) {
        Operand<float> rows = x;
        rows.p += x.transposed ? row : row * x.ld;
        const size_t M = std::min(strip, n - row);
        gemm_cpu<float>({.c = {.p = c + row * n, .ld = n}, .a = rows, .b = x, .M = M, .N = row + M, .K = K});
    }
    mirror(c, n);
}

// s (n, n) = a I + b gram + c square. s may be one of them.
static SIMD_INLINE void polynomial_rows(float* s, const float* gram, const float* square, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) s[i] = COEFFICIENT_B * gram[i] + COEFFICIENT_C * square[i];
}
static void polynomial(float* s, const float* gram, const float* square, size_t n) {
#pragma omp parallel for
    for (size_t row = 0; row < n; row++) {
        simd<polynomial_rows>(s + row * n, gram + row * n, square + row * n, n);
        s[row * n + row] += COEFFICIENT_A;
    }
}

// Small matrices take a thread each, since their GEMMs are too short for several threads. Loops within then
// run on that thread.
static int num_workspaces(size_t rows, size_t columns) {
    return rows * columns <= size_t(1) << 18 ? omp_get_max_threads() : 1;
}

size_t muon_workspace_bytes(int rows, int columns) {
    const size_t n = size_t(std::min(rows, columns)), elements = size_t(rows) * size_t(columns);
    return size_t(num_workspaces(size_t(rows), size_t(columns))) * 2 * (elements + n * n) * sizeof(float);
}

// Orthogonalizes w.x: each step computes s = a I + b A + c A^2 and multiplies x by it.
static void orthogonalize(Workspace& w, size_t rows, size_t columns) {
    const bool tall = rows > columns;
    const size_t n = std::min(rows, columns);
    for (int step = 0; step < NEWTON_SCHULZ_STEPS; step++) {
        gram_matrix(w.gram.get(), {.p = w.x.get(), .ld = columns, .transposed = tall}, n,
                    std::max(rows, columns));
        gram_matrix(w.square.get(), {.p = w.gram.get(), .ld = n, .transposed = true}, n, n);
        polynomial(w.square.get(), w.gram.get(), w.square.get(), n);
        const Operand<float> x = {.p = w.x.get(), .ld = columns, .transposed = !tall},
                             s = {.p = w.square.get(), .ld = n, .transposed = tall};
        gemm_cpu<float>({.c = {.p = w.next.get(), .ld = columns},
                         .a = tall ? x : s,
                         .b = tall ? s : x,
                         .M = rows,
                         .N = columns,
                         .K = n});
        w.x.swap(w.next);
    }
}

// A chunk of a matrix, whose element indices all have the same upper 32 bits.
template <class Real>
struct MuonChunk {
    Real* params;
    float* master;
    const float* x;
    int n;
    size_t first;
};

// weight = keep weight - rate x
template <class Real, bool has_master>
static SIMD_INLINE void update_chunk(MuonChunk<Real> p, uint32_t seed, float keep, float rate) {
    const uint32_t key = rounding_key(seed, p.first), first = uint32_t(p.first);
#pragma omp simd
    for (int i = 0; i < p.n; i++) {
        const float now = keep * (has_master ? p.master[i] : float(p.params[i])) - rate * p.x[i];
        if (has_master) p.master[i] = now;
        p.params[i] = round_randomly<Real>(now, hash((first + uint32_t(i)) ^ key));
    }
}
template <class Real>
static SIMD_INLINE void update_any(MuonChunk<Real> p, uint32_t seed, float keep, float rate) {
    if (!std::is_same_v<Real, float> && p.master)
        update_chunk<Real, true>(p, seed, keep, rate);
    else
        update_chunk<Real, false>(p, seed, keep, rate);
}

template <class Real>
static void update_weights(const MuonUpdate<Real>& p, const MuonMatrix<Real>& matrix, const float* x) {
    const size_t n = size_t(p.rows) * size_t(p.columns), end = matrix.first + n;
    const float keep = 1 - p.step->learning_rate * p.weight_decay;
    const float rate = p.step->learning_rate * rate_factor(p.rows, p.columns);
#pragma omp parallel for
    for (size_t chunk = matrix.first / CHUNK; chunk < ceil_div(end, CHUNK); chunk++) {
        const size_t begin = std::max(chunk * CHUNK, matrix.first), i = begin - matrix.first;
        simd<update_any<Real>>({.params = matrix.params + i,
                                .master = matrix.master ? matrix.master + i : nullptr,
                                .x = x + i,
                                .n = int(std::min((chunk + 1) * CHUNK, end) - begin),
                                .first = begin},
                               p.step->seed, keep, rate);
    }
}

template <class Real>
static void muon_update_cpu(const MuonUpdate<Real>& p) {
    check_update(p);
    const float* norm_and_scale = p.norm_and_scale;
    if (norm_and_scale && (!std::isfinite(norm_and_scale[0]) || norm_and_scale[1] == 0)) return;
    const float scale = norm_and_scale ? norm_and_scale[1] : 1.0f;
    const size_t rows = size_t(p.rows), columns = size_t(p.columns);
    // allocated here, since an exception must not leave a parallel region
    std::vector<Workspace> workspaces;
    for (int i = 0; i < num_workspaces(rows, columns); i++) workspaces.emplace_back(rows, columns);
#pragma omp parallel for schedule(dynamic) if (workspaces.size() > 1)
    for (size_t i = 0; i < p.matrices.size(); i++) {
        Workspace& workspace = workspaces[size_t(omp_get_thread_num())];
        start(workspace, p.matrices[i], rows * columns, *p.step, scale);
        orthogonalize(workspace, rows, columns);
        update_weights(p, p.matrices[i], workspace.x.get());
    }
}

// --- the GPU versions ---

// The type of X, which is what is orthogonalized: a constant of the kernels.
template <class X>
static uint32_t x_type() {
    return std::is_same_v<X, float> ? MUON_FP32 : std::is_same_v<X, bf16> ? MUON_BF16 : MUON_FP16;
}

// Scratch memory for a batch of matrices, with n = min(rows, columns).
template <class X>
struct MuonScratch {
    X *x, *next;       // (batch, rows, columns)
    X *gram, *square;  // (batch, n, n)
    float* partials;   // (batch, chunks): sums of squares

    MuonScratch(LaunchPad& pad, size_t rows, size_t columns, size_t batch) {
        const size_t n = std::min(rows, columns);
        const size_t x_floats = floats(batch * rows * columns), gram_floats = floats(batch * n * n);
        const size_t chunks = ceil_div(rows * columns, size_t(MUON_CHUNK));
        float* const scratch = pad.scratch(Scratch::muon, 2 * (x_floats + gram_floats) + batch * chunks);
        x = reinterpret_cast<X*>(scratch);
        next = reinterpret_cast<X*>(scratch + x_floats);
        gram = reinterpret_cast<X*>(scratch + 2 * x_floats);
        square = reinterpret_cast<X*>(scratch + 2 * x_floats + gram_floats);
        partials = scratch + 2 * (x_floats + gram_floats);
    }
    // What so many elements take, so that the next array is aligned to 16 bytes.
    static size_t floats(size_t elements) { return ceil_div(elements * sizeof(X), 16) * 4; }
};

// The kernels before and after orthogonalizing.
template <class Real, class X>
struct MuonKernels {
    LaunchPad& pad;
    const MuonUpdate<Real>& p;
    uint32_t block_size;

    size_t n() const { return size_t(p.rows) * size_t(p.columns); }
    size_t chunks() const { return ceil_div(n(), size_t(MUON_CHUNK)); }
    uint32_t width(uint64_t reals, uint64_t floats) const {
        const uint32_t width = std::min(pack_width<Real>(n(), {reals}), pack_width<float>(n(), {floats}));
        if (sizeof(X) == 2 && width != 4) fail("muon: a matrix is not aligned to four elements");
        return width;
    }

    // Runs muon_momentum1 or, after it, muon_normalize1. bytes: that it reads and writes of each element.
    void momentum(const char* kernel, const MuonMatrix<Real>& matrix, const X* x, const float* partials,
                  double bytes) const {
        const MuonMomentumArgs args = {.x = pad.at(x, n()),
                                       .m = pad.at(matrix.m, n()),
                                       .partials = pad.at(partials, chunks()),
                                       .grads = pad.at(matrix.grads, n()),
                                       .step = pad.at(p.step, 1),
                                       .norm_and_scale = pad.at(p.norm_and_scale, 2),
                                       .n = n(),
                                       .min_norm = MIN_NORM};
        pad.dispatch<Real>(kernel, {chunks()}, {block_size, width(args.grads, args.m), x_type<X>()}, args,
                           {.bytes = double(n()) * bytes});
    }
    void weights(const MuonMatrix<Real>& matrix, const X* x) const {
        const MuonWeightsArgs args = {.params = pad.at(matrix.params, n()),
                                      .master = pad.at(matrix.master, n()),
                                      .x = pad.at(x, n()),
                                      .step = pad.at(p.step, 1),
                                      .norm_and_scale = pad.at(p.norm_and_scale, 2),
                                      .n = n(),
                                      .first = matrix.first,
                                      .weight_decay = p.weight_decay,
                                      .rate_factor = rate_factor(p.rows, p.columns)};
        const double bytes = sizeof(X) + (matrix.master ? 8.0 + sizeof(Real) : 2.0 * sizeof(Real));
        const uint32_t elements = width(args.params, args.master);
        pad.dispatch<Real>("muon_weights1", {ceil_div(n() / elements, block_size)},
                           {block_size, elements, x_type<X>()}, args, {.bytes = double(n()) * bytes});
    }
};

// Updates `batch` matrices at a time: step(scratch, count) multiplies scratch.x by the polynomial into
// scratch.next.
template <class X, class Real, class Step>
static void update_in_batches(const MuonKernels<Real, X>& kernels, size_t batch, Step step) {
    const MuonUpdate<Real>& p = kernels.p;
    const size_t n = kernels.n(), chunks = kernels.chunks();
    for (size_t first = 0; first < p.matrices.size(); first += batch) {
        const MuonMatrix<Real>* matrices = &p.matrices[first];
        const size_t count = std::min(batch, p.matrices.size() - first);
        MuonScratch<X> s(kernels.pad, size_t(p.rows), size_t(p.columns), count);
        {
            const ConcurrentGroup group(&kernels.pad);
            for (size_t i = 0; i < count; i++)
                kernels.momentum("muon_momentum1", matrices[i], s.x + i * n, s.partials + i * chunks,
                                 8.0 + sizeof(Real));
            kernels.pad.barrier();
            for (size_t i = 0; i < count; i++)
                kernels.momentum("muon_normalize1", matrices[i], s.x + i * n, s.partials + i * chunks,
                                 4.0 + sizeof(Real) + sizeof(X));
        }
        for (int i = 0; i < NEWTON_SCHULZ_STEPS; i++) {
            step(s, int(count));
            std::swap(s.x, s.next);
        }
        const ConcurrentGroup group(&kernels.pad);
        for (size_t i = 0; i < count; i++) kernels.weights(matrices[i], s.x + i * n);
    }
}

// --- version 1: one matrix after the other, on the fp32 GEMMs of the linear layers ---

static void newton_schulz_step1(LaunchPad& pad, const MuonScratch<float>& s, int rows, int columns) {
    const bool tall = rows > columns;
    const int n = std::min(rows, columns);
    if (tall)
        matmul_backward_parameters<float>(&pad, {.dweight = s.gram,
                                                 .dout = s.x,
                                                 .inp = s.x,
                                                 .num_rows = rows,
                                                 .C = n,
                                                 .OC = n,
                                                 .accumulate = false});
    else
        matmul_forward<float>(
            &pad, {.out = s.gram, .inp = s.x, .weight = s.x, .num_rows = n, .C = columns, .OC = n});
    matmul_forward<float>(&pad,
                          {.out = s.square, .inp = s.gram, .weight = s.gram, .num_rows = n, .C = n, .OC = n});
    const size_t elements = size_t(n) * size_t(n);
    const MuonPolynomialArgs args = {.square = pad.at(s.square, elements),
                                     .gram = pad.at(s.gram, elements),
                                     .n = n,
                                     .a = COEFFICIENT_A,
                                     .b = COEFFICIENT_B,
                                     .c = COEFFICIENT_C};
    const uint32_t block_size = std::min(256u, pad.limits().max_block);
    pad.dispatch("muon_polynomial1", {ceil_div(elements, block_size)}, {block_size}, args,
                 {.bytes = 12.0 * double(elements)});
    if (tall)
        matmul_forward<float>(
            &pad, {.out = s.next, .inp = s.x, .weight = s.square, .num_rows = rows, .C = n, .OC = n});
    else
        matmul_backward_input<float>(
            &pad, {.dinp = s.next, .dout = s.square, .weight = s.x, .num_rows = n, .C = columns, .OC = n});
}

template <class Real>
static void muon_update1(LaunchPad& pad, const MuonUpdate<Real>& p, int block_size) {
    check_update(p);
    const MuonKernels<Real, float> kernels = {pad, p, uint32_t(block_size)};
    update_in_batches(kernels, 1, [&](const MuonScratch<float>& s, int) {
        newton_schulz_step1(pad, s, p.rows, p.columns);
    });
}

// --- version 2: batches of matrices, on tensor cores ---

// X is bf16. Tests run without a device that has such fragments: there fp16 stands in, as for the pieces of
// fp32 values.
bool muon_on_tensor_cores(const LaunchPad& pad, int rows, int columns) {
    return pad.limits().fp16_pieces ? fits_tensor_cores<fp16>(pad, rows, columns)
                                    : fits_tensor_cores<bf16>(pad, rows, columns);
}

template <class X>
static void run_gemm(LaunchPad& pad, const GemmShape& gemm, const MatmulMatrixArgs& args) {
    GemmLaunch<X>{gemm, plan_gemm<X>(pad, gemm, {}, false), args}.run(pad);
}

template <class X>
static void newton_schulz_step2(LaunchPad& pad, const MuonScratch<X>& s, const GemmShape& shape) {
    const bool tall = shape.M > shape.N;
    const int n = std::min(shape.M, shape.N), longer = std::max(shape.M, shape.N);
    const size_t elements = size_t(shape.batch) * size_t(n);
    const uint64_t x = pad.at(s.x, elements * size_t(longer)),
                   next = pad.at(s.next, elements * size_t(longer)),
                   gram = pad.at(s.gram, elements * size_t(n)),
                   square = pad.at(s.square, elements * size_t(n));
    GemmShape gemm = {.layout = tall ? GemmLayout::tn : GemmLayout::nt,
                      .M = n,
                      .N = n,
                      .K = longer,
                      .epilogue = EPILOGUE_NONE,
                      .batch = shape.batch,
                      .symmetric = true};
    run_gemm<X>(pad, gemm, {.outp = gram, .a = x, .b = x});
    gemm.layout = GemmLayout::nt;
    gemm.K = n;
    gemm.epilogue = EPILOGUE_COMBINE;
    run_gemm<X>(
        pad, gemm,
        {.outp = square, .a = gram, .b = gram, .other = gram, .alpha = COEFFICIENT_C, .beta = COEFFICIENT_B});
    gemm.layout = tall ? GemmLayout::nt : GemmLayout::nn;
    gemm.symmetric = false;
    gemm.M = shape.M;
    gemm.N = shape.N;
    run_gemm<X>(pad, gemm,
                {.outp = next,
                 .a = tall ? x : square,
                 .b = tall ? square : x,
                 .other = x,
                 .alpha = 1,
                 .beta = COEFFICIENT_A});
}

template <class X, class Real>
static void update_on_tensor_cores(LaunchPad& pad, const MuonUpdate<Real>& p, int block_size) {
    check_update(p);
    if (p.matrices.empty()) return;
    const size_t n = size_t(std::min(p.rows, p.columns)), elements = size_t(p.rows) * size_t(p.columns);
    const size_t most = std::max<size_t>(p.max_scratch / ((2 * elements + 2 * n * n) * sizeof(X)), 1);
    const size_t batches = ceil_div(p.matrices.size(), most), batch = ceil_div(p.matrices.size(), batches);
    const MuonKernels<Real, X> kernels = {pad, p, uint32_t(block_size)};
    update_in_batches(kernels, batch, [&](const MuonScratch<X>& s, int count) {
        newton_schulz_step2(pad, s, {.M = p.rows, .N = p.columns, .batch = count});
    });
}

template <class Real>
static void muon_update2(LaunchPad& pad, const MuonUpdate<Real>& p, int block_size) {
    if (!muon_on_tensor_cores(pad, p.rows, p.columns)) return muon_update1(pad, p, block_size);
    if (pad.limits().fp16_pieces) return update_on_tensor_cores<fp16>(pad, p, block_size);
    update_on_tensor_cores<bf16>(pad, p, block_size);
}

template <class Real>
std::vector<KernelVersion<MuonUpdate<Real>>> muon_update_versions() {
    return {
        {"muon_update1", "one matrix after the other, fp32 GEMMs", muon_update1<Real>, {256, 64, 512}},
        {"muon_update2", "batches of matrices on tensor cores, in bf16", muon_update2<Real>, {256, 64, 512}},
    };
}

template <class Real>
void muon_update(LaunchPad* pad, const MuonUpdate<Real>& p) {
    if (!pad) return muon_update_cpu(p);
    launch<Real>(*pad, p, muon_update_versions<Real>(), "muon_update2", 256);
}

#define INSTANTIATE(Real) INSTANTIATE_LAYER(muon_update, MuonUpdate, Real)
FOR_EACH_REAL(INSTANTIATE)
