// Causal attention (layers/attention.h) of the newest rows of one sequence over the cached queries, keys and
// values of all its rows: each generated token costs one row of attention.
#pragma once
#include "llmc/launchpad/kernel_version.h"

template <class Real>
struct CachedAttentionForward {
    Real* out;        // (num_rows, C): rows first .. first + num_rows - 1 of attention_forward() with B = 1
    const Real* qkv;  // (first + num_rows, 3C)
    int first, num_rows, C, NH;
};

// pad: the device to run on; null: the CPU. Error if C is not a multiple of NH, or heads have more than 128
// channels.
template <class Real>
void cached_attention_forward(LaunchPad* pad, const CachedAttentionForward<Real>& p);

template <class Real>
void cached_attention_forward_cpu(const CachedAttentionForward<Real>& p);

template <class Real>
std::vector<KernelVersion<CachedAttentionForward<Real>>> cached_attention_forward_versions();
