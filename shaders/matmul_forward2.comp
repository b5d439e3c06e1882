// out = inp weight^T + bias, tiles through shared memory: see matmul2.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matmul2.glsl"

layout(push_constant, scalar) uniform Push { MatmulForwardArgs args; };

void main() {
    const uint C = args.C, OC = args.OC;
    const uvec2 place = tile_place(OC);
    if (place.x >= args.N) return;
    const float sum = product(args.inp, args.weight, place, args.N, OC, C, C, C, false, false);
    const uint row = place.x + local_row(), oc = place.y + local_column();
    if (row >= args.N || oc >= OC) return;
    store(real_row(args.outp, row, OC), oc, sum + (uint64_t(args.bias) != 0 ? load(args.bias, oc) : 0));
}
