// GELU in its tanh form, as GPT-2 has it:
//     gelu(x) = x/2 * (1 + tanh(u)) = x / (1 + exp(-2 u)),   u = sqrt(2/pi) * (x + 0.044715 x^3).
// The second form is the one computed: it keeps its relative precision for negative x. NaN gives NaN, and no
// finite x overflows.
#pragma once
#include <vector>

#include "llmc/launchpad.h"

// out (n), inp (n): out = gelu(inp); out may be inp. pad: where to run; null means the CPU.
template <class T>
void gelu_forward(LaunchPad* pad, T* out, const T* inp, size_t n);

// dinp (n), inp (n), dout (n): dinp = dout * gelu'(inp); dinp may be dout.
template <class T>
void gelu_backward(LaunchPad* pad, T* dinp, const T* inp, const T* dout, size_t n);

template <class T>
void gelu_forward_cpu(T* out, const T* inp, size_t n);
template <class T>
void gelu_backward_cpu(T* dinp, const T* inp, const T* dout, size_t n);

template <class T>
using GeluForward = void(LaunchPad& pad, T* out, const T* inp, size_t n, int block_size);
template <class T>
using GeluBackward = void(LaunchPad& pad, T* dinp, const T* inp, const T* dout, size_t n, int block_size);
template <class T>
std::vector<KernelVersion<GeluForward<T>>> gelu_forward_versions();
template <class T>
std::vector<KernelVersion<GeluBackward<T>>> gelu_backward_versions();
