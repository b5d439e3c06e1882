// Attention backward, first step of every version: delta = sum of dout * out over the channels of a head. One
// invocation computes one element; neighbouring invocations take neighbouring heads, which lie together in memory.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(constant_id = 1) const uint HS = 64;
layout(constant_id = 2) const uint QUADS = 1;  // rows allow accesses of four channels
layout(push_constant, scalar) uniform Push { AttentionBackwardArgs args; };

void main() {
    const uint64_t i = global_index();  // of (B, T, NH)
    const uint T = args.T, NH = args.NH;
    if (i >= uint64_t(args.B) * T * NH) return;
    Reals dout = real_row(args.dout, i, HS);
    Reals outp = real_row(args.outp, i, HS);
    float sum = 0;
    if (QUADS != 0) {
        for (uint q = 0; q < HS / 4; q++) sum += dot(load4(dout, q), load4(outp, q));
    } else {
        for (uint c = 0; c < HS; c++) sum += load(dout, c) * load(outp, c);
    }
    const uint64_t row = i / NH;  // of (B, T)
    float_row(args.delta, (row / T * NH + i % NH) * T + row % T, 1).x[0] = sum;
}
