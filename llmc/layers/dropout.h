// Dropout sets a random share of the elements to zero and scales the others, so that the mean stays: out = 0
// for the dropped elements, inp / (1 - rate) for the others. The backward pass is the same function of the
// gradient. An element's random bits are a hash of its index and the key, so the mask is computed anew
// instead of being kept, and it is the same on CPU and GPU.
#pragma once
#include <array>

#include "llmc/launchpad/kernel_version.h"

template <class Real>
struct Dropout {
    Real* out;            // (n); may be inp
    const Real* inp;      // (n)
    const uint32_t* key;  // (2) dropout_key(); in memory, since it changes and kernels are recorded once
    uint32_t site;        // where in the model, below 65536: each place has a mask of its own
    float rate;           // probability that an element is dropped, at least 0 and below 1
    size_t n;
};

// The key of the masks of one micro-step in one process.
std::array<uint32_t, 2> dropout_key(uint64_t seed, int step, int micro_step, int process);

// pad: the device to run on; null: the CPU.
template <class Real>
void dropout(LaunchPad* pad, const Dropout<Real>& p);

template <class Real>
std::vector<KernelVersion<Dropout<Real>>> dropout_versions();
