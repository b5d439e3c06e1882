// out = inp weight^T + bias, plain port: one invocation computes one element of out.
#version 460
#include "util.glsl"

layout(push_constant, scalar) uniform Push { MatmulArgs args; };

void main() {
    const uint64_t i = global_index();
    const uint C = args.K, OC = args.N;
    if (i >= uint64_t(args.M) * OC) return;
    const uint64_t row = i / OC;
    const uint oc = uint(i % OC);
    Reals inp = real_row(args.a, row, C);
    Reals weight = real_row(args.b, oc, C);
    float sum = uint64_t(args.bias) != 0 ? load(args.bias, oc) : 0;
    for (uint c = 0; c < C; c++) sum += load(inp, c) * load(weight, c);
    store(real_row(args.outp, row, OC), oc, sum);
}
