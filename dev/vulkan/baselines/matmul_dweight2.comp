// dweight = dout^T inp, or += if args.accumulate, with shared-memory tiles: see matmul2.glsl.
#version 460
#include "util.glsl"
#include "matmul2.glsl"

layout(push_constant, scalar) uniform Push { MatmulArgs args; };

void main() {
    const uint C = args.N, OC = args.M;
    const uvec2 tile = tile_offset(C);
    if (tile.x >= OC) return;
    float sum = multiply(args.a, args.b, tile, OC, C, args.K, OC, C, true, true);
    const uint oc = tile.x + local_row(), c = tile.y + local_column();
    if (oc >= OC || c >= C) return;
    Reals dweight = real_row(args.outp, oc, C);
    if (args.accumulate != 0) sum += load(dweight, c);
    store(dweight, c, sum);
}
