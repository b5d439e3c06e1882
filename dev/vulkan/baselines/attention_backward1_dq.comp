// Attention backward pass, plain port: one invocation computes the gradient of one query. It loops over the
// keys that the query sees.
#version 460
#include "util.glsl"

layout(constant_id = 1) const uint HS = 64;
layout(push_constant, scalar) uniform Push { AttentionBackwardArgs args; };

void main() {
    const uint64_t row = global_index();  // of lse (B, NH, T)
    const uint T = args.T, C = args.C, NH = args.NH;
    if (row >= uint64_t(args.B) * NH * T) return;
    const uint t = uint(row % T), head = uint(row / T % NH) * HS;
    const uint64_t sequence = row / T / NH * T;
    const float scale = 1.0 / sqrt(float(HS));
    const float lse = float_row(args.lse, row, 1).x[0], delta = float_row(args.delta, row, 1).x[0];
    Reals query = real_row(args.qkv, sequence + t, 3 * C);
    Reals dout_row = real_row(args.dout, sequence + t, C);
    float q[HS], dout[HS], dq[HS];
    for (uint c = 0; c < HS; c++) {
        q[c] = load(query, head + c);
        dout[c] = load(dout_row, head + c);
        dq[c] = 0;
    }
    for (uint j = 0; j <= t; j++) {
        Reals key = real_row(args.qkv, sequence + j, 3 * C);
        float score = 0, dp = 0;
        for (uint c = 0; c < HS; c++) {
            score += q[c] * load(key, C + head + c);
            dp += dout[c] * load(key, 2 * C + head + c);
        }
        const float ds = exp(score * scale - lse) * (dp - delta) * scale;
        for (uint c = 0; c < HS; c++) dq[c] += ds * load(key, C + head + c);
    }
    Reals dquery = real_row(args.dqkv, sequence + t, 3 * C);
    for (uint c = 0; c < HS; c++) store(dquery, head + c, dq[c]);
}
