// Sums of squares, plain port: one invocation sums one piece of PIECE elements, in rows of 128 that are summed apart,
// since 16384 additions in a row would lose three digits.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { GlobalNormArgs args; };
layout(constant_id = 1) const uint PIECE = 16384;

void main() {
    const uint64_t piece = global_index();
    if (piece * PIECE >= args.n) return;
    Reals grads = real_row(args.grads, piece, PIECE);
    const uint count = uint(min(args.n - piece * PIECE, uint64_t(PIECE)));
    float sum = 0;
    for (uint start = 0; start < count; start += 128) {
        float row = 0;
        for (uint i = start; i < min(start + 128, count); i++) row += load(grads, i) * load(grads, i);
        sum += row;
    }
    float_row(args.partials, piece, 1).x[0] = sum;
}
