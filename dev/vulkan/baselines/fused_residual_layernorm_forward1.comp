// Residual and LayerNorm, plain port: one invocation adds one row of C channels, then reads the
// sum back and normalizes it as layernorm_forward1 does.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { FusedResidualLayernormForwardArgs args; };

void main() {
    const uint64_t row = global_index();
    if (row >= uint64_t(args.num_rows)) return;
    const uint C = args.C;
    Reals inp1 = real_row(args.inp1, row, C), inp2 = real_row(args.inp2, row, C);
    Reals residual = real_row(args.residual, row, C), normed = real_row(args.normed, row, C);
    float sum = 0;
    for (uint c = 0; c < C; c++) {
        const float v = stored(vec4(load(inp1, c) + load(inp2, c))).x;
        store(residual, c, v);
        sum += v;
    }
    const float mean = sum / C;
    float squares = 0;
    for (uint c = 0; c < C; c++) {
        const float d = load(residual, c) - mean;
        squares += d * d;
    }
    const float rstd = 1.0 / sqrt(squares / C + 1e-5);
    for (uint c = 0; c < C; c++)
        store(normed, c, (load(residual, c) - mean) * rstd * load(args.weight, c) + load(args.bias, c));
    float_row(args.mean, row, 1).x[0] = mean;
    float_row(args.rstd, row, 1).x[0] = rstd;
}
