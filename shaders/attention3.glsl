// Shared code of the attention kernels on cooperative matrices. A subgroup owns ROWS rows of its workgroup's
// queries (of its keys in the kernel for dk and dv) and keeps them in registers as operand fragments. The
// rows of the other kind stream through tiles in shared memory, TILE_ROWS rows per iteration of the main
// loop. Tiles that the causal mask does not touch have a loop of their own, without masking.
//
// The register layout of a fragment is implementation-defined; the launchpad probes it at start-up
// (matrix_layout.h). If accumulators have the layout of operand A, as on NVIDIA's devices, an accumulator
// becomes an operand in registers. Otherwise it passes through the subgroup's staging buffer in shared
// memory.
//
// On an H200, two workgroups fit on an SM if their shared memory stays under 24 KiB, and three under 16 KiB.
// With a single one, attention takes 1.5 times as long.
//
// The including file defines TILES, the number of tiles in shared memory, and STAGING_PARTS, the number of
// accumulator chunks (CHUNK columns each) that a staging buffer holds side by side.
#extension GL_KHR_shader_subgroup_shuffle : require

layout(constant_id = 5) const uint HS = 64;        // channels per head
layout(constant_id = 6) const uint C = 768;        // channels per row
layout(constant_id = 7) const uint LANES = 32;     // invocations per subgroup
layout(constant_id = 8) const uint FRAGMENTS = 2;  // row fragments that a subgroup owns
layout(constant_id = 9) const uint TILE_ROWS = 32;  // rows per tile
layout(constant_id = 10) const uint CHUNK = 32;     // rows of a tile that a subgroup processes at once
layout(constant_id = 11) const bool IN_PLACE = false;  // accumulators have the register layout of operand A
// Components of an accumulator whose indices agree in the bits ROW_COMPONENTS belong to one row. The rest of
// the row is held by the invocations whose numbers differ only in the bits COLUMN_LANES.
layout(constant_id = 12) const uint ROW_COMPONENTS = 4;
layout(constant_id = 13) const uint COLUMN_LANES = 3;

const uint SUBGROUPS = BLOCK / LANES;
const uint ROWS = FRAGMENTS * FM;
const uint PACKS = HS / 8;      // packs of 16 bytes per row: the unit of the sizes and strides below
const uint STRIDE = PACKS + 1;  // of a tile's rows; the padding avoids bank conflicts
const uint TILE_SIZE = TILE_ROWS * STRIDE;
const uint K_FRAGMENTS = HS / FK;  // operand fragments along a row
const uint N_FRAGMENTS = HS / FN;  // accumulator fragments along a row
const uint OPERANDS = FRAGMENTS * K_FRAGMENTS, ACCUMULATORS = FRAGMENTS * N_FRAGMENTS;
const uint COLUMNS = CHUNK / FN, SCORES = FRAGMENTS * COLUMNS;
const uint COMPONENTS = FM * FN / LANES;  // of an accumulator, per invocation
const uint ROWS_PER_LOAD = BLOCK / PACKS;  // of the workgroup; some invocations may be idle
const uint LOADS = (TILE_ROWS + ROWS_PER_LOAD - 1) / ROWS_PER_LOAD;
const uint FRAGMENT_LOADS = (FM * PACKS + LANES - 1) / LANES;  // of a subgroup, for a row fragment of its own
const uint OWN_LOADS = FRAGMENTS * FRAGMENT_LOADS;

// A staging buffer holds ROWS rows of REAL.
const uint STAGING_STRIDE = STAGING_PARTS * CHUNK / 8 + 1;
const uint STAGING_SIZE = IN_PLACE ? 0 : ROWS * STAGING_STRIDE;
// The prologue and the epilogue reuse this memory for the subgroup's own rows, FM of them at a time.
const uint OWN_SIZE = FM * STRIDE, MAIN_LOOP_SIZE = TILES * TILE_SIZE + SUBGROUPS * STAGING_SIZE;

shared uvec4 smem[MAIN_LOOP_SIZE > SUBGROUPS * OWN_SIZE ? MAIN_LOOP_SIZE : SUBGROUPS * OWN_SIZE];
shared vec4 positions[FM * FN / 4];  // row * FN + column; fragments load from multiples of 16 bytes

