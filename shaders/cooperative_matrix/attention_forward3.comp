// Attention on cooperative matrices: one workgroup computes the queries of its subgroups for one head. It
// loops over the keys that they see, TILE_ROWS per iteration. A subgroup keeps its queries and output
// accumulators in registers. Since it owns whole rows, its softmax needs no communication with other
// subgroups.
//
// The online softmax uses lazy rescaling: the softmax offset only approximates the running maximum. It is
// raised, and the accumulators are rescaled, only if a score exceeds it by RESCALE_THRESHOLD, which is rare
// after a few iterations. CHUNK equals TILE_ROWS in this kernel.
#version 460
#include "util.glsl"
#include "cooperative_matrix.glsl"
#define TILES 2
#define STAGING_PARTS 1
#include "attention3.glsl"
#extension GL_KHR_shader_subgroup_vote : require
#include "attention_forward.glsl"

const float RESCALE_THRESHOLD = 8;  // in base 2; probabilities up to 2^8 are small enough for fp16

uvec4 prefetched[LOADS];  // the next tile, prefetched into registers

// Loads TILE_ROWS rows from `first` on. Rows past the last one, which the mask hides, are copies of the last
// one.
void prefetch_clamped(HeadRows h, uint first) {
    const uint tile_row = gl_LocalInvocationID.x / PACKS, pack = gl_LocalInvocationID.x % PACKS;
    [[unroll]] for (uint n = 0; n < LOADS; n++)
        if (has_load(tile_row, n))
            prefetched[n] =
                pack_address(h, min(first + tile_row + n * ROWS_PER_LOAD, h.count - 1), pack).x[0];
}

// Raises the offset of each row to its largest score, if that exceeds the offset or no offset is set yet
// (`first`). scores, which are relative to the offset, and then row_sums and outputs are rescaled.
void raise_offset(bool first) {
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
        float increase[COMPONENTS], factor[COMPONENTS];
        [[unroll]] for (uint i = 0; i < COMPONENTS; i++) increase[i & ROW_COMPONENTS] = first ? MASKED : 0;
        [[unroll]] for (uint j = 0; j < COLUMNS; j++)
            [[unroll]] for (uint i = 0; i < COMPONENTS; i++)
                increase[i & ROW_COMPONENTS] = max(increase[i & ROW_COMPONENTS], scores[r * COLUMNS + j][i]);
        [[unroll]] for (uint i = 0; i < COMPONENTS; i++)
            if ((i & ROW_COMPONENTS) == i) {
                increase[i] = row_max(increase[i]);
                offset[r][i] += increase[i];
                factor[i] = first ? 1 : exp2(-increase[i]);
                row_sums[r][i] *= factor[i];
            }
        [[unroll]] for (uint i = 0; i < COMPONENTS; i++) {
            [[unroll]] for (uint j = 0; j < COLUMNS; j++)
                scores[r * COLUMNS + j][i] -= increase[i & ROW_COMPONENTS];
            [[unroll]] for (uint j = 0; j < N_FRAGMENTS; j++)
                outputs[r * N_FRAGMENTS + j][i] *= factor[i & ROW_COMPONENTS];
        }
    }
}

// Scores become unnormalized probabilities, which are added to the row sums and stored as operands.
void softmax(bool first) {
    float largest = MASKED;
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++)
            [[unroll]] for (uint i = 0; i < COMPONENTS; i++) {
                const float v = fma(scores[r * COLUMNS + j][i], scale2(), -offset[r][i & ROW_COMPONENTS]);
                scores[r * COLUMNS + j][i] = v;
                largest = max(largest, v);
            }
    if (first || subgroupAny(largest > RESCALE_THRESHOLD)) raise_offset(first);
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++)
            [[unroll]] for (uint i = 0; i < COMPONENTS; i++) {
                const float p = exp2(scores[r * COLUMNS + j][i]);
                scores[r * COLUMNS + j][i] = p;
                row_sums[r][i & ROW_COMPONENTS] += p;
            }
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) stage(scores[r * COLUMNS + j], r, j);
    staging_barrier();
}

// Main loop over the keys from `begin` to `end`. On entry, the first tiles are in shared memory and the next
// keys are prefetched. After the first barrier of an iteration, the next keys overwrite the current ones;
// after the second, the next values do.
void attend(HeadRows key, HeadRows value, uint row, uint begin, uint end, bool masked) {
    [[dont_unroll]] for (uint k = begin; k < end; k += TILE_ROWS) {
        multiply_scores(0, 0);
        barrier();
        store_tile(0, prefetched);
        prefetch_clamped(value, k + TILE_ROWS);
        if (masked) mask_scores(row, k);
        softmax(k == 0);
        multiply_values(TILE_SIZE, 0);
        barrier();
        store_tile(TILE_SIZE, prefetched);
        prefetch_clamped(key, k + 2 * TILE_ROWS);
    }
}

void main() {
    const uint T = args.T, NH = C / HS, queries = SUBGROUPS * ROWS, tiles = (T + queries - 1) / queries;
    const uint64_t group = group_index();
    if (group >= uint64_t(args.B) * NH * tiles) return;
    const uint first = (tiles - 1 - uint(group % tiles)) * queries;  // the longest loops start first
    const uint row = first + gl_SubgroupID * ROWS;                   // the subgroup's first row
    const uint64_t b = group / tiles / NH;
    const uint head = uint(group / tiles % NH) * PACKS;
    Reals sequence = real_row(args.qkv, b * T, 3 * C);
    HeadRows key = HeadRows(sequence, 3 * C / 8, C / 8 + head, T);
    HeadRows value = HeadRows(sequence, 3 * C / 8, 2 * C / 8 + head, T);

    uvec4 own[OWN_LOADS], values[LOADS];
    prefetch_owned_rows(own, HeadRows(sequence, 3 * C / 8, head, T), row);
    prefetch_clamped(key, 0);
    prefetch(values, value, 0);
    store_positions();
    set_operands(q, own);
    barrier();
    [[unroll]] for (uint i = 0; i < COMPONENTS; i++)
        [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) offset[r][i] = row_sums[r][i] = 0;
    [[unroll]] for (uint i = 0; i < ACCUMULATORS; i++) outputs[i] = FragmentSum(0);
    store_tile(0, prefetched);
    store_tile(TILE_SIZE, values);
    prefetch_clamped(key, TILE_ROWS);
    barrier();
    // In whole tiles, since a workgroup may have fewer queries than a tile has keys.
    const uint unmasked = first / TILE_ROWS * TILE_ROWS;
    attend(key, value, row, 0, unmasked, false);
    attend(key, value, row, unmasked, min(first + queries, T), true);
    finish(float_row(args.lse, group / tiles, T), row, T);
    barrier();  // store_owned_rows() reuses the memory of the tiles
    store_owned_rows(outputs, HeadRows(real_row(args.outp, b * T, C), C / 8, head, T), row);
}
