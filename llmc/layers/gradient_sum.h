// The sum of the gradients that several processes have placed in shared memory.
#pragma once
#include "llmc/launchpad/kernel_version.h"

// out[i] = inp[0][i] + inp[1][i] + ..., added in that order in fp32 and rounded once. inp[k] lies `stride`
// elements after inp[k - 1]. With one row, it is copied.
template <class Real>
struct GradientSum {
    Real* out;             // (n); outside of inp; may be own
    Real* copy = nullptr;  // (n): also receives the sum, and may lie in row own_index of inp; or null
    const Real* inp;       // (count, stride), of which the first n of each row are read, except row own_index
    const Real* own;  // (n) takes the place of row own_index: this process's gradients, in its own memory
    size_t n, stride;
    int count, own_index;  // own_index may be -1: all rows are read from inp
};

// pad: the device to run on; null: the CPU.
template <class Real>
void gradient_sum(LaunchPad* pad, const GradientSum<Real>& p);

// The same for several sums, none of which reads what another writes. The CPU's threads divide all of them.
template <class Real>
void gradient_sums(LaunchPad* pad, const std::vector<GradientSum<Real>>& all);

template <class Real>
std::vector<KernelVersion<GradientSum<Real>>> gradient_sum_versions();
