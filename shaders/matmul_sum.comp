// outp = the sum of `splits` partial sums, or += if args.accumulate, in a fixed order: the second step of
// kernels that split the rows. One invocation reduces one pack of elements. If few elements have many
// splits, LANES invocations share a pack, and each of them takes every LANES-th split.
#version 460
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { MatmulSumArgs args; };

layout(constant_id = 2) const uint LANES = 1;
const uint PACKS = BLOCK / LANES;  // per workgroup

shared vec4 partial[BLOCK];

vec4 load_partial(uint split, uint pack) {
    Floats row = float_row(args.partials, split, args.n);
    return WIDTH == 4 ? Floats4(uint64_t(row)).x[pack] : vec4(row.x[pack], 0, 0, 0);
}

void main() {
    const uint id = gl_LocalInvocationID.x;
    const uint64_t pack = uint64_t(group_index()) * PACKS + id % PACKS;
    const bool inside = pack < args.n / WIDTH;
    vec4 sum = vec4(0);
    for (uint split = id / PACKS; inside && split < args.splits; split += 8 * LANES) {
        vec4 values[8];  // eight loads in flight at once
        [[unroll]] for (uint j = 0; j < 8; j++)
            values[j] =
                split + j * LANES < args.splits ? load_partial(split + j * LANES, uint(pack)) : vec4(0);
        [[unroll]] for (uint j = 0; j < 8; j++) sum += values[j];
    }
    if (LANES > 1) {
        partial[id] = sum;
        barrier();
        if (id < PACKS)
            for (uint lane = 1; lane < LANES; lane++) sum += partial[lane * PACKS + id];
    }
    if (id >= PACKS || !inside) return;
    if (args.accumulate != 0) sum += load_pack(args.outp, uint(pack));
    store_pack(args.outp, uint(pack), sum);
}
