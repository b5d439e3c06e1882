// Matrix products of the linear layers, as PyTorch's nn.Linear: out = inp weight^T + bias, and its backward
// pass. N = B*T rows, C channels in, OC channels out. weight is (OC,C), row-major like everything else.
#pragma once
#include <cstddef>
#include <vector>

#include "llmc/launchpad.h"
#include "llmc/partial_product.h"

// out (N,OC) = inp (N,C) weight (OC,C)^T + bias (OC). bias may be null.
// pad: where to run; null means the CPU. scratch: matmul_forward_scratch() floats, contents undefined before
// and after, or null; with it, products of few rows are quicker on some devices. transposed (C,OC): the
// transpose of weight, where it is at hand; on matrix cores it is read instead.
template <class T>
void matmul_forward(LaunchPad* pad, T* out, const T* inp, const T* weight, const T* bias, int N, int C,
                    int OC, float* scratch = nullptr, const T* transposed = nullptr);

// The same, then GELU: pre (N,OC) = inp weight^T + bias, out = gelu(pre). On matrix cores it is one kernel.
template <class T>
void matmul_gelu_forward(LaunchPad* pad, T* out, T* pre, const T* inp, const T* weight, const T* bias, int N,
                         int C, int OC, float* scratch = nullptr, const T* transposed = nullptr);

// matmul_forward, but where it pays the next layer is left to finish the product (N,OC), whose value is out
// then. scratch holds what is left until that layer has run, on the same launchpad. Without scratch, without
// matrix cores and on the CPU, out holds the result at once.
template <class T>
PartialProduct<T> matmul_forward_partial(LaunchPad* pad, T* out, const T* inp, const T* weight, const T* bias,
                                         int N, int C, int OC, float* scratch, const T* transposed = nullptr);

template <class T>
size_t matmul_forward_scratch(const LaunchPad* pad, int N, int C, int OC);

// The backward pass in two functions, which may run side by side, each with scratch of its own.
// dinp (N,C) = dout (N,OC) weight; overwritten. Where inp is gelu(pre), pre (N,C) may be given: dinp is
// multiplied by gelu'(pre) then. scratch: matmul_dinp_scratch() floats, contents undefined before and after;
// null where that is 0.
template <class T>
void matmul_backward_input(LaunchPad* pad, T* dinp, float* scratch, const T* dout, const T* weight, int N,
                           int C, int OC, const T* pre = nullptr);

// The same, but where it pays the next layer is left to finish dinp (N,C), as above. No scratch: at once.
template <class T>
PartialProduct<T> matmul_backward_input_partial(LaunchPad* pad, T* dinp, float* scratch, const T* dout,
                                                const T* weight, int N, int C, int OC);

// dweight (OC,C) = dout^T inp (N,C), whatever was there, or += that with `accumulate`. dbias (OC) += column
// sums of dout, always; null: not computed. scratch: matmul_dweight_scratch() floats, likewise; calls in one
// group may share it.
template <class T>
void matmul_backward_parameters(LaunchPad* pad, T* dweight, T* dbias, float* scratch, const T* dout,
                                const T* inp, int N, int C, int OC, bool accumulate);

// Floats of scratch; 0 on the CPU. matmul_dweight_scratch() is enough for each GPU version below, too.
template <class T>
size_t matmul_dinp_scratch(const LaunchPad* pad, int N, int C, int OC);
template <class T>
size_t matmul_dweight_scratch(const LaunchPad* pad, int N, int C, int OC);

template <class T>
void matmul_forward_cpu(T* out, const T* inp, const T* weight, const T* bias, int N, int C, int OC);
template <class T>
void matmul_dinp_cpu(T* dinp, const T* dout, const T* weight, int N, int C, int OC);
template <class T>
void matmul_dweight_cpu(T* dweight, const T* dout, const T* inp, int N, int C, int OC, bool accumulate);
template <class T>
void matmul_dbias_cpu(T* dbias, const T* dout, int N, int OC);

template <class T>
using MatmulForward = void(LaunchPad& pad, T* out, const T* inp, const T* weight, const T* bias, int N, int C,
                           int OC, int block_size);
template <class T>
using MatmulDinp = void(LaunchPad& pad, T* dinp, const T* dout, const T* weight, int N, int C, int OC,
                        int block_size);
template <class T>
using MatmulDweight = void(LaunchPad& pad, T* dweight, float* scratch, const T* dout, const T* inp, int N,
                           int C, int OC, bool accumulate, int block_size);
template <class T>
using MatmulDbias = void(LaunchPad& pad, T* dbias, float* scratch, const T* dout, int N, int OC,
                         int block_size);

template <class T>
std::vector<KernelVersion<MatmulForward<T>>> matmul_forward_versions();
template <class T>
std::vector<KernelVersion<MatmulDinp<T>>> matmul_dinp_versions();
template <class T>
std::vector<KernelVersion<MatmulDweight<T>>> matmul_dweight_versions();
template <class T>
std::vector<KernelVersion<MatmulDbias<T>>> matmul_dbias_versions();
