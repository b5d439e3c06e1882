// A product that was left in SLICES partial results (llmc/partial_product.h): kernels that read it add those up on the way,
// as matmul5_finish would have.
#include "packs.glsl"

layout(constant_id = 2) const uint SLICES = 1;  // 1: there are none, the product is finished

// Pack number i of an array of fp32.
mat2x4 load_floats(Floats p, uint i) {
    Floats4 fours = Floats4(uint64_t(p));
    if (WIDTH == 8) return mat2x4(fours.x[2 * i], fours.x[2 * i + 1]);
    if (WIDTH == 4) return mat2x4(fours.x[i], vec4(0));
    return mat2x4(vec4(p.x[i], 0, 0, 0), vec4(0));
}

// Pack number i of row number `row` of partials (SLICES, N, width), added up over the slices in their order. None of the
// loads waits for another.
mat2x4 add_slices(Floats partials, uint row, uint N, uint width, uint i) {
    mat2x4 sum = mat2x4(0);
    [[unroll]] for (uint slice = 0; slice < SLICES; slice++)
        sum += load_floats(float_row(partials, uint64_t(slice) * N + row, width), i);
    return sum;
}
