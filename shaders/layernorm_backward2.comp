// LayerNorm backward in one pass: a workgroup walks through its share of the rows with 16-byte accesses, each value read
// once, and keeps its part of the gradients of weight and bias in registers until it writes them to its row of
// scratch. layernorm_backward2_weight adds those up; version 1 reads dout and inp three times.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { LayernormBackwardArgs args; };

layout(constant_id = 2) const uint PACKS = 4;  // of a row that an invocation holds

shared vec2 partial[2 * BLOCK];

// Sums over the workgroup. Two sets of partial sums take turns, so that one barrier does.
vec2 row_sums(vec2 v, uint turn) {
    v = subgroupAdd(v);
    const uint first = (turn % 2) * BLOCK;
    if (subgroupElect()) partial[first + gl_SubgroupID] = v;
    barrier();
    vec2 sum = vec2(0);
    for (uint i = 0; i < gl_NumSubgroups; i++) sum += partial[first + i];
    return sum;
}

void main() {
    const uint team = group_index(), C = args.C, packs = C / WIDTH, first = gl_LocalInvocationID.x;
    if (team >= args.teams) return;
    vec4 dweight[PACKS], dbias[PACKS];
    [[unroll]] for (uint k = 0; k < PACKS; k++) dweight[k] = dbias[k] = vec4(0);
    const bool adds = uint64_t(args.added) != 0;
    uint turn = 0;
    for (uint row = team; row < args.N; row += args.teams) {
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
        sums = row_sums(sums, turn++) / C;
        [[unroll]] for (uint k = 0; k < PACKS; k++) {
            const uint i = first + k * BLOCK;
            if (i < packs) store_pack(dinp, i, before[k] + (d[k] - sums.x - norm[k] * sums.y) * rstd);
        }
    }
    Floats scratch = float_row(args.scratch, team, 2 * C);
    [[unroll]] for (uint k = 0; k < PACKS; k++) {
        const uint i = first + k * BLOCK;
        for (uint j = 0; i < packs && j < WIDTH; j++) {
            scratch.x[i * WIDTH + j] = dweight[k][j];
            scratch.x[C + i * WIDTH + j] = dbias[k][j];
        }
    }
}
