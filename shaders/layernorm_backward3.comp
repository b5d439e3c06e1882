// LayerNorm backward in one pass, as version 2, but with 16-byte accesses for all storage types, ROWS rows
// per iteration, and the rows of the next iteration prefetched. layernorm_backward2_weight adds up the
// workgroups' rows of scratch.
#version 460
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { LayernormBackwardArgs args; };

layout(constant_id = 2) const uint PACKS = 1;  // of 16 bytes, of a row, per invocation
layout(constant_id = 3) const uint ROWS = 2;   // per iteration
const uint FIELDS = ROWS * PACKS;

shared vec2 subgroup_sums[2 * ROWS * BLOCK];

uvec4 dout[FIELDS], inp[FIELDS], added[FIELDS];  // prefetched rows, as raw 16-byte packs
float mean[ROWS], rstd[ROWS];

// Prefetches ROWS rows from `row` on. Rows and packs outside of the tensor repeat the last one.
void load_rows(uint row) {
    if (row >= args.num_rows) return;
    const uint packs = args.C * REAL_BYTES / 16;
    const bool adds = uint64_t(args.added) != 0;
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        const uint at = min(row + r, args.num_rows - 1);
        mean[r] = args.mean.x[at];
        rstd[r] = args.rstd.x[at];
        [[unroll]] for (uint k = 0; k < PACKS; k++) {
            const uint i = min(gl_LocalInvocationID.x + k * BLOCK, packs - 1), field = r * PACKS + k;
            dout[field] = load_raw(real_row(args.dout, at, args.C), i);
            inp[field] = load_raw(real_row(args.inp, at, args.C), i);
            added[field] = adds ? load_raw(real_row(args.added, at, args.C), i) : uvec4(0);
        }
    }
}

void main() {
    const uint group = group_index(), C = args.C, packs = C * REAL_BYTES / 16, id = gl_LocalInvocationID.x;
    if (group >= args.workgroups) return;
    vec4 weight[PACKS * RAW_FOURS], dweight[PACKS * RAW_FOURS], dbias[PACKS * RAW_FOURS];
    [[unroll]] for (uint k = 0; k < PACKS; k++) {
        const uvec4 raw = load_raw(args.weight, min(id + k * BLOCK, packs - 1));
        [[unroll]] for (uint j = 0; j < RAW_FOURS; j++) weight[k * RAW_FOURS + j] = unpack_raw(raw, j);
    }
    [[unroll]] for (uint k = 0; k < PACKS * RAW_FOURS; k++) dweight[k] = dbias[k] = vec4(0);
    uint iteration = 0;
    load_rows(group * ROWS);
    for (uint row = group * ROWS; row < args.num_rows; row += args.workgroups * ROWS, iteration++) {
        vec4 norm[FIELDS * RAW_FOURS], d[FIELDS * RAW_FOURS];
        uvec4 before[FIELDS];
        float scale[ROWS];
        const uint first = iteration % 2 * ROWS * BLOCK;  // double-buffered: one barrier per iteration
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            vec2 sums = vec2(0);
            scale[r] = rstd[r];
            [[unroll]] for (uint k = 0; k < PACKS; k++) {
                const uint field = r * PACKS + k;
                const bool inside = row + r < args.num_rows && id + k * BLOCK < packs;
                const uvec4 gradients = inside ? dout[field] : uvec4(0);
                before[field] = added[field];
                [[unroll]] for (uint j = 0; j < RAW_FOURS; j++) {
                    const uint f = field * RAW_FOURS + j, w = k * RAW_FOURS + j;
                    const vec4 g = unpack_raw(gradients, j);
                    norm[f] = (unpack_raw(inp[field], j) - mean[r]) * rstd[r];
                    dweight[w] += g * norm[f];
                    dbias[w] += g;
                    d[f] = g * weight[w];
                    sums += vec2(pack_sum(d[f]), pack_sum(d[f] * norm[f]));
                }
            }
            sums = subgroupAdd(sums);
            if (subgroupElect()) subgroup_sums[first + r * BLOCK + gl_SubgroupID] = sums;
        }
        load_rows(row + args.workgroups * ROWS);
        barrier();
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            vec2 sums = vec2(0);
            for (uint i = 0; i < gl_NumSubgroups; i++) sums += subgroup_sums[first + r * BLOCK + i];
            sums /= C;
            [[unroll]] for (uint k = 0; k < PACKS; k++) {
                vec4 result[RAW_FOURS];
                [[unroll]] for (uint j = 0; j < RAW_FOURS; j++) {
                    const uint f = (r * PACKS + k) * RAW_FOURS + j;
                    result[j] = unpack_raw(before[r * PACKS + k], j) +
                                (d[f] - sums.x - norm[f] * sums.y) * scale[r];
                }
                if (row + r < args.num_rows && id + k * BLOCK < packs)
                    store_raw(real_row(args.dinp, row + r, C), id + k * BLOCK, result);
            }
        }
    }
    Floats4 scratch = Floats4(uint64_t(float_row(args.scratch, group, 2 * C)));
    [[unroll]] for (uint k = 0; k < PACKS; k++)
        [[unroll]] for (uint j = 0; j < RAW_FOURS; j++) {
            const uint i = (id + k * BLOCK) * RAW_FOURS + j;
            if (4 * i >= C) return;
            scratch.x[i] = dweight[k * RAW_FOURS + j];
            scratch.x[C / 4 + i] = dbias[k * RAW_FOURS + j];
        }
}
