// LayerNorm backward, the gradients of weight and bias: one workgroup sums 32 columns of scratch, to which
// every workgroup of layernorm_backward2 or 3 has written one row. `lanes` invocations share a column: each
// sums every lanes-th row, then the first one adds up their sums in order.
#version 460
#include "util.glsl"

layout(push_constant, scalar) uniform Push { LayernormBackwardArgs args; };

const uint COLUMNS = 32;
shared float sums[BLOCK];

void main() {
    const uint id = gl_LocalInvocationID.x, lane = id / COLUMNS, lanes = BLOCK / COLUMNS, C = args.C;
    const uint column = group_index() * COLUMNS + id % COLUMNS;
    float sum = 0;
    for (uint row = lane; row < args.workgroups && column < 2 * C; row += 4 * lanes)
        [[unroll]] for (uint k = 0; k < 4; k++)
            if (row + k * lanes < args.workgroups)
                sum += float_row(args.scratch, row + k * lanes, 2 * C).x[column];
    sums[id] = sum;
    barrier();
    if (lane > 0 || column >= 2 * C) return;
    for (uint i = 1; i < lanes; i++) sum += sums[i * COLUMNS + id];
    if (column < C)
        store(args.dweight, column, load(args.dweight, column) + sum);
    else
        store(args.dbias, column - C, load(args.dbias, column - C) + sum);
}
