// AdamW: one invocation updates four parameters with 16-byte accesses. It accesses them one by one if the
// arrays are not ALIGNED to four elements, and at the end, if n is not a multiple of 4.
#version 460
#include "util.glsl"
#include "adamw.glsl"

layout(constant_id = 1) const bool ALIGNED = true;
layout(push_constant, scalar) uniform Push { AdamWArgs args; };

void main() {
    const uint64_t quad = global_index(), first = quad * 4;
    float scale;
    if (first >= args.n || !gradient_scale(args.norm_and_scale, scale)) return;
    const AdamWStep s = args.step.x[0];
    const bool has_master = uint64_t(args.master) != 0;
    Reals params = real_row(args.params, quad, 4), grads = real_row(args.grads, quad, 4);
    Floats m = float_row(args.m, quad, 4), v = float_row(args.v, quad, 4);
    Floats master = float_row(args.master, quad, 4);
    if (ALIGNED && first + 4 <= args.n) {
        Floats4 m4 = Floats4(uint64_t(m)), v4 = Floats4(uint64_t(v)), master4 = Floats4(uint64_t(master));
        vec4 new_m = m4.x[0], new_v = v4.x[0];
        const vec4 param = has_master ? master4.x[0] : load4(params, 0);
        const vec4 now = update(s, args.weight_decay, param, new_m, new_v, load4(grads, 0) * scale);
        m4.x[0] = new_m;
        v4.x[0] = new_v;
        if (has_master) master4.x[0] = now;
        store_random4(params, now, s.seed, args.first + first);
        return;
    }
    for (uint i = 0; i < uint(min(args.n - first, uint64_t(4))); i++) {
        vec4 new_m = vec4(m.x[i]), new_v = vec4(v.x[i]);
        const float param = has_master ? master.x[i] : load(params, i);
        const vec4 grad = vec4(load(grads, i) * scale);
        const float now = update(s, args.weight_decay, vec4(param), new_m, new_v, grad).x;
        m.x[i] = new_m.x;
        v.x[i] = new_v.x;
        if (has_master) master.x[i] = now;
        store_random(params, i, now, s.seed, args.first + first + i);
    }
}
