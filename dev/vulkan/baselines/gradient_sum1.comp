// The sum of the gradients of several processes. One invocation adds one pack of each of them, in order.
#version 460
#include "packs.glsl"

layout(constant_id = 2) const uint HAS_COPY = 0;
layout(push_constant, scalar) uniform Push { GradientSumArgs args; };

Reals row_of(uint k) {
    return Reals(k == args.own_index ? uint64_t(args.own)
                                     : uint64_t(args.inp) + k * args.stride * REAL_BYTES);
}

void main() {
    const uint64_t i = global_index() * WIDTH;
    if (i >= args.n) return;
    Reals outp = real_row(args.outp, i, 1);
    if (args.n - i >= WIDTH) {
        mat2x4 sum = mat2x4(0);
        for (uint k = 0; k < args.count; k++)
            sum += load_wide(real_row(row_of(k), i, 1), 0);
        store_wide(outp, 0, sum);
        if (HAS_COPY == 1) store_wide(real_row(args.copy, i, 1), 0, sum);
        return;
    }
    for (uint e = 0; e < uint(args.n - i); e++) {
        float sum = 0;
        for (uint k = 0; k < args.count; k++) sum += load(real_row(row_of(k), i, 1), e);
        store(outp, e, sum);
        if (HAS_COPY == 1) store(real_row(args.copy, i, 1), e, sum);
    }
}
