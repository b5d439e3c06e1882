// Causal multi-head self-attention (Vaswani et al. 2017) that never stores a T x T matrix: softmax runs
// online over blocks of keys (FlashAttention, Dao et al. 2022), and the backward pass recomputes the
// probabilities from lse.
//     out_i = sum_{j <= i} p_ij v_j,   p_ij = exp(q_i k_j / sqrt(hs) - lse_i),   hs = C / NH, at most 128.
// The hs channels of a head are adjacent: in row (b,t) of qkv, q of head h starts at channel h * hs, k at C +
// h * hs, v at 2C + h * hs. Every function throws Error if C is not a multiple of NH, or hs is over 128.
#pragma once
#include "llmc/launchpad/kernel_version.h"

template <class Real>
struct AttentionForward {
    Real* out;        // (B,T,C)
    float* lse;       // (B,NH,T) output: log of the sum of the exponentials of the scaled scores
    const Real* qkv;  // (B,T,3C)
    int B, T, C, NH;
};

template <class Real>
struct AttentionBackward {
    Real* dqkv;        // (B,T,3C), overwritten
    float* delta;      // (B,NH,T) scratch: sum of dout * out over each head's channels
    const Real* dout;  // (B,T,C)
    const Real* out;   // (B,T,C) of the forward pass, as are lse and qkv
    const float* lse;  // (B,NH,T)
    const Real* qkv;   // (B,T,3C)
    int B, T, C, NH;
};

// pad: the device to run on; null: the CPU.
template <class Real>
void attention_forward(LaunchPad* pad, const AttentionForward<Real>& p);
template <class Real>
void attention_backward(LaunchPad* pad, const AttentionBackward<Real>& p);

template <class Real>
void attention_forward_cpu(const AttentionForward<Real>& p);
template <class Real>
void attention_backward_cpu(const AttentionBackward<Real>& p);

template <class Real>
std::vector<KernelVersion<AttentionForward<Real>>> attention_forward_versions();
template <class Real>
std::vector<KernelVersion<AttentionBackward<Real>>> attention_backward_versions();

// Whether version 3 runs on cooperative matrices for these sizes, rather than fall back to version 2: the
// device has fragments for Real, and hs is a multiple of 16 and of 2 * K of the fragments: 32, 64, 96, 128
// where K is 16.
template <class Real>
bool attention_on_tensor_cores(const LaunchPad& pad, int C, int NH);

// hs = C / NH, or Error if the layer cannot run with these sizes.
int attention_head_size(int C, int NH);
