// Residual: one invocation adds one pack of each input with 16-byte accesses, which takes a quarter or an
// eighth of version 1's memory instructions. The last invocation adds the remaining elements.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { ResidualForwardArgs args; };

void main() {
    const uint64_t i = global_index() * WIDTH;
    if (i >= args.n) return;
    Reals outp = real_row(args.outp, i, 1);
    Reals inp1 = real_row(args.inp1, i, 1), inp2 = real_row(args.inp2, i, 1);
    if (args.n - i >= WIDTH)
        store_wide(outp, 0, load_wide(inp1, 0) + load_wide(inp2, 0));
    else
        for (uint k = 0; k < uint(args.n - i); k++) store(outp, k, load(inp1, k) + load(inp2, k));
}
