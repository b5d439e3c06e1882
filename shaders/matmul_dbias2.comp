// Column sums of dout in two steps: a workgroup sums 32 packs of columns over a slice of the rows, which its lanes
// share and add up through shared memory, and matmul_sum adds the slices. Version 1 has OC invocations at work; this
// has as many as the device wants, with 16-byte reads. With a single slice it adds to dbias itself.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { MatmulDbiasArgs args; };

const uint COLUMNS = 32;  // packs
const uint LANES = BLOCK / COLUMNS;
const uint UNDER_WAY = 8;  // reads of an invocation at a time

shared vec4 partial[BLOCK * FOURS];

void main() {
    const uint across = (args.OC / WIDTH + COLUMNS - 1) / COLUMNS, split = group_index() / across;
    if (split >= args.splits) return;
    const uint id = gl_LocalInvocationID.x, pack = group_index() % across * COLUMNS + id % COLUMNS;
    const bool inside = pack < args.OC / WIDTH;
    const uint end = min((split + 1) * args.slice_rows, args.N);
    mat2x4 sum = mat2x4(0);
    uint row = split * args.slice_rows + id / COLUMNS;
    for (; inside && row + (UNDER_WAY - 1) * LANES < end; row += UNDER_WAY * LANES) {
        mat2x4 values[UNDER_WAY];
        [[unroll]] for (uint k = 0; k < UNDER_WAY; k++)
            values[k] = load_wide(real_row(args.dout, row + k * LANES, args.OC), pack);
        [[unroll]] for (uint k = 0; k < UNDER_WAY; k++) sum += values[k];
    }
    for (; inside && row < end; row += LANES) sum += load_wide(real_row(args.dout, row, args.OC), pack);
    [[unroll]] for (uint k = 0; k < FOURS; k++) partial[k * BLOCK + id] = sum[k];
    barrier();
    if (id >= COLUMNS || !inside) return;
    [[unroll]] for (uint k = 0; k < FOURS; k++)
        for (uint lane = 1; lane < LANES; lane++) sum[k] += partial[k * BLOCK + lane * COLUMNS + id];
    if (args.splits == 1) {
        store_wide(args.dbias, pack, load_wide(args.dbias, pack) + sum);
        return;
    }
    Floats row_sums = float_row(args.partials, split, args.OC);
    [[unroll]] for (uint j = 0; j < WIDTH; j++) row_sums.x[pack * WIDTH + j] = sum[j / 4][j % 4];
}
