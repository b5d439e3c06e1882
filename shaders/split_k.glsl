// Unreduced results of split-K GEMMs (llmc/gemm/split_k.h): the kernels that read them reduce the partial
// sums as they load them. The sums are bit-identical to the host function's, reduce_split_k().
#include "packs.glsl"

layout(constant_id = 2) const uint SPLITS = 1;  // 1: the result is not split

// Pack i of an fp32 array.
mat2x4 load_floats(Floats p, uint i) {
    Floats4 fours = Floats4(uint64_t(p));
    if (WIDTH == 8) return mat2x4(fours.x[2 * i], fours.x[2 * i + 1]);
    if (WIDTH == 4) return mat2x4(fours.x[i], vec4(0));
    return mat2x4(vec4(p.x[i], 0, 0, 0), vec4(0));
}

// Pack i of row `row`, the sum of partials (SPLITS, N, width) over the splits, in order. The loads are
// independent of each other.
mat2x4 reduce_split_k(Floats partials, uint row, uint N, uint width, uint i) {
    mat2x4 sum = mat2x4(0);
    [[unroll]] for (uint split = 0; split < SPLITS; split++)
        sum += load_floats(float_row(partials, uint64_t(split) * N + row, width), i);
    return sum;
}
