// A linear layer of a single row, as in generating text token by token: out = weight inp + bias. Each weight
// is used once, so reading the weights takes all of the time; layers/matmul.h has the layer for many rows.
#pragma once
#include "llmc/launchpad/kernel_version.h"

template <class Real>
struct MatvecForward {
    Real* out;           // (OC)
    const Real* inp;     // (C)
    const Real* weight;  // (OC,C)
    const Real* bias;    // (OC); null: none
    int C, OC;
};

// pad: the device to run on; null: the CPU.
template <class Real>
void matvec_forward(LaunchPad* pad, const MatvecForward<Real>& p);

template <class Real>
void matvec_forward_cpu(const MatvecForward<Real>& p);

// sums (rows) = weight (rows,C) x (C), on one CPU thread.
template <class Real>
void dot_rows(float* sums, const float* x, const Real* weight, int rows, int C);

template <class Real>
std::vector<KernelVersion<MatvecForward<Real>>> matvec_forward_versions();
