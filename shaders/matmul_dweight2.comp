// dweight = dout^T inp, or += with accumulate; tiles through shared memory: see matmul2.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matmul2.glsl"

layout(push_constant, scalar) uniform Push { MatmulDweightArgs args; };

void main() {
    const uint C = args.C, OC = args.OC;
    const uvec2 place = tile_place(C);
    if (place.x >= OC) return;
    float sum = product(args.dout, args.inp, place, OC, C, args.N, OC, C, true, true);
    const uint oc = place.x + local_row(), c = place.y + local_column();
    if (oc >= OC || c >= C) return;
    Reals dweight = real_row(args.dweight, oc, C);
    if (args.accumulate != 0) sum += load(dweight, c);
    store(dweight, c, sum);
}
