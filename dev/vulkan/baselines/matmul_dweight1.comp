// dweight = dout^T inp, or += if args.accumulate, plain port: one invocation computes one element of dweight.
#version 460
#include "util.glsl"

layout(push_constant, scalar) uniform Push { MatmulArgs args; };

void main() {
    const uint64_t i = global_index();
    const uint C = args.N, OC = args.M;
    if (i >= uint64_t(OC) * C) return;
    const uint oc = uint(i / C), c = uint(i % C);
    float sum = 0;
    for (uint row = 0; row < args.K; row++)
        sum += load(real_row(args.a, row, OC), oc) * load(real_row(args.b, row, C), c);
    Reals dweight = real_row(args.outp, oc, C);
    if (args.accumulate != 0) sum += load(dweight, c);
    store(dweight, c, sum);
}
