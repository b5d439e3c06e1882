// LayerNorm backward, plain port, the gradient of the input: one invocation computes one row of
// C channels in two passes. layernorm_backward1_weight computes the gradients of weight and bias.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { LayernormBackwardArgs args; };

void main() {
    const uint64_t row = global_index();
    if (row >= uint64_t(args.num_rows)) return;
    const uint C = args.C;
    const bool adds = uint64_t(args.added) != 0;
    Reals dinp = real_row(args.dinp, row, C), added = real_row(args.added, row, C);
    Reals dout = real_row(args.dout, row, C), inp = real_row(args.inp, row, C);
    const float mean = float_row(args.mean, row, 1).x[0], rstd = float_row(args.rstd, row, 1).x[0];
    float sum = 0, dot = 0;
    for (uint c = 0; c < C; c++) {
        const float d = load(args.weight, c) * load(dout, c);
        sum += d;
        dot += d * (load(inp, c) - mean) * rstd;
    }
    sum /= C;
    dot /= C;
    for (uint c = 0; c < C; c++) {
        const float d = load(args.weight, c) * load(dout, c), norm = (load(inp, c) - mean) * rstd;
        store(dinp, c, (adds ? load(added, c) : 0) + (d - sum - norm * dot) * rstd);
    }
}
