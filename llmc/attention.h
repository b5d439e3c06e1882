// Causal multi-head self-attention (Vaswani et al. 2017) that never holds a T x T matrix: softmax runs online
// over blocks of keys (FlashAttention, Dao et al. 2022), and the backward pass recomputes the probabilities
// from lse.
//     out_i = sum_{j <= i} p_ij v_j,   p_ij = exp(q_i k_j / sqrt(hs) - lse_i),   hs = C / NH, at most 128.
// A head's hs channels lie together: q of head h in row (b,t) of qkv starts at channel h * hs, k at C + h *
// hs, v at 2C + h * hs. Every function throws Error where C is not a multiple of NH or hs is over 128.
#pragma once
#include <vector>

#include "llmc/launchpad.h"

// out (B,T,C); lse (B,NH,T): log of the sum of the exponentials of the scaled scores; qkv (B,T,3C). seq_len
// is T. pad: where to run; null means the CPU.
template <class T>
void attention_forward(LaunchPad* pad, T* out, float* lse, const T* qkv, int B, int seq_len, int C, int NH);

// dqkv (B,T,3C), overwritten; delta (B,NH,T): scratch, receives the sum of dout * out over each head's
// channels, but where attention_leaves_delta(); dout, out (B,T,C), lse (B,NH,T) and qkv (B,T,3C) as in the
// forward pass.
template <class T>
void attention_backward(LaunchPad* pad, T* dqkv, float* delta, const T* dout, const T* out, const float* lse,
                        const T* qkv, int B, int seq_len, int C, int NH);

template <class T>
void attention_forward_cpu(T* out, float* lse, const T* qkv, int B, int seq_len, int C, int NH);
template <class T>
void attention_backward_cpu(T* dqkv, float* delta, const T* dout, const T* out, const float* lse,
                            const T* qkv, int B, int seq_len, int C, int NH);

template <class T>
using AttentionForward = void(LaunchPad& pad, T* out, float* lse, const T* qkv, int B, int seq_len, int C,
                              int NH, int block_size);
template <class T>
std::vector<KernelVersion<AttentionForward<T>>> attention_forward_versions();

template <class T>
using AttentionBackward = void(LaunchPad& pad, T* dqkv, float* delta, const T* dout, const T* out,
                               const float* lse, const T* qkv, int B, int seq_len, int C, int NH,
                               int block_size);
template <class T>
std::vector<KernelVersion<AttentionBackward<T>>> attention_backward_versions();

// Whether version 3 runs on matrix cores for these sizes, rather than hand over to version 2: the device
// multiplies matrices of T, and hs is a multiple of 16.
template <class T>
bool attention_on_matrix_cores(const LaunchPad& pad, int C, int NH);

// Whether version 3 of the backward pass sums delta within its kernels and leaves the array as it was: on
// matrix cores, where seq_len is at most 64 and hs a power of two. (An `out` that is not aligned to 16 bytes
// keeps it from that.)
template <class T>
bool attention_leaves_delta(const LaunchPad& pad, int seq_len, int C, int NH);

// hs = C / NH, or Error where the layer cannot run with these sizes.
int attention_head_size(int C, int NH);
