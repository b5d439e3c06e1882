// Attention of the newest row of each of a few texts over the cached keys and values of that text. Positions
// come from memory, so that the commands of a token can be recorded once.
#pragma once
#include "llmc/launchpad/kernel_version.h"

template <class Real>
struct DecodeAttention {
    Real* out;             // (B,C)
    const Real* cache;     // (B,T,3C): queries, keys and values
    const int* positions;  // (B) of the newest rows
    int num_texts, T, C, NH;
};

// pad: the device to run on; null: the CPU. Error if C is not a multiple of NH, or heads have more than 128
// channels.
template <class Real>
void decode_attention(LaunchPad* pad, const DecodeAttention<Real>& p);

template <class Real>
std::vector<KernelVersion<DecodeAttention<Real>>> decode_attention_versions();
