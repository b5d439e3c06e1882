// Sum of the losses by one workgroup, each invocation adding every BLOCK-th loss. One workgroup is fast
// enough for the rows of a step, and makes the order of the additions fixed.
#version 460
#include "util.glsl"
#include "block_sum.glsl"

layout(push_constant, scalar) uniform Push { SumLossesArgs args; };

void main() {
    float sum = 0;
    for (uint i = gl_LocalInvocationID.x; i < args.n; i += BLOCK) sum += args.losses.x[i];
    sum = block_sum(sum);
    if (gl_LocalInvocationID.x == 0) args.total.x[0] += args.scale * sum;
}
