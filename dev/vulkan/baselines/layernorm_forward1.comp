// LayerNorm, optionally of a sum, plain port: one invocation computes one row of C channels in three passes.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { LayernormForwardArgs args; };

void main() {
    const uint64_t row = global_index();
    if (row >= uint64_t(args.num_rows)) return;
    const uint C = args.C;
    const bool adds = uint64_t(args.added) != 0;
    Reals inp = real_row(adds ? args.sum : args.inp, row, C);
    Reals outp = real_row(args.outp, row, C);
    for (uint c = 0; adds && c < C; c++)
        store(inp, c, load(real_row(args.inp, row, C), c) + load(real_row(args.added, row, C), c));
    float sum = 0;
    for (uint c = 0; c < C; c++) sum += load(inp, c);
    const float mean = sum / C;
    float squares = 0;
    for (uint c = 0; c < C; c++) {
        const float d = load(inp, c) - mean;
        squares += d * d;
    }
    const float rstd = 1.0 / sqrt(squares / C + 1e-5);
    for (uint c = 0; c < C; c++)
        store(outp, c, (load(inp, c) - mean) * rstd * load(args.weight, c) + load(args.bias, c));
    float_row(args.mean, row, 1).x[0] = mean;
    float_row(args.rstd, row, 1).x[0] = rstd;
}
