// LayerNorm: one workgroup computes one row. Neighbouring invocations read neighbouring channels, so accesses
// are coalesced; in version 1 they are a row apart. Sums are subgroup reductions.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { LayernormForwardArgs args; };

void main() {
    const uint row = group_index();
    if (row >= args.num_rows) return;
    const uint C = args.C, first = gl_LocalInvocationID.x;
    Reals inp = real_row(args.inp, row, C);
    Reals outp = real_row(args.outp, row, C);
    float sum = 0;
    for (uint c = first; c < C; c += BLOCK) sum += load(inp, c);
    const float mean = block_sum(sum) / C;
    float squares = 0;
    for (uint c = first; c < C; c += BLOCK) {
        const float d = load(inp, c) - mean;
        squares += d * d;
    }
    const float rstd = 1.0 / sqrt(block_sum(squares) / C + 1e-5);
    for (uint c = first; c < C; c += BLOCK)
        store(outp, c, (load(inp, c) - mean) * rstd * load(args.weight, c) + load(args.bias, c));
    if (first == 0) {
        args.mean.x[row] = mean;
        args.rstd.x[row] = rstd;
    }
}
