// The classifier: softmax over the vocabulary, cross-entropy loss, and the gradient of both, fused.
#pragma once
#include <vector>

#include "llmc/launchpad.h"

// For each of N rows of V logits, which lie Vp >= V apart (the rest is padding):
//     losses[row] = -log softmax(logits[row, 0..V))[targets[row]]
// and, with write_gradients, the row is overwritten by dloss * (softmax - onehot(target)), its padding by 0;
// without it the logits stay. dloss is the loss's gradient: 1 / (all rows of the step) for a mean. logits
// (N,Vp); losses, targets (N). Targets must lie in 0..V-1. A row with NaN or +inf gives a NaN loss. The whole
// model has more rows than one likes to keep logits of: callers hand in chunks of rows. pad: where to run;
// null means the CPU.
template <class T>
void fused_classifier(LaunchPad* pad, T* logits, float* losses, const int* targets, float dloss, int N, int V,
                      int Vp, bool write_gradients);

template <class T>
void fused_classifier_cpu(T* logits, float* losses, const int* targets, float dloss, int N, int V, int Vp,
                          bool write_gradients);

template <class T>
using FusedClassifier = void(LaunchPad& pad, T* logits, float* losses, const int* targets, float dloss, int N,
                             int V, int Vp, bool write_gradients, int block_size);
template <class T>
std::vector<KernelVersion<FusedClassifier<T>>> fused_classifier_versions();

// total[0] += scale * (losses[0] + ... + losses[n - 1]), in a fixed order. Zero total[0] first with fill().
void sum_losses(LaunchPad* pad, float* total, const float* losses, int n, float scale);
void sum_losses_cpu(float* total, const float* losses, int n, float scale);

using SumLosses = void(LaunchPad& pad, float* total, const float* losses, int n, float scale, int block_size);
std::vector<KernelVersion<SumLosses>> sum_losses_versions();