const float LOG2E = 1.44269504, LN2 = 0.69314718, MASKED = -1e30;
const float HUGE_LSE = 1e37;  // of queries past the end; finite after the division by scale()

float scale() { return 1 / sqrt(float(HS)); }
float scale2() { return LOG2E * scale(); }  // for exp2

// `count` rows of one head: row t starts at t * width + offset of p, in units of 16 bytes.
struct HeadRows {
    Reals p;
    uint width, offset, count;
};

Reals8 pack_address(HeadRows h, uint row, uint pack) {
    return Reals8(uint64_t(h.p) + uint64_t(row * h.width + h.offset + pack) * 16);
}

// Whether a subgroup may skip rows of a tile that the causal mask hides from it. With a staging buffer, it
// then passes fewer subgroup barriers than others, and results are wrong on Mesa's software device.
const bool MAY_SKIP = IN_PLACE;

uint staging_buffer() { return TILES * TILE_SIZE + gl_SubgroupID * STAGING_SIZE; }

// Orders the accesses of a subgroup to its part of shared memory.
void subgroup_memory_barrier() {
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}

// Whether an invocation whose first row of a tile is `tile_row` has an n-th load.
bool has_load(uint tile_row, uint n) {
    return (BLOCK % PACKS == 0 || tile_row < ROWS_PER_LOAD) &&
           (TILE_ROWS % ROWS_PER_LOAD == 0 || tile_row + n * ROWS_PER_LOAD < TILE_ROWS);
}

void store_positions() {
    for (uint i = gl_LocalInvocationID.x; i < FM * FN / 4; i += BLOCK)
        positions[i] = 4 * i + vec4(0, 1, 2, 3);
}
FragmentSum load_positions() {
    FragmentSum f;
    coopMatLoad(f, positions, 0, FN / 4, gl_CooperativeMatrixLayoutRowMajor);
    return f;
}
int row_of(float position) { return int(uint(position) / FN); }
int column_of(float position) { return int(uint(position) % FN); }

// The row and the pack of an invocation's n-th load of the subgroup's own rows, and whether there is one.
uint owned_load(uint n) { return gl_SubgroupInvocationID + n % FRAGMENT_LOADS * LANES; }
uint owned_row(uint n) { return n / FRAGMENT_LOADS * FM + owned_load(n) / PACKS; }
uint owned_pack(uint n) { return owned_load(n) % PACKS; }
bool has_owned_load(uint n) { return owned_load(n) < FM * PACKS; }

// Loads TILE_ROWS rows from `first` on into the workgroup's registers; rows past the last one are zero.
void prefetch(inout uvec4 v[LOADS], HeadRows h, uint first) {
    const uint tile_row = gl_LocalInvocationID.x / PACKS;
    Reals8 p = pack_address(h, first + tile_row, gl_LocalInvocationID.x % PACKS);
    [[unroll]] for (uint n = 0; n < LOADS; n++) {
        v[n] = uvec4(0);
        if (has_load(tile_row, n) && first + tile_row + n * ROWS_PER_LOAD < h.count)
            v[n] = p.x[n * ROWS_PER_LOAD * h.width];
    }
}

// Stores what prefetch() loaded to the tile at `at`.
void store_tile(uint at, uvec4 v[LOADS]) {
    const uint tile_row = gl_LocalInvocationID.x / PACKS;
    const uint to = at + tile_row * STRIDE + gl_LocalInvocationID.x % PACKS;
    [[unroll]] for (uint n = 0; n < LOADS; n++)
        if (has_load(tile_row, n)) smem[to + n * ROWS_PER_LOAD * STRIDE] = v[n];
}

// Loads the subgroup's rows, from `first` on, into registers; rows past the last one are zero. Kernels start
// all of their loads before they wait for one: short loops do not hide their latency.
void prefetch_owned_rows(inout uvec4 v[OWN_LOADS], HeadRows h, uint first) {
    [[unroll]] for (uint n = 0; n < OWN_LOADS; n++) {
        const uint row = first + owned_row(n);
        v[n] = uvec4(0);
        if (has_owned_load(n) && row < h.count) v[n] = pack_address(h, row, owned_pack(n)).x[0];
    }
}

