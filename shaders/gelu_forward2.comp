// GELU: one invocation computes one pack of elements with 16-byte accesses; version 1 needs four or eight
// times as many memory instructions. The last invocation computes an incomplete pack element by element.
#version 460
#include "packs.glsl"
#include "gelu.glsl"

layout(push_constant, scalar) uniform Push { GeluForwardArgs args; };

// The 16-bit types use the formula of the cooperative-matrix GEMMs' epilogue. fp16 is bit-identical to it;
// bf16 differs in ties, which the epilogue rounds away from zero.
#ifdef REAL_FP32
float gelu1(float x) { return gelu(x); }
#else
float gelu1(float x) { return fast_gelu(x); }
#endif
vec4 gelu4(vec4 x) { return vec4(gelu1(x.x), gelu1(x.y), gelu1(x.z), gelu1(x.w)); }
mat2x4 gelu_pack(mat2x4 x) { return mat2x4(gelu4(x[0]), gelu4(x[1])); }

void main() {
    const uint64_t i = global_index() * WIDTH;
    if (i >= args.n) return;
    Reals outp = real_row(args.outp, i, 1), inp = real_row(args.inp, i, 1);
    if (args.n - i >= WIDTH)
        store_wide(outp, 0, gelu_pack(load_wide(inp, 0)));
    else
        for (uint k = 0; k < uint(args.n - i); k++) store(outp, k, gelu1(load(inp, k)));
}
