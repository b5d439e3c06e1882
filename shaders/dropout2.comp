// Dropout: one invocation computes one pack of elements with 16-byte accesses; version 1 needs four or eight
// times as many memory instructions. The last invocation computes an incomplete pack element by element.
#version 460
#include "packs.glsl"
#include "dropout.glsl"

layout(push_constant, scalar) uniform Push { DropoutArgs args; };

vec4 drop4(vec4 x, uint64_t i) {
    const bvec4 dropped = bvec4(is_dropped(args, i), is_dropped(args, i + 1), is_dropped(args, i + 2),
                                is_dropped(args, i + 3));
    return mix(x * args.scale, vec4(0), dropped);
}

void main() {
    const uint64_t i = global_index() * WIDTH;
    if (i >= args.n) return;
    Reals outp = real_row(args.outp, i, 1), inp = real_row(args.inp, i, 1);
    if (args.n - i >= WIDTH) {
        const mat2x4 x = load_wide(inp, 0);
        store_wide(outp, 0, mat2x4(drop4(x[0], i), drop4(x[1], i + 4)));
    } else {
        for (uint k = 0; k < uint(args.n - i); k++)
            store(outp, k, is_dropped(args, i + k) ? 0 : load(inp, k) * args.scale);
    }
}
