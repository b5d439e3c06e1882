// GELU, in the tanh approximation that GPT-2 uses (Hendrycks and Gimpel 2016):
//     gelu(x) = x/2 * (1 + tanh(u)) = x / (1 + exp(-2 u)),   u = sqrt(2/pi) * (x + 0.044715 x^3).
// The second form is computed, since it keeps its relative precision for negative x. NaN gives NaN, and no
// finite x overflows.
#pragma once
#include "llmc/launchpad/kernel_version.h"

// out = gelu(inp)
template <class Real>
struct GeluForward {
    Real* out;        // (n); may be inp
    const Real* inp;  // (n)
    size_t n;
};

// dinp = dout * gelu'(inp)
template <class Real>
struct GeluBackward {
    Real* dinp;        // (n); may be dout
    const Real* inp;   // (n) of the forward pass
    const Real* dout;  // (n)
    size_t n;
};

// pad: the device to run on; null: the CPU.
template <class Real>
void gelu_forward(LaunchPad* pad, const GeluForward<Real>& p);
template <class Real>
void gelu_backward(LaunchPad* pad, const GeluBackward<Real>& p);

template <class Real>
std::vector<KernelVersion<GeluForward<Real>>> gelu_forward_versions();
template <class Real>
std::vector<KernelVersion<GeluBackward<Real>>> gelu_backward_versions();
