// Column sums of dout in two steps: one invocation sums one column over a slice of the rows, and matmul_sum adds the
// slices up. Version 1 has OC invocations at work; this has as many as the device wants. With a single slice it adds
// to dbias itself.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { MatmulDbiasArgs args; };

void main() {
    const uint across = (args.OC + BLOCK - 1) / BLOCK;
    const uint split = group_index() / across;
    const uint oc = group_index() % across * BLOCK + gl_LocalInvocationID.x;
    if (split >= args.splits || oc >= args.OC) return;
    const uint first = split * args.slice_rows, end = min(first + args.slice_rows, args.N);
    float sum = 0;
    for (uint row = first; row < end; row += 8) {
        float values[8];  // eight reads under way at a time
        [[unroll]] for (uint i = 0; i < 8; i++)
            values[i] = row + i < end ? load(real_row(args.dout, row + i, args.OC), oc) : 0;
        [[unroll]] for (uint i = 0; i < 8; i++) sum += values[i];
    }
    if (args.splits > 1)
        float_row(args.partials, split, args.OC).x[oc] = sum;
    else
        store(args.dbias, oc, load(args.dbias, oc) + sum);
}
