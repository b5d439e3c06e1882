// LayerNorm backward, plain port, the gradients of weight and bias: one invocation sums one
// channel over the N rows.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { LayernormBackwardArgs args; };

void main() {
    const uint64_t c = global_index();
    if (c >= uint64_t(args.C)) return;
    float dweight = 0, dbias = 0;
    for (uint row = 0; row < args.num_rows; row++) {
        const float d = load(real_row(args.dout, row, args.C), uint(c));
        const float x = load(real_row(args.inp, row, args.C), uint(c));
        dweight += d * (x - args.mean.x[row]) * args.rstd.x[row];
        dbias += d;
    }
    store(args.dweight, uint(c), load(args.dweight, uint(c)) + dweight);
    store(args.dbias, uint(c), load(args.dbias, uint(c)) + dbias);
}
