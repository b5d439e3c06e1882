// The products of the linear layers on matrix cores (matmul5.glsl): how they are cut, and their launch. Used
// by llmc/matmul.cpp alone.
#pragma once
#include <vector>

#include "llmc/launchpad.h"
#include "shaders/args.h"

// A product (M, N) over K by one of the kernels matmul_forward5, matmul_dinp5 and matmul_dweight5.
struct MatrixProduct {
    const char* kernel;
    int M, N, K;
    int epilogue;     // EPILOGUE_... of shaders/args.h
    int slices = 1;   // of K, each of slice_k but the last; more than one with EPILOGUE_PARTIAL alone
    int slice_k = 0;  // 0: all of K
};

// Whether the device multiplies T on matrix cores, and rows of C and OC elements consist of whole 16-byte
// pieces.
template <class T>
bool on_matrix_cores(const LaunchPad& pad, int C, int OC);

// Block sizes for the tables of versions. They name a way to cut a product: the invocations of a workgroup
// where a subgroup has 32; there are more or fewer where it has another size.
std::vector<int> matrix_block_sizes();

// The block size that training uses.
template <class T>
int choose_matrix_block(const LaunchPad& pad, const MatrixProduct& product);

// How many slices of K give a large GPU whole rounds of workgroups, where the product has few tiles; and the
// length of a slice.
template <class T>
MatrixProduct sliced(const LaunchPad& pad, MatrixProduct product, int block_size);

// Launches the product; args holds the addresses.
template <class T>
void launch_matrix_product(LaunchPad& pad, const MatrixProduct& product, MatmulMatrixArgs args,
                           int block_size);
