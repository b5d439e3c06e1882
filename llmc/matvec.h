// A linear layer of a single row, as when a text is written token by token: out = weight inp + bias. Each
// weight is used once, so the time is that of reading them; llmc/matmul.h has the layer for many rows.
#pragma once
#include <vector>

#include "llmc/launchpad.h"

// out (OC) = weight (OC,C) inp (C) + bias (OC). bias may be null. pad: where to run; null means the CPU.
template <class T>
void matvec_forward(LaunchPad* pad, T* out, const T* inp, const T* weight, const T* bias, int C, int OC);

template <class T>
void matvec_forward_cpu(T* out, const T* inp, const T* weight, const T* bias, int C, int OC);

template <class T>
using MatvecForward = void(LaunchPad& pad, T* out, const T* inp, const T* weight, const T* bias, int C,
                           int OC, int block_size);
template <class T>
std::vector<KernelVersion<MatvecForward<T>>> matvec_forward_versions();
