// The products of the linear layers on matrix cores (version 5, matmul5.glsl): how they are cut, and their
// launch. Used by llmc/matmul.cpp alone.
#pragma once
#include <vector>

#include "llmc/launchpad.h"
#include "shaders/args.h"

// A product (M, N) over K by one of the kernels matmul_forward5, matmul_dinp5 and matmul_dweight5.
struct MatrixProduct {
    const char* kernel;
    int M, N, K;
    int epilogue;  // EPILOGUE_... of shaders/args.h, but not EPILOGUE_PARTIAL
};

// How a product is cut: into tiles, which block_size names, and K into slices, each of slice_k but the last.
// The partial results of several slices are added by a second kernel.
struct MatrixCut {
    int block_size;
    int slices, slice_k;
};

// Whether the device multiplies T on matrix cores, and rows of C and OC elements consist of whole 16-byte
// pieces.
template <class T>
bool on_matrix_cores(const LaunchPad& pad, int C, int OC);

// Block sizes for the tables of versions. They name tiles; how many invocations a workgroup has follows from
// the device's subgroups.
std::vector<int> matrix_block_sizes();

// The cut that should be the quickest; with block_size 0, of all tiles. may_slice: K may be sliced.
template <class T>
MatrixCut cut_matrix_product(const LaunchPad& pad, const MatrixProduct& product, int block_size,
                             bool may_slice);

// Floats of scratch that a cut needs: its partial results.
size_t partial_floats(const MatrixProduct& product, const MatrixCut& cut);

// The two steps of a product; the second does nothing where K is not sliced, and must wait for the first.
// args holds the addresses.
template <class T>
void launch_matrix_product(LaunchPad& pad, const MatrixProduct& product, const MatrixCut& cut,
                           MatmulMatrixArgs args);
template <class T>
void finish_matrix_product(LaunchPad& pad, const MatrixProduct& product, const MatrixCut& cut,
                           const MatmulMatrixArgs& args);
