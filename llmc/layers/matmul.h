// GEMMs of the linear layers, as PyTorch's nn.Linear: out = inp weight^T + bias, and its backward pass. All
// matrices are row-major.
#pragma once
#include "llmc/launchpad/kernel_version.h"
#include "llmc/layers/tile.h"

// A weight of a linear layer.
template <class Real>
struct LinearWeight {
    const Real* weight;  // (OC,C)
    int C, OC;
};

// out = inp weight^T + bias. With `pre`: pre = inp weight^T + bias, out = gelu(pre).
template <class Real>
struct MatmulForward {
    Real* out;                   // (num_rows, OC)
    Real* pre = nullptr;         // (num_rows, OC); null: no GELU
    const Real* inp;             // (num_rows, C)
    const Real* weight;          // (OC,C)
    const Real* bias = nullptr;  // (OC); null: none
    int num_rows, C, OC;
    const Real* packed = nullptr;  // what matmul_pack() returned for this weight
};

// dinp = dout weight. With `pre`, where inp is gelu(pre), dinp is multiplied by gelu'(pre).
template <class Real>
struct MatmulBackwardInput {
    Real* dinp;                 // (num_rows, C), overwritten
    const Real* dout;           // (num_rows, OC)
    const Real* weight;         // (OC,C)
    const Real* pre = nullptr;  // (num_rows, C); null: inp is not the result of a GELU
    int num_rows, C, OC;
    const Real* packed = nullptr;  // what matmul_pack() returned for this weight
};

// dweight = dout^T inp; dbias += column sums of dout.
template <class Real>
struct MatmulBackwardParameters {
    Real* dweight;          // (OC,C)
    Real* dbias = nullptr;  // (OC) +=; null: not computed
    const Real* dout;       // (num_rows, OC)
    const Real* inp;        // (num_rows, C)
    int num_rows, C, OC;
    bool accumulate;  // add to dweight; otherwise its contents are ignored
};

// Both parts of the backward pass.
template <class Real>
struct MatmulBackward {
    Real* dinp;
    Real *dweight, *dbias = nullptr;
    const Real *dout, *inp, *weight;
    const Real* pre = nullptr;
    int num_rows, C, OC;
    bool accumulate;
    const Real* packed = nullptr;
};

// pad: the device to run on; null: the CPU. Scratch memory is the launchpad's.
template <class Real>
void matmul_forward(LaunchPad* pad, const MatmulForward<Real>& p);
template <class Real>
void matmul_backward_input(LaunchPad* pad, const MatmulBackwardInput<Real>& p);
template <class Real>
void matmul_backward_parameters(LaunchPad* pad, const MatmulBackwardParameters<Real>& p);
template <class Real>
void matmul_backward(LaunchPad* pad, const MatmulBackward<Real>& p);

enum class Direction { forward, backward };

// Packs the weights that the next matmul_forward() calls, or the next matmul_backward() calls, multiply with:
// together they take less time than one by one, and several calls may multiply with a weight. num_rows: of
// all calls with a weight. Returns a pointer for each, to be passed to these calls as `packed`; null where it
// does not pay. The pointers are valid until the next matmul_pack() of this direction, or a call of this
// direction with packed = null, which packs for itself.
template <class Real>
std::vector<const Real*> matmul_pack(LaunchPad* pad, Direction direction, int num_rows,
                                     const std::vector<LinearWeight<Real>>& weights);

// dbias += column sums of dout.
template <class Real>
struct MatmulDbias {
    Real* dbias;       // (OC) +=
    const Real* dout;  // (num_rows, OC)
    int num_rows, OC;
};

// GELU and its derivative are kernels of their own on the CPU: `pre` must be null.
template <class Real>
void matmul_forward_cpu(const MatmulForward<Real>& p);
template <class Real>
void matmul_dinp_cpu(const MatmulBackwardInput<Real>& p);
template <class Real>
void matmul_dweight_cpu(const MatmulBackwardParameters<Real>& p);  // ignores dbias
template <class Real>
void matmul_dbias_cpu(const MatmulDbias<Real>& p);

// Versions without tensor cores ignore `pre`; dweight's versions ignore dbias.
template <class Real>
std::vector<KernelVersion<MatmulForward<Real>, Tile>> matmul_forward_versions();
template <class Real>
std::vector<KernelVersion<MatmulBackwardInput<Real>, Tile>> matmul_dinp_versions();
template <class Real>
std::vector<KernelVersion<MatmulBackwardParameters<Real>, Tile>> matmul_dweight_versions();
template <class Real>
std::vector<KernelVersion<MatmulDbias<Real>>> matmul_dbias_versions();
