// Residual and LayerNorm: one subgroup adds one row and normalizes the sum while it is in registers. Each
// input is read once, with 16-byte accesses, and the sum is not read back. The sum is rounded to the storage
// type before the statistics are computed: the backward pass combines them with the stored sum.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { FusedResidualLayernormForwardArgs args; };

layout(constant_id = 2) const uint PACKS = 8;  // of a row, per invocation of the subgroup

void main() {
    const uint64_t row = uint64_t(group_index()) * gl_NumSubgroups + gl_SubgroupID;
    if (row >= uint64_t(args.num_rows)) return;
    const uint packs = args.C / WIDTH, first = gl_SubgroupInvocationID;
    Reals inp1 = real_row(args.inp1, row, args.C), inp2 = real_row(args.inp2, row, args.C);
    Reals residual = real_row(args.residual, row, args.C), normed = real_row(args.normed, row, args.C);
    mat2x4 x[PACKS];
    float sum = 0;
    [[unroll]] for (uint k = 0; k < PACKS; k++) {
        // Past the end of the row, load the last pack again: conditional loads would run one after another.
        const uint i = first + k * gl_SubgroupSize, at = min(i, packs - 1);
        x[k] = stored_wide(load_wide(inp1, at) + load_wide(inp2, at));
        if (i >= packs) x[k] = mat2x4(0);
        sum += wide_sum(x[k]);
    }
    [[unroll]] for (uint k = 0; k < PACKS; k++) {
        const uint i = first + k * gl_SubgroupSize;
        if (i < packs) store_wide(residual, i, x[k]);
    }
    const float mean = subgroupAdd(sum) / args.C;
    float squares = 0;
    [[unroll]] for (uint k = 0; k < PACKS; k++) {
        const mat2x4 d = x[k] - mean;
        if (first + k * gl_SubgroupSize < packs) squares += wide_sum(matrixCompMult(d, d));
    }
    const float rstd = 1.0 / sqrt(subgroupAdd(squares) / args.C + 1e-5);
    [[unroll]] for (uint k = 0; k < PACKS; k++) {
        const uint i = first + k * gl_SubgroupSize;
        if (i >= packs) continue;
        const mat2x4 scaled = matrixCompMult((x[k] - mean) * rstd, load_wide(args.weight, i));
        store_wide(normed, i, scaled + load_wide(args.bias, i));
    }
    if (subgroupElect()) {
        float_row(args.mean, row, 1).x[0] = mean;
        float_row(args.rstd, row, 1).x[0] = rstd;
    }
}
