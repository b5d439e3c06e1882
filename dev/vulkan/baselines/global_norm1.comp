// Sums of squares, plain port: one invocation sums one chunk of CHUNK elements. It sums segments of 128
// elements separately, because 16384 successive additions would lose three decimal digits.
#version 460
#include "util.glsl"

layout(push_constant, scalar) uniform Push { GlobalNormArgs args; };
layout(constant_id = 1) const uint CHUNK = 16384;

void main() {
    const uint64_t chunk = global_index();
    if (chunk * CHUNK >= args.n) return;
    Reals grads = real_row(args.grads, chunk, CHUNK);
    const uint count = uint(min(args.n - chunk * CHUNK, uint64_t(CHUNK)));
    float sum = 0;
    for (uint start = 0; start < count; start += 128) {
        float segment = 0;
        for (uint i = start; i < min(start + 128, count); i++) segment += load(grads, i) * load(grads, i);
        sum += segment;
    }
    float_row(args.partials, chunk, 1).x[0] = sum;
}
