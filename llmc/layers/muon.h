// Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/), the optimizer of hidden weight
// matrices: momentum whose result is orthogonalized before it is subtracted. As PyTorch's torch.optim.Muon
// with Nesterov momentum and adjust_lr_fn="match_rms_adamw" (Liu et al. 2025, "Muon is Scalable for LLM
// Training"), so that the learning rate and the weight decay of AdamW suit it.
#pragma once
#include "llmc/launchpad/kernel_version.h"
#include "shaders/args.h"

// The hyperparameters of one step. Kernels read them from memory, so that a recorded step can be replayed. t
// counts from 1; the seed is that of adamw_step().
MuonStep muon_step(float learning_rate, float momentum, int t);

// One of the matrices that a call updates, row-major.
template <class Real>
struct MuonMatrix {
    Real* params;       // (rows, columns)
    float* master;      // (rows, columns): fp32 weights; null: none, as is usual for all or no matrices
    float* m;           // (rows, columns): momentum
    const Real* grads;  // (rows, columns)
    size_t first = 0;   // index of the matrix's first element in its tensor
};

// For each matrix, with G = grads * norm_and_scale[1]:
//     m = momentum m + (1 - momentum) G,   U = momentum m + (1 - momentum) G
//     X = orthogonalized U
//     params -= learning_rate * (0.2 sqrt(max(rows, columns)) X + weight_decay params)
// Master weights and the rounding of params are as in AdamWUpdate, with the same random bits.
//
// Orthogonalizing sets all singular values to about 1: X = U / max(|U|, 1e-7) with the Frobenius norm, then
// five Newton-Schulz steps X = a X + (b A + c A^2) X with A = X X^T, or X = a X + X (b A + c A^2) with
// A = X^T X if that is smaller. With (a, b, c) = (3.4445, -4.7750, 2.0315), singular values of 0.0016 |U| and
// more end between 0.68 and 1.21; smaller ones are multiplied by up to a^5 = 485.
// X is fp32, or bf16 with sums in fp32 in the version on tensor cores. fp16 would lose small singular values.
template <class Real>
struct MuonUpdate {
    std::vector<MuonMatrix<Real>> matrices;  // a GPU orthogonalizes many at a time
    int rows, columns;                       // of each matrix
    const MuonStep* step;  // (1); on a GPU in the launchpad's memory, as is norm_and_scale: read when the
                           // kernels run
    float weight_decay;
    const float* norm_and_scale;  // (2): see layers/global_norm.h; null: scale 1. A norm that is not finite,
                                  // or a scale of 0: nothing changes
    // Bytes of scratch memory, or as many as one matrix takes: a GPU updates the matrices in batches that
    // fit. 48 matrices of 768 x 768 take 226 MB.
    size_t max_scratch = size_t(256) << 20;
};

// pad: the device to run on; null: the CPU. Not to be called inside a group.
template <class Real>
void muon_update(LaunchPad* pad, const MuonUpdate<Real>& p);

// Bytes that muon_update() allocates on the CPU.
size_t muon_workspace_bytes(int rows, int columns);

template <class Real>
std::vector<KernelVersion<MuonUpdate<Real>>> muon_update_versions();

// Whether version 2 computes X in bf16, on tensor cores: the device has bf16 fragments, and rows and columns
// are multiples of 8. Otherwise it is version 1, in fp32.
bool muon_on_tensor_cores(const LaunchPad& pad, int rows, int columns);
