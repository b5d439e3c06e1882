// dinp = dout weight, tiles through shared memory: see matmul2.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matmul2.glsl"

layout(push_constant, scalar) uniform Push { MatmulDinpArgs args; };

void main() {
    const uint C = args.C, OC = args.OC;
    const uvec2 place = tile_place(C);
    if (place.x >= args.N) return;
    const float sum = product(args.dout, args.weight, place, args.N, C, OC, OC, C, false, true);
    const uint row = place.x + local_row(), c = place.y + local_column();
    if (row < args.N && c < C) store(real_row(args.dinp, row, C), c, sum);
}
