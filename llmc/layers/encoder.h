// Encoder: token plus position embedding, and its backward pass. The backward pass needs no atomics: the host
// sorts the batch's positions by token (one bucket per token), and each row of dwte is summed in one place,
// in a fixed order.
#pragma once
#include "llmc/launchpad/kernel_version.h"

// out = wte[inp] + wpe[t]
template <class Real>
struct EncoderForward {
    Real* out;        // (B,T,C)
    const int* inp;   // (B,T) tokens, each below Vp (the data loader checks them)
    const Real* wte;  // (Vp,C)
    const Real* wpe;  // (at least T, C)
    int B, T, C;
};

// dwte += sum of dout over the positions of each token; dwpe += sum over the batch.
template <class Real>
struct EncoderBackward {
    Real* dwte;          // (Vp,C) +=
    Real* dwpe;          // (at least T, C) +=
    const Real* dout;    // (B,T,C)
    const int* buckets;  // build_encoder_buckets() of the same inp, count = B*T
    int B, T, C;
};

// pad: the device to run on; null: the CPU.
template <class Real>
void encoder_forward(LaunchPad* pad, const EncoderForward<Real>& p);
template <class Real>
void encoder_backward(LaunchPad* pad, const EncoderBackward<Real>& p);

// The positions of a batch, sorted by token. A bucket is one token and its positions, ascending; larger
// buckets come first, so that a GPU starts with the long ones, equal ones in the order of their tokens. The
// size depends on `count` alone, so that the buckets of each step can be uploaded to the same address:
//     [0]                      n, the number of buckets
//     [1 + 2 i], [2 + 2 i]     token of bucket i, and where its positions start; i = n ends the list: -1,
//     count [2 count + 3 + j]        the positions, j = 0 .. count-1: indices into inp
// Unused entries are -1. Takes O(count) for small tokens; sorts only the buckets.
void build_encoder_buckets(int* buckets, const int* inp, int count);
size_t encoder_bucket_ints(int count);  // size of such an array; count at most 2^29

template <class Real>
std::vector<KernelVersion<EncoderForward<Real>>> encoder_forward_versions();
template <class Real>
std::vector<KernelVersion<EncoderBackward<Real>>> encoder_backward_versions();
