// The products of the linear layers on matrix cores (version 5, matmul5.glsl): how they are cut, and their
// launch. Layers use them through llmc/matmul.h; the trainer has their tiles measured.
#pragma once
#include <vector>

#include "llmc/launchpad.h"
#include "llmc/partial_product.h"
#include "shaders/args.h"

// A product (M, N) over K by one of the kernels matmul_forward5, matmul_dinp5 and matmul_dweight5.
struct MatrixProduct {
    const char* kernel;
    int M, N, K;
    int epilogue;               // EPILOGUE_... of shaders/args.h, but not EPILOGUE_PARTIAL
    bool left_partial = false;  // the next layer finishes it (llmc/partial_product.h), with at most a bias
};
// Those of a linear layer of N rows, C inputs and OC outputs: out, dinp, dweight.
// The transpose of the weights lies as dinp's kernel reads them.
inline MatrixProduct forward5_product(int N, int C, int OC, int epilogue, bool left_partial = false,
                                      bool from_transposed = false) {
    return {from_transposed ? "matmul_dinp5" : "matmul_forward5", N, OC, C, epilogue, left_partial};
}
inline MatrixProduct dinp5_product(int N, int C, int OC, int epilogue, bool left_partial = false) {
    return {"matmul_dinp5", N, C, OC, epilogue, left_partial};
}
inline MatrixProduct dweight5_product(int N, int C, int OC, bool accumulate) {
    return {"matmul_dweight5", OC, C, N, accumulate ? EPILOGUE_ADD : EPILOGUE_NONE};
}

// How a product is cut: into tiles, which block_size names, and K into slices, each of slice_k but the last.
// The partial results of several slices are added by a second kernel, or by the next layer's.
struct MatrixCut {
    int block_size;
    int slices, slice_k;
};

// Whether the device multiplies T on matrix cores, and rows of C and OC elements consist of whole 16-byte
// pieces.
template <class T>
bool on_matrix_cores(const LaunchPad& pad, int C, int OC);

// Whether forward products of N rows are so much quicker from transposed weights that transposing them pays.
template <class T>
bool transposing_pays(const LaunchPad& pad, int N, int C, int OC);

// A kernel's block sizes, for the tables of versions. They name tiles; how many invocations a workgroup has
// follows from the device's subgroups.
std::vector<int> matrix_block_sizes(const char* kernel);

// Among how many teams such tiles divide K: those of as many give the same bits.
int matrix_teams(int block_size);

// The cut that should be the quickest; with block_size 0, of all tiles, or with those that measure_tiles()
// found to be it. may_slice: K may be sliced. Measurements change neither slices nor teams, and so no bit of
// a result.
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

// A product, ready to launch.
template <class T>
struct MatrixLaunch {
    MatrixProduct product;
    MatrixCut cut;
    MatmulMatrixArgs args;

    // K is sliced only where there is scratch for the partial results.
    MatrixLaunch(LaunchPad& pad, const MatrixProduct& p, int block_size, float* scratch,
                 const MatmulMatrixArgs& addresses)
        : product(p), cut(cut_matrix_product<T>(pad, p, block_size, scratch != nullptr)), args(addresses) {
        if (cut.slices > 1) args.partials = pad.at(scratch, partial_floats(product, cut));
    }
    void start(LaunchPad& pad) const { launch_matrix_product<T>(pad, product, cut, args); }
    void finish(LaunchPad& pad) const { finish_matrix_product<T>(pad, product, cut, args); }
    void run(LaunchPad& pad) const {
        start(pad);
        if (cut.slices > 1) pad.barrier();
        finish(pad);
    }
    // Leaves the slices to the next layer. out, bias, scratch: what the addresses were made of.
    PartialProduct<T> leave(LaunchPad& pad, T* out, const T* bias, const float* scratch) const {
        start(pad);
        if (cut.slices == 1) return {out};
        return {out, scratch, cut.slices, bias};
    }
};

// Of these products, those whose tiles were not measured on this device.
template <class T>
std::vector<MatrixProduct> unmeasured_tiles(const LaunchPad& pad, const std::vector<MatrixProduct>& products);

// Measures which tiles are the quickest for each product, and keeps that on disk for this device and driver;
// needs memory for operands and results of the largest. Takes a second, and as long as the driver takes to
// compile some ten kernels for each shape.
template <class T>
void measure_tiles(LaunchPad& pad, const std::vector<MatrixProduct>& products);
