// LayerNorm, or with ADDS of a sum, plain port: one invocation computes a row of C channels in three passes.
#version 460
#include "util.glsl"

layout(push_constant, scalar) uniform Push { LayernormForwardArgs args; };

layout(constant_id = 1) const bool ADDS = false;

float normalized(Reals inp, Reals sums, uint c) {
    if (ADDS) return load(sums, c);
    return load(inp, c);
}

void main() {
    const uint64_t row = global_index();
    if (row >= uint64_t(args.num_rows)) return;
    const uint C = args.C;
    Reals inp = real_row(args.inp, row, C), added = real_row(args.added, row, C);
    Reals sums = real_row(args.sum, row, C), outp = real_row(args.outp, row, C);
    for (uint c = 0; ADDS && c < C; c++) store(sums, c, load(inp, c) + load(added, c));
    float sum = 0;
    for (uint c = 0; c < C; c++) sum += normalized(inp, sums, c);
    const float mean = sum / C;
    float squares = 0;
    for (uint c = 0; c < C; c++) {
        const float d = normalized(inp, sums, c) - mean;
        squares += d * d;
    }
    const float rstd = 1.0 / sqrt(squares / C + LAYERNORM_EPSILON);
    for (uint c = 0; c < C; c++)
        store(outp, c,
              (normalized(inp, sums, c) - mean) * rstd * load(args.weight, c) + load(args.bias, c));
    float_row(args.mean, row, 1).x[0] = mean;
    float_row(args.rstd, row, 1).x[0] = rstd;
}
