// Split-K GEMMs whose partial sums are reduced by the layer that reads the result. With few rows, a
// tensor-core GEMM divides K among several workgroups per tile; a kernel that only adds up their partial sums
// takes longer to start than to run. matmul_forward() and matmul_backward() therefore leave such a result
// unreduced if their caller says that a LayerNorm reads it next. LaunchPad::at(), copy() and copy_beside(),
// of the result's first element, reduce it first; no other pointer into it may be used before that.
#pragma once
#include "llmc/launchpad/launchpad.h"
#include "shaders/args.h"

// value (num_rows, C) = the sum of partials (splits, num_rows, C), in order, plus bias (C), rounded to Real.
template <class Real>
struct SplitKResult {
    Real* value;
    const float* partials = nullptr;
    int splits = 1;              // 1: value has been computed
    const Real* bias = nullptr;  // null: none to be added
};

// The unreduced result at `value`, if the launchpad holds one of this shape; its reader takes over the
// reduction. Otherwise splits is 1.
template <class Real>
SplitKResult<Real> take_unreduced(LaunchPad& pad, const Real* value);

// Reduces it by a kernel of its own; the caller waits with barrier() before reading it inside a group. C is a
// multiple of 8, as in all GEMMs that split K.
template <class Real>
void reduce_split_k(LaunchPad& pad, const SplitKResult<Real>& result, int num_rows, int C);

// The kernel that does so: args.outp (rows of num_columns) = epilogue(sum of partials), EPILOGUE_... of
// shaders/args.h.
template <class Real>
void launch_split_k_reduction(LaunchPad& pad, const MatmulReduceArgs& args, int num_columns, int epilogue);
