// The classifier and the sum of its losses: the CPU versions, the GPU versions with their tables, and the
// dispatchers that training calls.
#include "llmc/layers/classifier.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <type_traits>
#include <vector>

#include "llmc/base/ceil_div.h"
#include "llmc/cpu/simd.h"
#include "llmc/cpu/vector_math.h"
#include "llmc/launchpad/packs.h"
#include "shaders/args.h"

// std::max() keeps GCC from vectorizing loops.
static SIMD_INLINE float larger(float x, float y) { return x > y ? x : y; }

// In several vectors, since each comparison waits for the one before it in its vector.
static SIMD_INLINE float tile_max(const float* x, int n) {
    const int LANES = 32;
    float largest[LANES];
    for (float& lane : largest) lane = x[0];
    int i = 0;
    for (; i + LANES <= n; i += LANES)
#pragma omp simd
        for (int j = 0; j < LANES; j++) largest[j] = larger(x[i + j], largest[j]);
    float result = x[0];
    for (float lane : largest) result = larger(lane, result);
    for (; i < n; i++) result = larger(x[i], result);
    return result;
}

// powers[i] = exp(x[i] - maximum); they may overwrite x. Returns their sum.
static SIMD_INLINE float exponentiate(float* powers, const float* x, int n, float maximum) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) {
        const float power = exp2_fast((x[i] - maximum) * std::numbers::log2e_v<float>);
        powers[i] = power;
        sum += power;
    }
    return sum;
}

// A loop of its own: the order of sums in the loops above must not depend on the storage type.
template <class Real>
static SIMD_INLINE void convert_all(float* to, const Real* from, int n) {
#pragma omp simd
    for (int i = 0; i < n; i++) to[i] = float(from[i]);
}

// A row is processed in tiles of this many logits, which stay in L1.
static const int TILE = 1024;

// A thread's memory for the exponentials of a row, so that each is computed once. For an fp32 row
// they replace the logits.
struct RowScratch {
    std::vector<float> powers;   // (V), or one tile
    std::vector<float> maximum;  // (tiles) that the powers of a tile relate to
};

// Where the exponentials of the tile at x + i belong.
static float* powers_at(RowScratch& scratch, float* x, int i, bool write_gradients) {
    return write_gradients ? x + i : scratch.powers.data();
}
template <class Real>
static float* powers_at(RowScratch& scratch, Real*, int i, bool write_gradients) {
    return scratch.powers.data() + (write_gradients ? i : 0);
}

// The tile's logits in fp32; 16-bit logits are converted into `buffer`.
static const float* load_tile(float*, const float* x, int) { return x; }
template <class Real>
static const float* load_tile(float* buffer, const Real* x, int n) {
    simd<convert_all<Real>>(buffer, x, n);
    return buffer;
}

// Returns the loss of a row; with write_gradients, x becomes the gradients.
template <class Real>
static float classify_row(RowScratch& scratch, Real* x, int target, const FusedClassifier<Real>& p) {
    const int V = p.V;
    if (target < 0 || target >= V) {
        if (p.write_gradients) std::fill(x, x + p.Vp, Real(0.0f));
        return 0;
    }
    const float target_logit = float(x[target]);
    float largest = -std::numeric_limits<float>::max();  // not -infinity: its difference to itself is NaN
    double sum = 0;
    for (int i = 0; i < V; i += TILE) {
        const int n = std::min(TILE, V - i);
        float* powers = powers_at(scratch, x, i, p.write_gradients);
        const float* logits = load_tile(powers, x + i, n);
        const float before = largest;
        largest = std::max(largest, simd<tile_max>(logits, n));
        if (largest > before) sum *= std::exp(double(before) - double(largest));
        sum += double(simd<exponentiate>(powers, logits, n, largest));
        scratch.maximum[i / TILE] = largest;
    }
    const float loss = float(std::log(sum) + double(largest) - double(target_logit));
    if (!p.write_gradients) return loss;
    for (int i = 0; i < V; i += TILE) {
        const int n = std::min(TILE, V - i);
        float* powers = powers_at(scratch, x, i, true);
        const double factor = double(p.dloss) / sum,
                     rescaled = factor * std::exp(double(scratch.maximum[i / TILE]) - double(largest));
        const float target_power = i <= target && target < i + n ? powers[target - i] : 0.0f;
        simd<store_scaled<Real>>(x + i, powers, n, float(rescaled));
        if (i <= target && target < i + n) x[target] = Real(target_power * float(rescaled) - p.dloss);
    }
    std::fill(x + V, x + p.Vp, Real(0.0f));
    return loss;
}

