// Encoder backward: the gradient of the token embedding, of buckets longer than LONG_BUCKET. One workgroup
// sums a tile of 32 channels of a bucket with 16-byte accesses. Its invocations split the positions, then add
// the partial sums of the splits in order. A grid-stride loop covers all long buckets.
#version 460
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { EncoderBackwardArgs args; };

const uint TILE = 32;  // channels
shared vec4 partials[BLOCK];

// The sum over positions start, start + splits, start + 2 splits, ... below end, with four loads in flight.
vec4 split_sum(uint i, uint start, uint end, uint splits) {
    const uint positions = 2 * args.B * args.T + 3;
    vec4 sum = vec4(0);
    for (uint j = start; j < end; j += 4 * splits)
        [[unroll]] for (uint k = 0; k < 4; k++)
            if (j + k * splits < end)
                sum += load_pack(
                    real_row(args.dout, uint64_t(args.buckets.x[positions + j + k * splits]), args.C), i);
    return sum;
}

void main() {
    const uint packs = args.C / WIDTH, tile_packs = TILE / WIDTH, splits = BLOCK / tile_packs;
    const uint tiles = (packs + tile_packs - 1) / tile_packs, group = group_index();
    const uint id = gl_LocalInvocationID.x, split = id / tile_packs;
    const uint i = group % tiles * tile_packs + id % tile_packs;
    if (group >= args.grid_buckets * tiles) return;
    for (uint b = group / tiles; b < args.buckets.x[0]; b += args.grid_buckets) {
        const uint bucket = 1 + 2 * b, start = args.buckets.x[bucket + 1], end = args.buckets.x[bucket + 3];
        if (end - start <= LONG_BUCKET) return;  // longer buckets come first
        vec4 sum = i < packs ? split_sum(i, start + split, end, splits) : vec4(0);
        barrier();  // until the previous bucket's partials have been read
        partials[id] = sum;
        barrier();
        if (split == 0 && i < packs) {
            for (uint k = 1; k < splits; k++) sum += partials[k * tile_packs + id];
            Reals dwte = real_row(args.dwte, uint64_t(args.buckets.x[bucket]), args.C);
            store_pack(dwte, i, load_pack(dwte, i) + sum);
        }
    }
}
