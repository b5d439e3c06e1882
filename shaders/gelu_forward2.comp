// GELU: one invocation computes one pack of elements with 16-byte accesses, where version 1 needs four times as many
// memory instructions; the last one takes what is left of a pack.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "packs.glsl"
#include "gelu.glsl"

layout(push_constant, scalar) uniform Push { GeluForwardArgs args; };

vec4 gelu_pack(vec4 x) { return vec4(gelu(x.x), gelu(x.y), gelu(x.z), gelu(x.w)); }

void main() {
    const uint64_t i = global_index() * WIDTH;
    if (i >= args.n) return;
    Reals outp = real_row(args.outp, i, 1), inp = real_row(args.inp, i, 1);
    if (args.n - i >= WIDTH)
        store_pack(outp, 0, gelu_pack(load_pack(inp, 0)));
    else
        for (uint k = 0; k < uint(args.n - i); k++) store(outp, k, gelu(load(inp, k)));
}
