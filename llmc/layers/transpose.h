// The transpose of a matrix, for GEMMs that are faster from the other layout.
#pragma once
#include "llmc/layers/kernel_version.h"

// out = inp^T. On a GPU both sizes are multiples of 8, and both addresses are aligned to 16 bytes; Error
// otherwise.
template <class Real>
struct Transpose {
    Real* out;        // (columns, rows)
    const Real* inp;  // (rows, columns)
    int rows, columns;
};

// pad: the device to run on; null: the CPU.
template <class Real>
void transpose(LaunchPad* pad, const Transpose<Real>& p);

template <class Real>
void transpose_cpu(const Transpose<Real>& p);

template <class Real>
std::vector<KernelVersion<Transpose<Real>>> transpose_versions();
