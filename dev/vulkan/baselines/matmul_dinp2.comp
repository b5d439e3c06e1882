// dinp = dout weight with shared-memory tiles: see matmul2.glsl.
#version 460
#include "util.glsl"
#include "matmul2.glsl"

layout(push_constant, scalar) uniform Push { MatmulArgs args; };

void main() {
    const uint C = args.N, OC = args.K;
    const uvec2 tile = tile_offset(C);
    if (tile.x >= args.M) return;
    const float sum = multiply(args.a, args.b, tile, args.M, C, OC, OC, C, false, true);
    const uint row = tile.x + local_row(), c = tile.y + local_column();
    if (row < args.M && c < C) store(real_row(args.outp, row, C), c, sum);
}
