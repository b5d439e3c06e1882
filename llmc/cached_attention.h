// Causal attention (llmc/attention.h) of the newest rows of one sequence, over the queries, keys and values
// of all its rows, which are kept: a text that grows by a row costs one row of attention.
#pragma once
#include <vector>

#include "llmc/launchpad.h"

// out (N,C): rows first .. first+N-1 of attention_forward() with B = 1; qkv (first+N, 3C). pad: where to run;
// null means the CPU. Error where C is not a multiple of NH or heads have more than 128 channels.
template <class T>
void cached_attention_forward(LaunchPad* pad, T* out, const T* qkv, int first, int N, int C, int NH);

template <class T>
void cached_attention_forward_cpu(T* out, const T* qkv, int first, int N, int C, int NH);

template <class T>
using CachedAttentionForward = void(LaunchPad& pad, T* out, const T* qkv, int first, int N, int C, int NH,
                                    int block_size);
template <class T>
std::vector<KernelVersion<CachedAttentionForward<T>>> cached_attention_forward_versions();
