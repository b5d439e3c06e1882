// LayerNorm, or with ADDS of a sum: one subgroup computes one row and keeps it in registers. Each row is read
// once, with 16-byte accesses, and there are no barriers. Versions 1 and 2 read each row three times. A sum
// is rounded to the storage type before the statistics are computed: the backward pass combines them with the
// stored sum.
//
// Vulkan lets invocations meet again for a subgroup operation only where the whole workgroup takes the same
// way. So subgroups past the last row compute it again and store nothing.
#version 460
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { LayernormForwardArgs args; };

layout(constant_id = 2) const uint PACKS = 8;  // of a row, per invocation of the subgroup
layout(constant_id = 3) const bool ADDS = false;

void main() {
    const uint64_t at_row = uint64_t(group_index()) * gl_NumSubgroups + gl_SubgroupID;
    const bool stores = at_row < uint64_t(args.num_rows);
    const uint64_t row = stores ? at_row : uint64_t(args.num_rows - 1);
    const uint packs = args.C / WIDTH, first = gl_SubgroupInvocationID;
    Reals inp = real_row(args.inp, row, args.C), added = real_row(args.added, row, args.C);
    Reals sums = real_row(args.sum, row, args.C), outp = real_row(args.outp, row, args.C);
    mat2x4 x[PACKS];
    float sum = 0;
    [[unroll]] for (uint k = 0; k < PACKS; k++) {
        // Past the end of the row, load the last pack again: conditional loads would run one after another.
        const uint i = first + k * gl_SubgroupSize, at = min(i, packs - 1);
        x[k] = load_wide(inp, at);
        if (ADDS) x[k] = stored_wide(x[k] + load_wide(added, at));
        if (i >= packs) x[k] = mat2x4(0);
        sum += wide_sum(x[k]);
    }
    [[unroll]] for (uint k = 0; k < PACKS; k++) {
        const uint i = first + k * gl_SubgroupSize;
        if (ADDS && stores && i < packs) store_wide(sums, i, x[k]);
    }
    const float mean = subgroupAdd(sum) / args.C;
    float squares = 0;
    [[unroll]] for (uint k = 0; k < PACKS; k++) {
        const mat2x4 d = x[k] - mean;
        if (first + k * gl_SubgroupSize < packs) squares += wide_sum(matrixCompMult(d, d));
    }
    const float rstd = 1.0 / sqrt(subgroupAdd(squares) / args.C + LAYERNORM_EPSILON);
    [[unroll]] for (uint k = 0; k < PACKS; k++) {
        const uint i = first + k * gl_SubgroupSize;
        if (!stores || i >= packs) continue;
        const mat2x4 scaled = matrixCompMult((x[k] - mean) * rstd, load_wide(args.weight, i));
        store_wide(outp, i, scaled + load_wide(args.bias, i));
    }
    if (stores && first == 0) {
        float_row(args.mean, row, 1).x[0] = mean;
        float_row(args.rstd, row, 1).x[0] = rstd;
    }
}
