// dinp = dout weight, plain port: one invocation computes one element of dinp.
#version 460
#include "util.glsl"

layout(push_constant, scalar) uniform Push { MatmulArgs args; };

void main() {
    const uint64_t i = global_index();
    const uint C = args.N, OC = args.K;
    if (i >= uint64_t(args.M) * C) return;
    const uint64_t row = i / C;
    const uint c = uint(i % C);
    Reals dout = real_row(args.a, row, OC);
    float sum = 0;
    for (uint oc = 0; oc < OC; oc++) sum += load(dout, oc) * load(real_row(args.b, oc, C), c);
    store(real_row(args.outp, row, C), c, sum);
}
