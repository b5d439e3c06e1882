// Copies N vec4 with 16-byte accesses: the copy bandwidth that benchmarks are compared with.
#version 460
#include "util.glsl"

layout(push_constant, scalar) uniform Push { PeakCopyArgs args; };

void main() {
    const uint64_t i = global_index();
    if (i >= args.n) return;
    Floats4 outp = Floats4(uint64_t(args.outp) + i * 16), inp = Floats4(uint64_t(args.inp) + i * 16);
    outp.x[0] = inp.x[0];
}
