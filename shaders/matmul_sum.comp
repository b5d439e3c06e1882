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
    for (uint split = 0; split < args.splits; split++) sum += float_row(args.partials, split, args.n).x[uint(i)];
    store(args.outp, uint(i), load(args.outp, uint(i)) + sum);
}
