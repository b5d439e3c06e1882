// AdamW, plain port: one invocation updates one parameter.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "adamw.glsl"

layout(push_constant, scalar) uniform Push { AdamWArgs args; };

void main() {
    const uint64_t i = global_index();
    float scale;
    if (i >= args.n || !gradient_scale(args.norm_and_scale, scale)) return;
    const AdamWStep s = args.step.x[0];
    const bool has_master = uint64_t(args.master) != 0;
    Reals params = real_row(args.params, i, 1);
    Floats m = float_row(args.m, i, 1), v = float_row(args.v, i, 1), master = float_row(args.master, i, 1);
    vec4 new_m = vec4(m.x[0]), new_v = vec4(v.x[0]);
    const float param = has_master ? master.x[0] : load(params, 0);
    const vec4 grad = vec4(load(real_row(args.grads, i, 1), 0) * scale);
    const float now = update(s, args.weight_decay, vec4(param), new_m, new_v, grad).x;
    m.x[0] = new_m.x;
    v.x[0] = new_v.x;
    if (has_master) master.x[0] = now;
    store_random(params, 0, now, s.seed, args.first + i);
}
