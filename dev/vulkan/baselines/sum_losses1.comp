// Sum of the losses, plain port: one invocation adds all of them.
#version 460
#include "util.glsl"

layout(push_constant, scalar) uniform Push { SumLossesArgs args; };

void main() {
    if (global_index() != 0) return;
    float sum = 0;
    for (int i = 0; i < args.n; i++) sum += args.losses.x[i];
    args.total.x[0] += args.scale * sum;
}
