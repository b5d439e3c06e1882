// out = inp weight^T + bias with shared-memory tiles: see matmul2.glsl.
#version 460
#include "util.glsl"
#include "matmul2.glsl"

layout(push_constant, scalar) uniform Push { MatmulArgs args; };

void main() {
    const uint C = args.K, OC = args.N;
    const uvec2 tile = tile_offset(OC);
    if (tile.x >= args.M) return;
    const float sum = multiply(args.a, args.b, tile, args.M, OC, C, C, C, false, false);
    const uint row = tile.x + local_row(), oc = tile.y + local_column();
    if (row >= args.M || oc >= OC) return;
    store(real_row(args.outp, row, OC), oc, sum + (uint64_t(args.bias) != 0 ? load(args.bias, oc) : 0));
}
