// LayerNorm, optionally of a sum: one workgroup computes one row. Neighbouring invocations read neighbouring
// channels, so accesses are coalesced; in version 1 they are a row apart. Sums are subgroup reductions. Each
// invocation reads only channels that it added up itself.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { LayernormForwardArgs args; };

void main() {
    const uint row = group_index();
    if (row >= args.num_rows) return;
    const uint C = args.C, first = gl_LocalInvocationID.x;
    const bool adds = uint64_t(args.added) != 0;
    Reals inp = real_row(adds ? args.sum : args.inp, row, C);
    Reals outp = real_row(args.outp, row, C);
    for (uint c = first; adds && c < C; c += BLOCK)
        store(inp, c, load(real_row(args.inp, row, C), c) + load(real_row(args.added, row, C), c));
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
