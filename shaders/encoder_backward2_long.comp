// Encoder backward, the token embedding of buckets longer than LONG_BUCKET: one workgroup sums 32 channels of a bucket,
// each slice of it every so many positions, 16 bytes at a time; then the slices are added in order. It goes on with
// the bucket `lists` further on.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { EncoderBackwardArgs args; };

const uint COLUMNS = 32;
shared vec4 partial[BLOCK];

// The sum of positions start, start + slices, start + 2 slices, ... below end; four loads are under way at once.
vec4 slice_sum(uint i, uint start, uint end, uint slices) {
    const uint positions = 2 * args.B * args.T + 3;
    vec4 sum = vec4(0);
    for (uint j = start; j < end; j += 4 * slices)
        [[unroll]] for (uint k = 0; k < 4; k++)
            if (j + k * slices < end)
                sum += load_pack(real_row(args.dout, uint64_t(args.buckets.x[positions + j + k * slices]), args.C), i);
    return sum;
}

void main() {
    const uint packs = args.C / WIDTH, columns = COLUMNS / WIDTH, slices = BLOCK / columns;
    const uint stripes = (packs + columns - 1) / columns, group = group_index();
    const uint id = gl_LocalInvocationID.x, slice = id / columns, i = group % stripes * columns + id % columns;
    if (group >= args.lists * stripes) return;
    for (uint b = group / stripes; b < args.buckets.x[0]; b += args.lists) {
        const uint bucket = 1 + 2 * b, start = args.buckets.x[bucket + 1], end = args.buckets.x[bucket + 3];
        if (end - start <= LONG_BUCKET) return;  // longer ones stand first
        vec4 sum = i < packs ? slice_sum(i, start + slice, end, slices) : vec4(0);
        barrier();  // the partial sums of the bucket before have been read
        partial[id] = sum;
        barrier();
        if (slice == 0 && i < packs) {
            for (uint k = 1; k < slices; k++) sum += partial[k * columns + id];
            Reals dwte = real_row(args.dwte, uint64_t(args.buckets.x[bucket]), args.C);
            store_pack(dwte, i, load_pack(dwte, i) + sum);
        }
    }
}
