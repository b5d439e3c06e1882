// GEMMs on cooperative matrices: plan_gemm() chooses tile and split-K, GemmLaunch runs the kernel. The
// kernels are shaders/matmul5.glsl, matmul6.comp and, for fp32, matmul7.glsl. Layers use them through
// layers/matmul.h.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "llmc/launchpad/launchpad.h"
#include "llmc/layers/tile.h"
#include "shaders/args.h"

// Layout of the row-major operands, in BLAS's letters: nt: A (M,K), B (N,K), for CUTLASS a column-major B;
// nn: A (M,K), B (K,N); tn: A (K,M), B (K,N), for CUTLASS a column-major A. A linear layer computes out by
// nt, dinp by nn and dweight by tn. packed: A (M,K), B a weight packed by pack_weights(), for out and dinp.
enum class GemmLayout { nt, nn, tn, packed };

// The name of the kernel.
template <class Real>
const char* gemm_kernel(GemmLayout layout);

// out (M,N) = A B, summed over K. A batch of such GEMMs is one launch, and its operands and results lie one
// after the other. GEMMs of a batch and those with a symmetric result do not split K.
struct GemmShape {
    GemmLayout layout;
    int M, N, K;
    int epilogue;  // EPILOGUE_... of shaders/args.h, but not EPILOGUE_PARTIAL
    int batch = 1;
    bool symmetric = false;  // M = N, and the result is symmetric: tiles above the diagonal are copies
};

// How a GEMM is divided: output tiles, and K into `splits` parts of split_k each (the last may be shorter).
struct GemmPlan {
    Tile tile;
    int splits, split_k;
};

// The fragments of a GEMM's operands; for fp32, of the 16-bit pieces of its operands. Zeros: the device has
// none.
template <class Real>
FragmentShape gemm_fragment(const LaunchPad& pad);

// Whether the device has these fragments and a tile for each direction of a linear layer, and C and OC are
// multiples of 8, as the kernels need.
template <class Real>
bool fits_tensor_cores(const LaunchPad& pad, int C, int OC);
// Whether training uses them: fp32 only where that is faster (Limits::splits_fp32).
template <class Real>
bool on_tensor_cores(const LaunchPad& pad, int C, int OC);

// The tiles that the kernel of a layout has, named by their size with 16 x 16 fragments (8 x 8 fragments
// halve it).
template <class Real>
std::vector<Tile> tensor_core_tiles(GemmLayout layout);

// Whether a kernel, or a version of a layer, is a tensor-core GEMM.
inline bool is_tensor_core_gemm(std::string_view kernel) {
    return kernel.starts_with("matmul5") || kernel.starts_with("matmul6") || kernel.starts_with("matmul7");
}

// Whether the device can run a tile of this layout; without one, plan_gemm() is an error.
template <class Real>
bool has_tile(const LaunchPad& pad, GemmLayout layout);

// Groups of subgroups in a workgroup that split each K iteration (CUTLASS's sliced-K). Plans that agree in
// this and in split_k are bit-identical.
template <class Real>
int k_groups(GemmLayout layout, Tile tile);

// The plan that a cost model expects to be fastest, with the tile that was measured to be fastest on this
// device, if it was; or with a given tile. Measurements change neither splits nor k_groups, and so no bit of
// a result. In a dry run, a GEMM that was not measured is noted to be tuned.
template <class Real>
GemmPlan plan_gemm(LaunchPad& pad, const GemmShape& gemm, std::optional<Tile> tile, bool may_split);

// Floats of scratch that a plan needs for its partial sums.
size_t partial_floats(const GemmShape& gemm, const GemmPlan& plan);

// A planned GEMM and its operands. start() launches the kernel, finish() the split-K reduction, if any, which
// must wait for it.
template <class Real>
struct GemmLaunch {
    GemmShape gemm;
    GemmPlan plan;
    MatmulMatrixArgs args;  // addresses of the operands; args.partials if the plan splits K

    void start(LaunchPad& pad) const;
    void finish(LaunchPad& pad) const;
    void run(LaunchPad& pad) const {
        start(pad);
        if (plan.splits > 1) pad.barrier();
        finish(pad);
    }
};

// The tiles that can take the place of the plan's without a change in any bit of the result.
template <class Real>
std::vector<Tile> interchangeable_tiles(const LaunchPad& pad, const GemmShape& gemm, const GemmPlan& plan,
                                        bool may_split);

// The name under which the fastest tile of a GEMM is stored, and the number that stands for a tile there.
// GEMMs that accumulate share the tile of those that overwrite.
template <class Real>
std::string tuning_name(const GemmShape& gemm);
inline int tile_code(Tile tile) { return tile.m * 1000 + tile.n; }

// Measures which tile is fastest for a GEMM, for LaunchPad::tune(). Needs memory for its operands, and some
// five kernels, which prepare_tuning() prepares.
template <class Real>
void prepare_tuning(LaunchPad& pad, const GemmShape& gemm);
template <class Real>
Tile tune_gemm(LaunchPad& pad, const GemmShape& gemm);
