// Encoder ahead of a pending AdamW update: one workgroup computes one position from its row of wte, as
// adamw_update2 will leave it. It does not store the updated row: several positions may share a token, and
// adamw_update() runs on its own.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "packs.glsl"
#include "adamw.glsl"

layout(push_constant, scalar) uniform Push { EncoderForwardUpdatedArgs args; };

vec4 load_floats(Floats p, uint i) {
    if (WIDTH == 4) return Floats4(uint64_t(p)).x[i];
    return vec4(p.x[i], 0, 0, 0);
}

void main() {
    const uint row = group_index(), C = args.C;
    if (row >= args.num_rows) return;
    const uint64_t token = uint64_t(args.inp.x[row]);
    float scale;
    const bool changes = gradient_scale(args.norm_and_scale, scale), has_master = uint64_t(args.master) != 0;
    const AdamWStep s = args.step.x[0];
    Reals wte = real_row(args.wte, token, C), grads = real_row(args.grads, token, C);
    Floats m = float_row(args.m, token, C), v = float_row(args.v, token, C);
    Floats master = float_row(args.master, token, C);
    Reals position = real_row(args.wpe, row % args.T, C), outp = real_row(args.outp, row, C);
    for (uint i = gl_LocalInvocationID.x; i < C / WIDTH; i += BLOCK) {
        vec4 param = changes && has_master ? load_floats(master, i) : load_pack(wte, i);
        if (changes) {
            vec4 new_m = load_floats(m, i), new_v = load_floats(v, i);
            const vec4 now = update(s, args.weight_decay, param, new_m, new_v, load_pack(grads, i) * scale);
            param = stored_random4(now, s.seed, token * C + i * WIDTH);
        }
        store_pack(outp, i, param + load_pack(position, i));
    }
}
