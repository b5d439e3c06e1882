// LayerNorm backward in one pass: a workgroup iterates over its share of the rows and reads each value once,
// with 16-byte accesses. It accumulates the gradients of weight and bias of its rows in registers, and writes
// them to its row of scratch at the end; layernorm_backward2_weight adds up these rows.
#version 460
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { LayernormBackwardArgs args; };

layout(constant_id = 2) const uint PACKS = 4;  // of a row, per invocation

shared vec2 subgroup_sums[2 * BLOCK];

// Sums over the workgroup. subgroup_sums is double-buffered, so one barrier per iteration is enough.
vec2 row_sums(vec2 v, uint iteration) {
    v = subgroupAdd(v);
    const uint first = (iteration % 2) * BLOCK;
    if (subgroupElect()) subgroup_sums[first + gl_SubgroupID] = v;
    barrier();
    vec2 sum = vec2(0);
    for (uint i = 0; i < gl_NumSubgroups; i++) sum += subgroup_sums[first + i];
    return sum;
}

void main() {
    const uint group = group_index(), C = args.C, packs = C / WIDTH, first = gl_LocalInvocationID.x;
    if (group >= args.workgroups) return;
    vec4 dweight[PACKS], dbias[PACKS];
    [[unroll]] for (uint k = 0; k < PACKS; k++) dweight[k] = dbias[k] = vec4(0);
    const bool adds = uint64_t(args.added) != 0;
    uint iteration = 0;
    for (uint row = group; row < args.num_rows; row += args.workgroups) {
        Reals dinp = real_row(args.dinp, row, C), added = real_row(args.added, row, C);
        Reals dout = real_row(args.dout, row, C), inp = real_row(args.inp, row, C);
        const float mean = args.mean.x[row], rstd = args.rstd.x[row];
        vec4 norm[PACKS], d[PACKS], before[PACKS];
        vec2 sums = vec2(0);
        [[unroll]] for (uint k = 0; k < PACKS; k++) {
            const uint i = first + k * BLOCK;
            if (i >= packs) continue;
            const vec4 g = load_pack(dout, i);
            norm[k] = (load_pack(inp, i) - mean) * rstd;
            before[k] = adds ? load_pack(added, i) : vec4(0);
            dweight[k] += g * norm[k];
            dbias[k] += g;
            d[k] = g * load_pack(args.weight, i);
            sums += vec2(pack_sum(d[k]), pack_sum(d[k] * norm[k]));
        }
        sums = row_sums(sums, iteration++) / C;
        [[unroll]] for (uint k = 0; k < PACKS; k++) {
            const uint i = first + k * BLOCK;
            if (i < packs) store_pack(dinp, i, before[k] + (d[k] - sums.x - norm[k] * sums.y) * rstd);
        }
    }
    Floats scratch = float_row(args.scratch, group, 2 * C);
    [[unroll]] for (uint k = 0; k < PACKS; k++) {
        const uint i = first + k * BLOCK;
        for (uint j = 0; i < packs && j < WIDTH; j++) {
            scratch.x[i * WIDTH + j] = dweight[k][j];
            scratch.x[C + i * WIDTH + j] = dbias[k][j];
        }
    }
}
