// LayerNorm backward, the gradients of weight and bias where rows are few: one workgroup adds up 32 columns, reading
// every row again, so that it need not wait for the kernel that computes dinp and no second kernel need wait for it.
// Each slice of 32 invocations sums every so many rows; then the slices are added in order.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { LayernormBackwardArgs args; };

const uint COLUMNS = 32;
shared vec2 partial[BLOCK];

void main() {
    const uint id = gl_LocalInvocationID.x, slice = id / COLUMNS, slices = BLOCK / COLUMNS, C = args.C;
    const uint column = group_index() * COLUMNS + id % COLUMNS;
    vec2 sums = vec2(0);  // for dweight, dbias
    for (uint row = slice; row < args.N && column < C; row += slices) {
        const float g = load(real_row(args.dout, row, C), column);
        sums += vec2(g * (load(real_row(args.inp, row, C), column) - args.mean.x[row]) * args.rstd.x[row], g);
    }
    partial[id] = sums;
    barrier();
    if (slice > 0 || column >= C) return;
    for (uint i = 1; i < slices; i++) sums += partial[i * COLUMNS + id];
    store(args.dweight, column, load(args.dweight, column) + sums.x);
    store(args.dbias, column, load(args.dbias, column) + sums.y);
}
