// Dropout, plain version: one invocation per element.
#version 460
#include "util.glsl"
#include "dropout.glsl"

layout(push_constant, scalar) uniform Push { DropoutArgs args; };

void main() {
    const uint64_t i = global_index();
    if (i >= args.n) return;
    const float x = load(real_row(args.inp, i, 1), 0);
    store(real_row(args.outp, i, 1), 0, is_dropped(args, i) ? 0 : x * args.scale);
}
