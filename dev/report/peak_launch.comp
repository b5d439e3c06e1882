// Does nothing, which the compiler cannot know: measures the cost of a dispatch.
#version 460
#include "util.glsl"

layout(push_constant, scalar) uniform Push { PeakFmaArgs args; };

void main() {
    if (args.iterations < 0) float_row(args.outp, global_index(), 1).x[0] = 0;
}