// The operands that prefetch_owned_rows() loaded.
void set_operands(inout FragmentA a[OPERANDS], uvec4 v[OWN_LOADS]) {
    const uint own = gl_SubgroupID * OWN_SIZE;
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
        [[unroll]] for (uint n = r * FRAGMENT_LOADS; n < (r + 1) * FRAGMENT_LOADS; n++)
            if (has_owned_load(n)) smem[own + (owned_row(n) - r * FM) * STRIDE + owned_pack(n)] = v[n];
        subgroup_memory_barrier();
        [[unroll]] for (uint k = 0; k < K_FRAGMENTS; k++)
            coopMatLoad(a[r * K_FRAGMENTS + k], smem, own + k * FK / 8, STRIDE,
                        gl_CooperativeMatrixLayoutRowMajor);
        subgroup_memory_barrier();
    }
}

// Stores accumulators as the subgroup's rows, from `first` on; skips rows past the last one.
void store_owned_rows(FragmentSum f[ACCUMULATORS], HeadRows h, uint first) {
    const uint own = gl_SubgroupID * OWN_SIZE;
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
        [[unroll]] for (uint j = 0; j < N_FRAGMENTS; j++)
            coopMatStore(round_fragment(f[r * N_FRAGMENTS + j]), smem, own + j * FN / 8, STRIDE,
                         gl_CooperativeMatrixLayoutRowMajor);
        subgroup_memory_barrier();
        for (uint i = gl_SubgroupInvocationID; i < FM * PACKS; i += LANES) {
            const uint row = first + r * FM + i / PACKS;
            if (row < h.count)
                pack_address(h, row, i % PACKS).x[0] = smem[own + i / PACKS * STRIDE + i % PACKS];
        }
        subgroup_memory_barrier();
    }
}

// K fragment k of the transpose of rows row to row + FN - 1 of the tile at `at`.
FragmentB load_tile_transposed(uint at, uint row, uint k) {
    FragmentB b;
    coopMatLoad(b, smem, at + row * STRIDE + k * FK / 8, STRIDE, gl_CooperativeMatrixLayoutColumnMajor);
    return b;
}
// Column fragment j of rows row to row + FK - 1 of the tile at `at`.
FragmentB load_tile(uint at, uint row, uint j) {
    FragmentB b;
    coopMatLoad(b, smem, at + row * STRIDE + j * FN / 8, STRIDE, gl_CooperativeMatrixLayoutRowMajor);
    return b;
}

// Rounds v to the storage type where conversions truncate (cooperative_matrix.glsl). This runs for every
// score, so in bf16 it is cheaper than round_fragment(): ties round away from zero, a NaN may be lost, and
// infinity may become NaN. A NaN also reaches other results, which report it.
float round_component(float v) {
#ifdef REAL_BF16
    return exact_in_bf16(floatBitsToUint(v) + 0x8000u);
#else
    return exact_in_fp16(v);
#endif
}

// Accumulators become A operands: stage() stores each, at row fragment r and column fragment j, to the
// staging buffer, and after staging_barrier() as_operand() loads it. With IN_PLACE, as_operand() converts in
// registers and the other two do nothing.
void stage(FragmentSum f, uint r, uint j) {
    if (IN_PLACE) return;
    [[unroll]] for (uint i = 0; i < f.length(); i++) f[i] = round_component(f[i]);
    coopMatStore(FragmentResult(f), smem, staging_buffer() + r * FM * STAGING_STRIDE + j * FN / 8,
                 STAGING_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
}
// Row fragment r and K fragment k of the accumulators, which begin at column fragment `part` of the staging
// buffer.
FragmentA as_operand(FragmentSum accumulators[SCORES], uint r, uint k, uint part) {
    FragmentA a;
    if (IN_PLACE) {
        const uint s = r * COLUMNS + min(k, COLUMNS - 1);  // with IN_PLACE, FN equals FK
        [[unroll]] for (uint i = 0; i < COMPONENTS; i++) a[i] = REAL(round_component(accumulators[s][i]));
    } else {
        coopMatLoad(a, smem, staging_buffer() + r * FM * STAGING_STRIDE + part * FN / 8 + k * FK / 8,
                    STAGING_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
    }
    return a;
}
// Orders a subgroup's accesses to its staging buffer, if it has one.
void staging_barrier() {
    if (!IN_PLACE) subgroup_memory_barrier();
}
