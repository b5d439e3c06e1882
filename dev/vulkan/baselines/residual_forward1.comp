// Residual, plain port: one invocation adds one element of each input.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { ResidualForwardArgs args; };

void main() {
    const uint64_t i = global_index();
    if (i >= args.n) return;
    store(real_row(args.outp, i, 1), 0,
          load(real_row(args.inp1, i, 1), 0) + load(real_row(args.inp2, i, 1), 0));
}
