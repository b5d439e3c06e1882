// Counts the invocations of a subgroup: drivers have ignored the size that they were told.
#version 460
#include "util.glsl"

layout(push_constant, scalar) uniform Push { SubgroupSizeArgs args; };

void main() {
    const float size = subgroupAdd(1.0);
    if (gl_LocalInvocationIndex == 0) args.size.x[0] = size;
}
