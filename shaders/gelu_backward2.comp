// GELU backward: one invocation computes one pack of dinp = dout * gelu'(inp) with 16-byte accesses. The last
// one computes an incomplete pack element by element.
#version 460
#include "packs.glsl"
#include "gelu.glsl"

layout(push_constant, scalar) uniform Push { GeluBackwardArgs args; };

vec4 slope4(vec4 x) { return vec4(gelu_slope(x.x), gelu_slope(x.y), gelu_slope(x.z), gelu_slope(x.w)); }
mat2x4 slope_pack(mat2x4 x) { return mat2x4(slope4(x[0]), slope4(x[1])); }

void main() {
    const uint64_t i = global_index() * WIDTH;
    if (i >= args.n) return;
    Reals dinp = real_row(args.dinp, i, 1), inp = real_row(args.inp, i, 1), dout = real_row(args.dout, i, 1);
    if (args.n - i >= WIDTH)
        store_wide(dinp, 0, matrixCompMult(load_wide(dout, 0), slope_pack(load_wide(inp, 0))));
    else
        for (uint k = 0; k < uint(args.n - i); k++) store(dinp, k, load(dout, k) * gelu_slope(load(inp, k)));
}
