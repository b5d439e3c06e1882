// LayerNorm backward, the gradients of weight and bias where rows are few: one workgroup adds up COLUMNS columns, reading
// every row again, so that it need not wait for the kernel that computes dinp and no second kernel need wait for it.
// Each part of COLUMNS invocations sums every so many rows; then the parts are added in order. Where dout was left in
// slices, it is finished on the way.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "partial_product.glsl"

layout(push_constant, scalar) uniform Push { LayernormBackwardArgs args; };

layout(constant_id = 3) const uint COLUMNS = 32;
const uint AT_ONCE = 4;  // rows whose loads are under way together
shared vec2 partial[BLOCK];

float load_dout(uint row, uint column) {
    if (SLICES == 1) return load(real_row(args.dout, row, args.C), column);
    return stored(add_slices(args.partials, row, args.N, args.C, column)[0]).x;
}

void main() {
    const uint id = gl_LocalInvocationID.x, part = id / COLUMNS, parts = BLOCK / COLUMNS, C = args.C;
    const uint column = group_index() * COLUMNS + id % COLUMNS, from = min(column, C - 1);
    vec2 sums = vec2(0);  // for dweight, dbias
    for (uint first = part; first < args.N; first += AT_ONCE * parts) {
        vec2 terms[AT_ONCE];
        [[unroll]] for (uint k = 0; k < AT_ONCE; k++) {
            const uint row = min(first + k * parts, args.N - 1);
            const float g = load_dout(row, from);
            terms[k] = vec2(g * (load(real_row(args.inp, row, C), from) - args.mean.x[row]) * args.rstd.x[row], g);
        }
        [[unroll]] for (uint k = 0; k < AT_ONCE; k++)
            if (first + k * parts < args.N) sums += terms[k];
    }
    partial[id] = sums;
    barrier();
    if (part > 0 || column >= C) return;
    for (uint i = 1; i < parts; i++) sums += partial[i * COLUMNS + id];
    store(args.dweight, column, load(args.dweight, column) + sums.x);
    store(args.dbias, column, load(args.dbias, column) + sums.y);
}
