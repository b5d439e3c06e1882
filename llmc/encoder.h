// Encoder: token plus position embedding, and its backward pass, which needs no atomics: the host sorts the
// batch's positions by token (a bucket per token), and each row of dwte is summed in one place, in a fixed
// order.
#pragma once
#include <vector>

#include "llmc/adamw.h"
#include "llmc/launchpad.h"

// out (B,seq,C) = wte[inp] + wpe[t]; inp (B,seq) tokens below Vp (the data loader sees to that); wte (Vp,C);
// wpe (at least seq, C). pad: where to run; null means the CPU.
template <class T>
void encoder_forward(LaunchPad* pad, T* out, const int* inp, const T* wte, const T* wpe, int B, int seq,
                     int C);

// encoder_forward with wte as adamw_update() will leave it, to the bit, before or while that runs elsewhere
// on what this reads: nothing but `out` is written, and a skipped update is skipped here, too. due: of all of
// wte, (Vp,C) each. wpe is taken as it is.
template <class T>
void encoder_forward_updated(LaunchPad& pad, T* out, const int* inp, const T* wte, const T* wpe,
                             const AdamWDue<T>& due, int B, int seq, int C);

// dwte (Vp,C) += sum of dout over the positions of each token; dwpe (seq,C) += sum over the batch. dout
// (B,seq,C); buckets as build_encoder_buckets() makes them of the same inp, count = B*seq.
template <class T>
void encoder_backward(LaunchPad* pad, T* dwte, T* dwpe, const T* dout, const int* buckets, int B, int seq,
                      int C);

// The positions of a batch sorted by token. A bucket is one token and its positions, ascending; larger
// buckets stand first, equal ones in the order of their tokens, so that a GPU starts with the long ones. Of
// fixed size for a fixed count, so that each step's buckets can be uploaded to the same address:
//     [0]                      n, the number of buckets
//     [1 + 2 i], [2 + 2 i]     token of bucket i, and where its positions start; i = n ends the list: -1,
//     count [2 count + 3 + j]        the positions, j = 0 .. count-1: indices into inp
// What lies between the list and the positions is -1. Takes O(count log count).
void build_encoder_buckets(int* buckets, const int* inp, int count);
size_t encoder_bucket_ints(int count);  // size of such an array; count at most 2^29

template <class T>
void encoder_forward_cpu(T* out, const int* inp, const T* wte, const T* wpe, int B, int seq, int C);
template <class T>
void encoder_backward_cpu(T* dwte, T* dwpe, const T* dout, const int* buckets, int B, int seq, int C);

template <class T>
using EncoderForward = void(LaunchPad& pad, T* out, const int* inp, const T* wte, const T* wpe, int B,
                            int seq, int C, int block_size);
template <class T>
using EncoderForwardUpdated = void(LaunchPad& pad, T* out, const int* inp, const T* wte, const T* wpe,
                                   const AdamWDue<T>& due, int B, int seq, int C, int block_size);
template <class T>
using EncoderBackward = void(LaunchPad& pad, T* dwte, T* dwpe, const T* dout, const int* buckets, int B,
                             int seq, int C, int block_size);
template <class T>
std::vector<KernelVersion<EncoderForward<T>>> encoder_forward_versions();
template <class T>
std::vector<KernelVersion<EncoderForwardUpdated<T>>> encoder_forward_updated_versions();
template <class T>
std::vector<KernelVersion<EncoderBackward<T>>> encoder_backward_versions();
