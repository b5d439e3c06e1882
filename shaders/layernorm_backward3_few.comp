// LayerNorm backward, the gradients of weight and bias if there are few rows: one workgroup sums COLUMNS
// columns and reads every row again. It thus runs concurrently with layernorm_backward3, and no second kernel
// has to wait for either. `lanes` invocations share a column: each of them sums every lanes-th row, then the
// first one adds up their sums in order.
#version 460
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { LayernormBackwardArgs args; };

const uint COLUMNS = 8;
const uint UNROLL = 4;  // rows whose loads are in flight together
shared vec2 lane_sums[BLOCK];

void main() {
    const uint id = gl_LocalInvocationID.x, lane = id / COLUMNS, lanes = BLOCK / COLUMNS, C = args.C;
    const uint column = group_index() * COLUMNS + id % COLUMNS, from = min(column, C - 1);
    vec2 sums = vec2(0);  // for dweight, dbias
    for (uint first = lane; first < args.num_rows; first += UNROLL * lanes) {
        vec2 terms[UNROLL];
        [[unroll]] for (uint k = 0; k < UNROLL; k++) {
            const uint row = min(first + k * lanes, args.num_rows - 1);
            const float g = load(real_row(args.dout, row, C), from);
            terms[k] =
                vec2(g * (load(real_row(args.inp, row, C), from) - args.mean.x[row]) * args.rstd.x[row], g);
        }
        [[unroll]] for (uint k = 0; k < UNROLL; k++)
            if (first + k * lanes < args.num_rows) sums += terms[k];
    }
    lane_sums[id] = sums;
    barrier();
    if (lane > 0 || column >= C) return;
    for (uint i = 1; i < lanes; i++) sums += lane_sums[i * COLUMNS + id];
    store(args.dweight, column, load(args.dweight, column) + sums.x);
    store(args.dbias, column, load(args.dbias, column) + sums.y);
}
