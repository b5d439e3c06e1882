// AdamW, plain port: one invocation updates one parameter.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { AdamWArgs args; };

void main() {
    const uint64_t i = global_index();
    if (i >= args.n) return;
    float scale = 1;
    if (uint64_t(args.norm_and_scale) != 0) {
        if (!is_finite(args.norm_and_scale.x[0])) return;
        scale = args.norm_and_scale.x[1];
    }
    const AdamWStep s = args.step.x[0];
    Reals params = real_row(args.params, i, 1);
    Floats m = float_row(args.m, i, 1), v = float_row(args.v, i, 1);
    const float g = load(real_row(args.grads, i, 1), 0) * scale, param = load(params, 0);
    const float new_m = s.beta1 * m.x[0] + (1 - s.beta1) * g;
    const float new_v = s.beta2 * v.x[0] + (1 - s.beta2) * g * g;
    m.x[0] = new_m;
    v.x[0] = new_v;
    const float m_hat = new_m / s.beta1_correction, v_hat = new_v / s.beta2_correction;
    store(params, 0, param - s.learning_rate * (m_hat / (sqrt(v_hat) + s.eps) + args.weight_decay * param));
}
