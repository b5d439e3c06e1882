// out = weight inp + bias for a single row: one subgroup computes one output. Reading the weight takes most
// of the time, so adjacent invocations load adjacent packs of its row: accesses are coalesced, and each
// weight is read once.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { MatmulForwardArgs args; };

void main() {
    const uint64_t row = uint64_t(group_index()) * gl_NumSubgroups + gl_SubgroupID;
    if (row >= args.OC) return;
    const uint packs = args.C / WIDTH;
    Reals weight = real_row(args.weight, row, args.C);
    float sum = 0;
    for (uint i = gl_SubgroupInvocationID; i < packs; i += gl_SubgroupSize)
        sum += wide_sum(matrixCompMult(load_wide(args.inp, i), load_wide(weight, i)));
    sum = subgroupAdd(sum);
    if (!subgroupElect()) return;
    if (uint64_t(args.bias) != 0) sum += load(args.bias, uint(row));
    store(args.outp, uint(row), sum);
}
