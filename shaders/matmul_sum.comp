// outp += the sum of `splits` partial results, added in their order: the second step of the products that split
// the rows. One invocation sums one element.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { MatmulSumArgs args; };

void main() {
    const uint64_t i = global_index();
    if (i >= uint64_t(args.n)) return;
    float sum = 0;
    for (uint split = 0; split < args.splits; split += 8) {
        float values[8];  // eight reads under way at a time
        [[unroll]] for (uint j = 0; j < 8; j++)
            values[j] = split + j < args.splits ? float_row(args.partials, split + j, args.n).x[uint(i)] : 0;
        [[unroll]] for (uint j = 0; j < 8; j++) sum += values[j];
    }
    store(args.outp, uint(i), load(args.outp, uint(i)) + sum);
}
