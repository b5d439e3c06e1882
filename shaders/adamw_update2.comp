// AdamW: one invocation updates four parameters with 16-byte accesses; the invocation after the last whole four takes
// the rest, of up to three. Needs aligned arrays.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { AdamWArgs args; };

// Updates m and v, and returns the new parameters.
vec4 update(vec4 param, inout vec4 m, inout vec4 v, vec4 g) {
    const AdamWStep s = args.step.x[0];
    m = s.beta1 * m + (1 - s.beta1) * g;
    v = s.beta2 * v + (1 - s.beta2) * g * g;
    const vec4 m_hat = m / s.beta1_correction, v_hat = v / s.beta2_correction;
    return param - s.learning_rate * (m_hat / (sqrt(v_hat) + s.eps) + args.weight_decay * param);
}

void main() {
    const uint64_t quad = global_index();
    if (quad * 4 >= args.n) return;
    float scale = 1;
    if (uint64_t(args.norm_and_scale) != 0) {
        if (!is_finite(args.norm_and_scale.x[0])) return;
        scale = args.norm_and_scale.x[1];
    }
    Reals params = real_row(args.params, quad, 4), grads = real_row(args.grads, quad, 4);
    Floats m = float_row(args.m, quad, 4), v = float_row(args.v, quad, 4);
    if (quad * 4 + 4 <= args.n) {
        Floats4 m4 = Floats4(uint64_t(m)), v4 = Floats4(uint64_t(v));
        vec4 new_m = m4.x[0], new_v = v4.x[0];
        store4(params, 0, update(load4(params, 0), new_m, new_v, load4(grads, 0) * scale));
        m4.x[0] = new_m;
        v4.x[0] = new_v;
        return;
    }
    for (uint i = 0; i < uint(args.n - quad * 4); i++) {
        vec4 new_m = vec4(m.x[i]), new_v = vec4(v.x[i]);
        store(params, i, update(vec4(load(params, i)), new_m, new_v, vec4(load(grads, i) * scale)).x);
        m.x[i] = new_m.x;
        v.x[i] = new_v.x;
    }
}
