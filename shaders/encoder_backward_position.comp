// Encoder backward: the gradient of the position embedding. One invocation sums one pack of channels of one
// position over the B sequences.
#version 460
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { EncoderBackwardArgs args; };

void main() {
    const uint64_t i = global_index() * WIDTH, width = uint64_t(args.T) * args.C;
    if (i >= width) return;
    Reals dwpe = real_row(args.dwpe, i, 1);
    vec4 sum = vec4(0);
    for (uint b = 0; b < args.B; b++) sum += load_pack(real_row(args.dout, b * width + i, 1), 0);
    store_pack(dwpe, 0, load_pack(dwpe, 0) + sum);
}
