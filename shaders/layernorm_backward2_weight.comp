// LayerNorm backward, the gradients of weight and bias: one workgroup adds up 32 columns of scratch
// (teams, 2 C). Each slice of 32 invocations sums every so many teams; then the slices are added in order.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { LayernormBackwardArgs args; };

const uint COLUMNS = 32;
shared float partial[BLOCK];

void main() {
    const uint id = gl_LocalInvocationID.x, slice = id / COLUMNS, slices = BLOCK / COLUMNS, C = args.C;
    const uint column = group_index() * COLUMNS + id % COLUMNS;
    float sum = 0;
    for (uint team = slice; team < args.teams && column < 2 * C; team += slices)
        sum += float_row(args.scratch, team, 2 * C).x[column];
    partial[id] = sum;
    barrier();
    if (slice > 0 || column >= 2 * C) return;
    for (uint i = 1; i < slices; i++) sum += partial[i * COLUMNS + id];
    if (column < C)
        store(args.dweight, column, load(args.dweight, column) + sum);
    else
        store(args.dbias, column - C, load(args.dbias, column - C) + sum);
}
