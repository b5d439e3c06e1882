// The sum of the gradients of several processes, which may lie in host memory: each invocation has IN_FLIGHT
// loads on their way at a time.
#version 460
#include "packs.glsl"

layout(constant_id = 2) const uint HAS_COPY = 0;
layout(push_constant, scalar) uniform Push { GradientSumArgs args; };

const uint IN_FLIGHT = 4;

Reals row_of(uint k) {
    return Reals(k == args.own_index ? uint64_t(args.own)
                                     : uint64_t(args.inp) + k * args.stride * REAL_BYTES);
}

void sum_elements(uint64_t first, uint count) {
    for (uint e = 0; e < count; e++) {
        float sum = 0;
        for (uint k = 0; k < args.count; k++) sum += load(real_row(row_of(k), first, 1), e);
        store(real_row(args.outp, first, 1), e, sum);
        if (HAS_COPY == 1) store(real_row(args.copy, first, 1), e, sum);
    }
}

void main() {
    const uint64_t packs = args.n / WIDTH, invocations = args.groups * BLOCK;
    for (uint64_t first = global_index(); first < packs; first += IN_FLIGHT * invocations) {
        mat2x4 sums[IN_FLIGHT];
        [[unroll]] for (uint j = 0; j < IN_FLIGHT; j++) sums[j] = mat2x4(0);
        for (uint k = 0; k < args.count; k++)
            [[unroll]] for (uint j = 0; j < IN_FLIGHT; j++) {
                const uint64_t pack = first + j * invocations;
                if (pack < packs) sums[j] += load_wide(real_row(row_of(k), pack * WIDTH, 1), 0);
            }
        [[unroll]] for (uint j = 0; j < IN_FLIGHT; j++) {
            const uint64_t i = (first + j * invocations) * WIDTH;
            if (i >= packs * WIDTH) break;
            store_wide(real_row(args.outp, i, 1), 0, sums[j]);
            if (HAS_COPY == 1) store_wide(real_row(args.copy, i, 1), 0, sums[j]);
        }
    }
    if (global_index() == 0) sum_elements(packs * WIDTH, uint(args.n - packs * WIDTH));
}
