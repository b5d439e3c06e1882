// LayerNorm, or with ADDS of a sum: one workgroup computes one row. Neighbouring invocations read neighbouring
// channels, so accesses are coalesced; in version 1 they are a row apart. Sums are subgroup reductions. Each
// invocation reads only channels that it added up itself.
#version 460
#include "util.glsl"
#include "block_sum.glsl"

layout(push_constant, scalar) uniform Push { LayernormForwardArgs args; };

layout(constant_id = 1) const bool ADDS = false;

// Not one pointer that is chosen: SwiftShader's compiler crashes.
float normalized(Reals inp, Reals sums, uint c) {
    if (ADDS) return load(sums, c);
    return load(inp, c);
}

void main() {
    const uint row = group_index();
    if (row >= args.num_rows) return;
    const uint C = args.C, first = gl_LocalInvocationID.x;
    Reals inp = real_row(args.inp, row, C), added = real_row(args.added, row, C);
    Reals sums = real_row(args.sum, row, C), outp = real_row(args.outp, row, C);
    for (uint c = first; ADDS && c < C; c += BLOCK) store(sums, c, load(inp, c) + load(added, c));
    float sum = 0;
    for (uint c = first; c < C; c += BLOCK) sum += normalized(inp, sums, c);
    const float mean = block_sum(sum) / C;
    float squares = 0;
    for (uint c = first; c < C; c += BLOCK) {
        const float d = normalized(inp, sums, c) - mean;
        squares += d * d;
    }
    const float rstd = 1.0 / sqrt(block_sum(squares) / C + LAYERNORM_EPSILON);
    for (uint c = first; c < C; c += BLOCK)
        store(outp, c,
              (normalized(inp, sums, c) - mean) * rstd * load(args.weight, c) + load(args.bias, c));
    if (first == 0) {
        args.mean.x[row] = mean;
        args.rstd.x[row] = rstd;
    }
}