template <class Real>
static void fused_classifier_cpu(const FusedClassifier<Real>& p) {
    const int num_rows = p.num_rows;
    const bool whole_row = p.write_gradients && !std::is_same_v<Real, float>;
#pragma omp parallel
    {
        RowScratch scratch{std::vector<float>(whole_row ? p.V : TILE),
                           std::vector<float>(ceil_div(p.V, TILE))};
#pragma omp for
        for (int row = 0; row < num_rows; row++)
            p.losses[row] = classify_row(scratch, p.logits + size_t(row) * p.Vp, p.targets[row], p);
    }
}

template <class Real>
static void fused_classifier3(LaunchPad& pad, const FusedClassifier<Real>& p, int block_size) {
    const size_t num_rows = p.num_rows;
    const FusedClassifierArgs args = {.logits = pad.at(p.logits, num_rows * p.Vp),
                                      .losses = pad.at(p.losses, num_rows),
                                      .targets = pad.at(p.targets, num_rows),
                                      .dloss = p.dloss,
                                      .num_rows = p.num_rows,
                                      .V = p.V,
                                      .Vp = p.Vp,
                                      .write_gradients = p.write_gradients};
    const uint32_t width = wide_pack_width<Real>(p.Vp, {args.logits});
    check_iterations(pad, "fused_classifier3", 2 * ceil_div(p.Vp, block_size));
    pad.dispatch<Real>("fused_classifier3", {uint64_t(p.num_rows)}, {uint32_t(block_size), width}, args,
                       memory_traffic<Real>((1.0 + p.write_gradients) * p.num_rows * p.V));
}

template <class Real>
std::vector<KernelVersion<FusedClassifier<Real>>> fused_classifier_versions() {
    return {
        {"fused_classifier3",
         "one workgroup per row, online softmax, 16-byte accesses",
         fused_classifier3<Real>,
         {512, 32, 256, 1024}},
    };
}

template <class Real>
void fused_classifier(LaunchPad* pad, const FusedClassifier<Real>& p) {
    if (!pad) return fused_classifier_cpu(p);
    launch<Real>(*pad, p, fused_classifier_versions<Real>(), "fused_classifier3",
                 int(std::min(512u, pad->limits().barrier_block)));
}

static void sum_losses_cpu(const SumLosses& p) {
    double sum = 0;
    for (int i = 0; i < p.n; i++) sum += double(p.losses[i]);
    p.total[0] += float(double(p.scale) * sum);
}

// Takes several dispatches if a loop over all losses exceeds Limits::max_iterations.
static void sum_losses2(LaunchPad& pad, const SumLosses& p, int block_size) {
    const int64_t most = int64_t(pad.limits().max_iterations) * block_size;
    for (int64_t first = 0; first < p.n; first += most) {
        const int n = int(std::min(most, p.n - first));
        const SumLossesArgs args = {
            .total = pad.at(p.total, 1), .losses = pad.at(p.losses + first, n), .n = n, .scale = p.scale};
        pad.dispatch("sum_losses2", {1}, {uint32_t(block_size)}, args, memory_traffic<float>(n));
        if (first + most < p.n) pad.barrier();  // which adds to the same sum
    }
}

std::vector<KernelVersion<SumLosses>> sum_losses_versions() {
    return {
        {"sum_losses2", "one workgroup", sum_losses2, {1024, 64, 256}},
    };
}

void sum_losses(LaunchPad* pad, const SumLosses& p) {
    if (!pad) return sum_losses_cpu(p);
    launch<float>(*pad, p, sum_losses_versions(), "sum_losses2", int(pad->limits().barrier_block));
}

#define INSTANTIATE(Real) INSTANTIATE_LAYER(fused_classifier, FusedClassifier, Real)
FOR_EACH_REAL(INSTANTIATE)
