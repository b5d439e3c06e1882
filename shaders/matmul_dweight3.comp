// dweight = dout^T inp, or += if args.accumulate, with register blocking: see matmul3.glsl. K is the number
// of rows here and may be large while dweight is small. The kernel then uses split-K, and matmul_sum
// reduces the partial sums in a fixed order.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matmul3.glsl"

layout(push_constant, scalar) uniform Push { MatmulDweightArgs args; };

void store4_or_add(Reals p, uint column, vec4 v) {
    if (args.accumulate != 0) v += load_four(uint64_t(p) + column * REAL_BYTES, C - column);
    store_four(p, column, v, C);
}

void store_partial4(Floats p, uint column, vec4 v) {
    if (WIDE) {
        Floats4(uint64_t(p) + column * 4).x[0] = v;
        return;
    }
    [[unroll]] for (uint i = 0; i < 4; i++)
        if (column + i < C) p.x[column + i] = v[i];
}

void main() {
    const Tile tile = find_tile(OC, C, args.splits);
    if (tile.outside) return;
    const uint first = tile.split * args.rows_per_split;
    const uint end = min(first + args.rows_per_split, args.num_rows);
    multiply(Operand(args.dout, OC, OC, true), Operand(args.inp, C, C, true), tile, first, end);
    if (k_group() != 0) return;
    [[unroll]] for (uint i = 0; i < ROWS; i++)
        [[unroll]] for (uint j = 0; j < 2; j++) {
            const uint row = tile.row + row_in_tile(i), column = tile.column + column_in_tile(j);
            if (row < OC && column < C) {
                if (args.splits > 1)
                    store_partial4(float_row(args.partials, uint64_t(tile.split) * OC + row, C), column,
                                   accumulators[i][j]);
                else
                    store4_or_add(real_row(args.dweight, row, C), column, accumulators[i][j]);
            }
        }
}
