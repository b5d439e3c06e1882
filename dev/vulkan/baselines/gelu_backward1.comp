// GELU backward, plain port: one invocation computes one element of dinp = dout * gelu'(inp).
#version 460
#include "util.glsl"
#include "gelu.glsl"

layout(push_constant, scalar) uniform Push { GeluBackwardArgs args; };

void main() {
    const uint64_t i = global_index();
    if (i >= args.n) return;
    const float slope = gelu_slope(load(real_row(args.inp, i, 1), 0));
    store(real_row(args.dinp, i, 1), 0, load(real_row(args.dout, i, 1), 0) * slope);
}
