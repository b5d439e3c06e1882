// Attention on cooperative matrices without a running maximum: one workgroup computes the queries of its
// subgroups for one head. It loops over the keys that they see, TILE_ROWS per iteration. Two pairs of tiles
// alternate in shared memory, so that an iteration needs one barrier. CHUNK equals TILE_ROWS in this kernel.
//
// The offset of the softmax is the largest score of a row's first FN keys and stays, so that nothing is
// rescaled. Probabilities relative to it may be as large as the range of REAL allows, since all of them have
// the same relative precision. If a sum of them exceeds MAX_SUM, the workgroup finds the largest scores and
// computes its queries again.
#version 460
#include "util.glsl"
#include "cooperative_matrix.glsl"
#define TILES 4
#define STAGING_PARTS 1
#include "attention3.glsl"
#extension GL_KHR_shader_subgroup_vote : require
#include "attention_forward.glsl"

#ifdef REAL_BF16
const float MAX_SUM = 1e30;  // leaves room for products with values in fp32
#else
const float MAX_SUM = 32768;  // a probability is at most as large
#endif

shared bool exceeded;  // some sum of the workgroup exceeds MAX_SUM, or is not a number

// Raises the offset of each row to its largest score in the first `columns` column fragments.
void raise_offset(uint columns) {
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < columns; j++)
            [[unroll]] for (uint i = 0; i < COMPONENTS; i++)
                offset[r][i & ROW_COMPONENTS] =
                    max(offset[r][i & ROW_COMPONENTS], scores[r * COLUMNS + j][i] * scale2());
}
// Gives all invocations of a row the largest offset of any of them.
void share_offset() {
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint i = 0; i < COMPONENTS; i++)
            if ((i & ROW_COMPONENTS) == i) offset[r][i] = row_max(offset[r][i]);
}
void clear_offset() {
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint i = 0; i < COMPONENTS; i++) offset[r][i] = MASKED;
}

// Sets the offset of each row to its largest score among the keys of the first fragment. A branch in the main
// loop that did so with scores at hand would cost more.
void set_first_offset(uint row) {
    multiply_scores(0, 0);
    mask_scores(row, 0);
    raise_offset(1);
    share_offset();
}

// Scores become unnormalized probabilities, which are added to the row sums and stored as operands.
void softmax() {
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
            [[unroll]] for (uint i = 0; i < COMPONENTS; i++) {
                const float p =
                    exp2(fma(scores[r * COLUMNS + j][i], scale2(), -offset[r][i & ROW_COMPONENTS]));
                scores[r * COLUMNS + j][i] = p;
                row_sums[r][i & ROW_COMPONENTS] += p;
            }
            stage(scores[r * COLUMNS + j], r, j);
        }
    staging_barrier();
}

uvec4 keys[LOADS], values[LOADS];

void prefetch_tiles(HeadRows key, HeadRows value, uint t) {
    prefetch(keys, key, t);
    prefetch(values, value, t);
}
void store_tiles(uint at) {
    store_tile(at, keys);
    store_tile(at + TILE_SIZE, values);
}

// One iteration of the main loop: the keys from t on, in the tiles at `at`. The next keys go to the other two
// tiles. masked: whether the causal mask hides some of these keys from some of the workgroup's queries.
// The conditions of loads and stores diverge within a subgroup. Each is an `if` without loop or return, after
// which compilers reconverge; Vulkan guarantees that only in control flow that is uniform in the workgroup.
// That of subgroups which skip keys is not. They skip only if IN_PLACE, which is probed on the device, and
// the self-test runs this very case there before training does (self_test_shapes()). A branch that excludes
// the loads does not keep the speed.
void iterate(HeadRows key, HeadRows value, uint row, uint t, bool masked, inout uint at) {
    const uint next = 2 * TILE_SIZE - at;
    barrier();
    if (MAY_SKIP && masked && t >= row + ROWS) {  // the subgroup's queries see none of these keys
        store_tiles(next);
        prefetch_tiles(key, value, t + 2 * TILE_ROWS);
    } else {
        multiply_scores(at, 0);
        store_tiles(next);
        if (masked) mask_scores(row, t);
        softmax();
        prefetch_tiles(key, value, t + 2 * TILE_ROWS);
        multiply_values(at + TILE_SIZE, 0);
    }
    at = next;
}

