// Attention backward pass, plain port: one invocation computes the gradients of one key and one value. It
// loops over the queries that see them.
#version 460
#include "util.glsl"

layout(constant_id = 1) const uint HS = 64;
layout(push_constant, scalar) uniform Push { AttentionBackwardArgs args; };

void main() {
    const uint64_t row = global_index();  // of lse (B, NH, T)
    const uint T = args.T, C = args.C, NH = args.NH;
    if (row >= uint64_t(args.B) * NH * T) return;
    const uint j = uint(row % T), head = uint(row / T % NH) * HS;
    const uint64_t sequence = row / T / NH * T;
    const float scale = 1.0 / sqrt(float(HS));
    Floats lse = float_row(args.lse, row / T, T);
    Floats delta = float_row(args.delta, row / T, T);
    Reals key = real_row(args.qkv, sequence + j, 3 * C);
    float k[HS], v[HS], dk[HS], dv[HS];
    for (uint c = 0; c < HS; c++) {
        k[c] = load(key, C + head + c);
        v[c] = load(key, 2 * C + head + c);
        dk[c] = dv[c] = 0;
    }
    for (uint t = j; t < T; t++) {
        Reals query = real_row(args.qkv, sequence + t, 3 * C);
        Reals dout = real_row(args.dout, sequence + t, C);
        float score = 0, dp = 0;
        for (uint c = 0; c < HS; c++) {
            score += k[c] * load(query, head + c);
            dp += v[c] * load(dout, head + c);
        }
        const float p = exp(score * scale - lse.x[t]), ds = p * (dp - delta.x[t]) * scale;
        for (uint c = 0; c < HS; c++) {
            dk[c] += ds * load(query, head + c);
            dv[c] += p * load(dout, head + c);
        }
    }
    Reals dkey = real_row(args.dqkv, sequence + j, 3 * C);
    for (uint c = 0; c < HS; c++) {
        store(dkey, C + head + c, dk[c]);
        store(dkey, 2 * C + head + c, dv[c]);
    }
}
