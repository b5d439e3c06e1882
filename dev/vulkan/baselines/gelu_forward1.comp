// GELU, plain port: one invocation computes one element.
#version 460
#include "util.glsl"
#include "gelu.glsl"

layout(push_constant, scalar) uniform Push { GeluForwardArgs args; };

void main() {
    const uint64_t i = global_index();
    if (i >= args.n) return;
    store(real_row(args.outp, i, 1), 0, gelu(load(real_row(args.inp, i, 1), 0)));
}
