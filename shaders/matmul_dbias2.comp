// dbias += the column sums of dout, in two steps. A workgroup sums 32 packs of columns over one split of
// the rows: LANES invocations share a pack and reduce their sums through shared memory. Then matmul_sum
// reduces the splits. Version 1 runs only OC invocations; this version runs as many as the device needs,
// with 16-byte loads. With a single split, it adds to dbias itself.
#version 460
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { MatmulDbiasArgs args; };

const uint COLUMNS = 32;  // packs
const uint LANES = BLOCK / COLUMNS;
const uint LOADS = 8;  // in flight at once, per invocation

shared vec4 partial[BLOCK * FOURS];

void main() {
    const uint across = (args.OC / WIDTH + COLUMNS - 1) / COLUMNS, split = group_index() / across;
    if (split >= args.splits) return;
    const uint id = gl_LocalInvocationID.x, pack = group_index() % across * COLUMNS + id % COLUMNS;
    const bool inside = pack < args.OC / WIDTH;
    const uint end = min((split + 1) * args.rows_per_split, args.num_rows);
    mat2x4 sum = mat2x4(0);
    uint row = split * args.rows_per_split + id / COLUMNS;
    for (; inside && row + (LOADS - 1) * LANES < end; row += LOADS * LANES) {
        mat2x4 values[LOADS];
        [[unroll]] for (uint k = 0; k < LOADS; k++)
            values[k] = load_wide(real_row(args.dout, row + k * LANES, args.OC), pack);
        [[unroll]] for (uint k = 0; k < LOADS; k++) sum += values[k];
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
