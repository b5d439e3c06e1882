// dinp = dout weight with shared-memory tiles: see matmul2.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matmul2.glsl"

layout(push_constant, scalar) uniform Push { MatmulDinpArgs args; };

void main() {
    const uint C = args.C, OC = args.OC;
    const uvec2 tile = tile_offset(C);
    if (tile.x >= args.num_rows) return;
    const float sum = multiply(args.dout, args.weight, tile, args.num_rows, C, OC, OC, C, false, true);
    const uint row = tile.x + local_row(), c = tile.y + local_column();
    if (row < args.num_rows && c < C) store(real_row(args.dinp, row, C), c, sum);
}
