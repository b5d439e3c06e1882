// Encoder backward: the gradient of the token embedding. One invocation sums one pack of channels of a bucket
// with 16-byte accesses, in a grid-stride loop over the buckets. In version 1 the bucket of the most frequent
// token delays the whole dispatch, so encoder_backward2_long sums the buckets longer than LONG_BUCKET.
#version 460
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { EncoderBackwardArgs args; };

void main() {
    const uint packs = args.C / WIDTH, count = args.B * args.T, positions = 2 * count + 3;
    const uint64_t id = global_index();
    if (id >= uint64_t(args.grid_buckets) * packs) return;
    const uint i = uint(id % packs), buckets = args.buckets.x[0];
    for (uint b = uint(id / packs); b < buckets; b += args.grid_buckets) {
        const uint bucket = 1 + 2 * b, start = args.buckets.x[bucket + 1], end = args.buckets.x[bucket + 3];
        if (end - start > LONG_BUCKET) continue;
        Reals dwte = real_row(args.dwte, uint64_t(args.buckets.x[bucket]), args.C);
        vec4 sum = vec4(0);
        for (uint j = start; j < end; j++)
            sum += load_pack(real_row(args.dout, uint64_t(args.buckets.x[positions + j]), args.C), i);
        store_pack(dwte, i, load_pack(dwte, i) + sum);
    }
}
