// dbias += the column sums of dout, plain port: one invocation sums one column.
#version 460
#include "util.glsl"

layout(push_constant, scalar) uniform Push { MatmulDbiasArgs args; };

void main() {
    const uint oc = group_index() * BLOCK + gl_LocalInvocationID.x;
    if (oc >= args.OC) return;
    float sum = 0;
    for (uint row = 0; row < args.num_rows; row++) sum += load(real_row(args.dout, row, args.OC), oc);
    store(args.dbias, oc, load(args.dbias, oc) + sum);
}