// The main loop, for the workgroup's queries from `first` on: sets outputs and row_sums, and the offset if it
// is `fresh`. The first tiles are prefetched.
void attend(HeadRows key, HeadRows value, uint row, uint first, uint end, bool fresh) {
    [[unroll]] for (uint i = 0; i < COMPONENTS; i++)
        [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) row_sums[r][i] = 0;
    [[unroll]] for (uint i = 0; i < ACCUMULATORS; i++) outputs[i] = FragmentSum(0);
    barrier();
    store_tiles(0);
    prefetch_tiles(key, value, TILE_ROWS);
    if (fresh) {
        barrier();
        set_first_offset(row);
    }
    uint at = 0, t = 0;
    [[dont_unroll]] for (; t < first / TILE_ROWS * TILE_ROWS; t += TILE_ROWS)
        iterate(key, value, row, t, false, at);
    [[dont_unroll]] for (; t < end; t += TILE_ROWS) iterate(key, value, row, t, true, at);
}

// Whether any invocation's part of a row sum exceeds MAX_SUM. Ends with a barrier.
bool any_sum_exceeds() {
    bool exceeds = false;
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
        [[unroll]] for (uint i = 0; i < COMPONENTS; i++)
            if ((i & ROW_COMPONENTS) == i) exceeds = exceeds || !(row_sums[r][i] <= MAX_SUM);
    if (subgroupAny(exceeds) && subgroupElect()) exceeded = true;
    barrier();
    return exceeded;
}

// Sets the offset of each row to its largest score.
void find_offset(HeadRows key, uint row, uint end) {
    clear_offset();
    [[dont_unroll]] for (uint t = 0; t < end; t += TILE_ROWS) {
        prefetch(keys, key, t);
        barrier();
        store_tile(0, keys);
        barrier();
        multiply_scores(0, 0);
        mask_scores(row, t);
        raise_offset(COLUMNS);
    }
    share_offset();
}

void main() {
    const uint T = args.T, NH = C / HS, queries = SUBGROUPS * ROWS, tiles = (T + queries - 1) / queries;
    const uint64_t group = group_index();
    if (group >= uint64_t(args.B) * NH * tiles) return;
    const uint first = (tiles - 1 - uint(group % tiles)) * queries;  // the longest loops start first
    const uint row = first + gl_SubgroupID * ROWS;                   // the subgroup's first row
    const uint end = min(first + queries, T);
    const uint64_t b = group / tiles / NH;
    const uint head = uint(group / tiles % NH) * PACKS;
    Reals sequence = real_row(args.qkv, b * T, 3 * C);
    HeadRows key = HeadRows(sequence, 3 * C / 8, C / 8 + head, T);
    HeadRows value = HeadRows(sequence, 3 * C / 8, 2 * C / 8 + head, T);

    uvec4 own[OWN_LOADS];
    prefetch_owned_rows(own, HeadRows(sequence, 3 * C / 8, head, T), row);
    prefetch_tiles(key, value, 0);
    store_positions();
    if (gl_LocalInvocationID.x == 0) exceeded = false;
    set_operands(q, own);
    clear_offset();
    attend(key, value, row, first, end, true);
    if (any_sum_exceeds()) {
        find_offset(key, row, end);
        prefetch_tiles(key, value, 0);
        attend(key, value, row, first, end, false);
    }
    finish(float_row(args.lse, group / tiles, T), row, T);
    barrier();  // store_owned_rows() reuses the memory of the tiles
    store_owned_rows(outputs, HeadRows(real_row(args.outp, b * T, C), C / 8, head, T), row);
}
