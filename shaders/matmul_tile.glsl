// Tiles of GEMMs on cooperative matrices: what matmul5.glsl, matmul6.comp and
// matmul7.glsl share ahead of their main loops.
// A workgroup computes a TILE_M x TILE_N tile of the result; each of its subgroups computes SUBGROUP_M x
// SUBGROUP_N of it, in fragments of FM x FN with fp32 accumulators in registers. All sizes are specialization
// constants, so strides fold into addresses: on an H200, this makes the kernels a third faster.
//
// The epilogue is in matmul_epilogue.glsl.
#include "gelu.glsl"

layout(constant_id = 5) const uint TILE_M = 128;
layout(constant_id = 6) const uint TILE_N = 128;
layout(constant_id = 7) const uint TILE_K = 32;
layout(constant_id = 8) const uint SUBGROUP_M = 64;
layout(constant_id = 9) const uint SUBGROUP_N = 64;
// Rows of tiles per panel. Consecutive workgroups walk a panel column by column and so share operands in L2.
layout(constant_id = 11) const uint PANEL = 8;
layout(constant_id = 12) const uint M = 8;
layout(constant_id = 13) const uint N = 8;
layout(constant_id = 14) const uint K = 8;
layout(constant_id = 15) const bool GUARDED = true;  // tiles may exceed the operands
layout(constant_id = 16) const uint EPILOGUE = 0;    // EPILOGUE_... of args.h
layout(constant_id = 17) const uint K_GROUPS = 1;    // or 2; a divisor of SUBGROUP_M / FM
// The grid computes a batch of GEMMs, whose operands and results lie one after the other. No split-K.
layout(constant_id = 18) const bool BATCHED = false;
// The result is symmetric: tiles above the diagonal receive copies of the tiles below it. No split-K.
layout(constant_id = 19) const bool SYMMETRIC = false;

layout(push_constant, scalar) uniform Push { MatmulMatrixArgs args; };

// Fragments of a subgroup, and the steps of FK that it computes per iteration.
const uint FRAGMENTS_M = SUBGROUP_M / FM, FRAGMENTS_N = SUBGROUP_N / FN;
const uint FRAGMENTS = FRAGMENTS_M * FRAGMENTS_N;
const uint STEPS = TILE_K / FK / K_GROUPS;
const uint SUBGROUPS = (TILE_M / SUBGROUP_M) * (TILE_N / SUBGROUP_N);  // per k_group
const uint LANES = BLOCK / (SUBGROUPS * K_GROUPS);                     // invocations per subgroup

// What a subgroup computes.
struct Position {
    uint m, n;                    // first row and column of the workgroup's tile
    uint subgroup_m, subgroup_n;  // of the subgroup's part, within the tile
    uint split, k_end;            // split of K, and its end
    uint k_group;
    uint gemm;                    // of a batch
};

// The part of the result that this subgroup computes, unless outside().
Position position() {
    const uint tiles_m = (M + TILE_M - 1) / TILE_M, tiles_n = (N + TILE_N - 1) / TILE_N;
    const uint part = group_index() / (tiles_m * tiles_n), i_tile = group_index() % (tiles_m * tiles_n);
    const uint split = BATCHED ? 0 : part;
    const uint first = i_tile / (PANEL * tiles_n) * PANEL, height = min(PANEL, tiles_m - first);
    const uint in_panel = i_tile % (PANEL * tiles_n);
    return Position((first + in_panel % height) * TILE_M, in_panel / height * TILE_N,
                    gl_SubgroupID % (TILE_M / SUBGROUP_M) * SUBGROUP_M,
                    gl_SubgroupID % SUBGROUPS / (TILE_M / SUBGROUP_M) * SUBGROUP_N, split,
                    min((split + 1) * args.k_per_split, K), gl_SubgroupID / SUBGROUPS, BATCHED ? part : 0);
}

// Whether a tile, given by its first row and column, is above the diagonal.
bool above_diagonal(uint m, uint n) { return n >= m + TILE_M; }

// Whether there is nothing to compute: past the last split or the last GEMM of a batch, or a copy is to come.
bool outside(Position p) {
    return (BATCHED ? p.gemm : p.split) >= args.splits || (SYMMETRIC && above_diagonal(p.m, p.n));
}

// An operand of `size` elements, of this workgroup's GEMM.
Reals operand(Reals first, Position p, uint size) { return BATCHED ? real_row(first, p.gemm, size) : first; }

// The address of an operand's chunk of 8 elements; its lines have `width` elements.
uint64_t chunk_address(Reals p, uint line, uint width, uint chunk) {
    return uint64_t(p) + (uint64_t(line) * (width / 8) + chunk) * (8 * REAL_BYTES);
}
