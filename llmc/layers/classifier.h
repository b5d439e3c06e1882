// The classifier: softmax over the vocabulary, cross-entropy loss, and the gradient of both, fused.
#pragma once
#include "llmc/launchpad/kernel_version.h"

// For each row:
//     losses[row] = -log softmax(logits[row, 0..V))[targets[row]]
// With write_gradients, dloss * (softmax - onehot(target)) overwrites the row, and 0 its padding; otherwise
// the logits stay. A row with NaN or +inf gives a NaN loss. A target outside 0..V-1, such as ignored_target,
// does not count: the loss and all gradients of its row are 0. The logits of a whole batch would be the
// largest tensor of all: callers pass chunks of rows.
template <class Real>
struct FusedClassifier {
    Real* logits;        // (num_rows, Vp), of which columns V..Vp are padding
    float* losses;       // (num_rows)
    const int* targets;  // (num_rows)
    float dloss;         // gradient of each loss: 1 / (rows of the step) for a mean
    int num_rows, V, Vp;
    bool write_gradients;
};

// total[0] += scale * (losses[0] + ... + losses[n - 1]), in a fixed order.
struct SumLosses {
    float* total;         // (1); zero it first
    const float* losses;  // (n)
    int n;
    float scale;
};

// pad: the device to run on; null: the CPU.
template <class Real>
void fused_classifier(LaunchPad* pad, const FusedClassifier<Real>& p);
void sum_losses(LaunchPad* pad, const SumLosses& p);

template <class Real>
std::vector<KernelVersion<FusedClassifier<Real>>> fused_classifier_versions();
std::vector<KernelVersion<SumLosses>> sum_losses_versions();
