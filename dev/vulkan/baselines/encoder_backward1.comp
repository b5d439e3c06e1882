// Encoder backward, plain port: the gradient of the token embedding. One invocation sums one channel of one
// bucket. encoder_backward_position computes the gradient of the position embedding.
#version 460
#include "util.glsl"

layout(push_constant, scalar) uniform Push { EncoderBackwardArgs args; };

void main() {
    const uint64_t i = global_index();
    const uint64_t b = i / args.C;
    const uint c = uint(i % args.C);
    if (b >= uint64_t(args.buckets.x[0])) return;
    const uint count = args.B * args.T, bucket = 1 + 2 * uint(b), positions = 2 * count + 3;
    Reals dwte = real_row(args.dwte, uint64_t(args.buckets.x[bucket]), args.C);
    float sum = 0;
    for (uint j = args.buckets.x[bucket + 1]; j < args.buckets.x[bucket + 3]; j++)
        sum += load(real_row(args.dout, uint64_t(args.buckets.x[positions + j]), args.C), c);
    store(dwte, c, load(dwte, c) + sum);
}
