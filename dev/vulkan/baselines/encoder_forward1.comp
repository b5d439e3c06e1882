// Encoder, plain port: one invocation computes one channel of one position.
#version 460
#include "util.glsl"

layout(push_constant, scalar) uniform Push { EncoderForwardArgs args; };

void main() {
    const uint64_t i = global_index();
    const uint64_t row = i / args.C;
    const uint c = uint(i % args.C);
    if (row >= uint64_t(args.num_rows)) return;
    Reals token = real_row(args.wte, uint64_t(args.inp.x[uint(row)]), args.C);
    Reals position = real_row(args.wpe, row % args.T, args.C);
    store(real_row(args.outp, row, args.C), c, load(token, c) + load(position, c));
}
