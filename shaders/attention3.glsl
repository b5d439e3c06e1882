// What the attention kernels on matrix cores share. A subgroup owns ROWS rows of its workgroup's (queries, or keys in
// the kernel for dk and dv), whose factors stay in its registers; the rows that they meet pass through `tile` in shared
// memory, STEP at a time. A sum becomes a factor of the next product through the subgroup's patch of shared memory: the
// places of a fragment's components in registers are the device's secret. Numbers that belong to whole rows or columns
// lie in shared memory too, and are loaded with stride 0, into every column or row of a fragment.
layout(constant_id = 4) const uint HS = 64;        // channels of a head
layout(constant_id = 5) const uint C = 768;        // channels of a row
layout(constant_id = 6) const uint LANES = 32;     // invocations of a subgroup
layout(constant_id = 7) const uint FRAGMENTS = 2;  // of rows that a subgroup owns
layout(constant_id = 8) const uint STEP = 64;      // rows of a tile; columns of a patch
// Whether a subgroup skips what the mask hides from all its rows. Not on Mesa's software devices, which take a barrier
// of a subgroup for one of the workgroup.
layout(constant_id = 9) const uint SKIP = 1;
// Whether to use what find_places() finds out about the places of components, rather than shared memory.
layout(constant_id = 10) const uint DIRECT = 0;

#extension GL_KHR_shader_subgroup_vote : require
#extension GL_KHR_shader_subgroup_shuffle : require

const uint SUBGROUPS = BLOCK / LANES;
const uint ROWS = FRAGMENTS * FM;
const uint PACKS = HS / 8;         // 16 bytes each, in a row
const uint STRIDE = PACKS + 1;     // of a tile's rows, so that 8 of them start in different banks
const uint SECOND = STEP * STRIDE; // where the second tile starts
const uint DEEP = HS / FK, WIDE = HS / FN;  // fragments along a row, as a factor and as a sum
const uint FACTORS = FRAGMENTS * DEEP, SUMS = FRAGMENTS * WIDE;
const uint FETCHES = (STEP * PACKS + BLOCK - 1) / BLOCK;

const uint PATCH_STRIDE = STEP / 8 + 1, SUM_STRIDE = FN / 4 + 1;  // in 16 bytes: rows of REAL, and of one fragment's floats
const uint PATCH = ROWS * (PATCH_STRIDE > SUM_STRIDE ? PATCH_STRIDE : SUM_STRIDE);

shared uvec4 tile[2 * SECOND];
shared uvec4 patches[SUBGROUPS * PATCH];
shared float numbers[FM * FN];  // of a fragment's components: row * FN + column

#define FragmentReal coopmat<REAL, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator>

const float LOG2E = 1.44269504, LN2 = 0.69314718, HIDDEN = -1e30;

float scale() { return 1 / sqrt(float(HS)); }
float scale2() { return LOG2E * scale(); }  // makes scores powers of 2

// Rows of one head: row t starts at element t * width + offset of p, and there are `count`.
struct HeadRows {
    Reals p;
    uint width, offset, count;
};

uint pack_index(HeadRows h, uint row) { return (row * h.width + h.offset) / 8; }

uint own_patch() { return gl_SubgroupID * PATCH; }

// Ends a subgroup's writes to its patch, or its reads.
void patch_barrier() {
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}

void fill_numbers() {
    for (uint i = gl_LocalInvocationID.x; i < FM * FN; i += BLOCK) numbers[i] = float(i);
}

// Reads STEP rows from `first` on into the registers of the workgroup; rows past the last one are zeros.
void fetch(inout uvec4 v[FETCHES], HeadRows h, uint first) {
    Reals8 p = Reals8(uint64_t(h.p));
    [[unroll]] for (uint n = 0; n < FETCHES; n++) {
        const uint i = gl_LocalInvocationID.x + n * BLOCK, row = first + i / PACKS;
        v[n] = uvec4(0);
        if (i < STEP * PACKS && row < h.count) v[n] = p.x[pack_index(h, row) + i % PACKS];
    }
}

// Writes them to the tile that starts at `at`.
void put(uint at, uvec4 v[FETCHES]) {
    [[unroll]] for (uint n = 0; n < FETCHES; n++) {
        const uint i = gl_LocalInvocationID.x + n * BLOCK;
        if (i < STEP * PACKS) tile[at + i / PACKS * STRIDE + i % PACKS] = v[n];
    }
}

// Copies the subgroup's rows, `first` and on, to its patch: their channels from slice * STEP on, as many as fit. Rows past
// the last one become zeros.
void stage_own(HeadRows h, uint first, uint slice) {
    Reals8 p = Reals8(uint64_t(h.p));
    const uint packs = min(STEP / 8, PACKS - slice * STEP / 8);
    patch_barrier();
    for (uint i = gl_SubgroupInvocationID; i < ROWS * packs; i += LANES) {
        const uint row = first + i / packs, pack = i % packs;
        uvec4 v = uvec4(0);
        if (row < h.count) v = p.x[pack_index(h, row) + slice * STEP / 8 + pack];
        patches[own_patch() + i / packs * PATCH_STRIDE + pack] = v;
    }
    patch_barrier();
}

// The way back, but for rows past the last one.
void store_own(HeadRows h, uint first, uint slice) {
    Reals8 p = Reals8(uint64_t(h.p));
    const uint packs = min(STEP / 8, PACKS - slice * STEP / 8);
    patch_barrier();
    for (uint i = gl_SubgroupInvocationID; i < ROWS * packs; i += LANES) {
        const uint row = first + i / packs, pack = i % packs;
        const uvec4 v = patches[own_patch() + i / packs * PATCH_STRIDE + pack];
        if (row < h.count) p.x[pack_index(h, row) + slice * STEP / 8 + pack] = v;
    }
    patch_barrier();
}

// Rows `row` to row + FN - 1 of the tile at `at`, transposed: their channels k * FK to k * FK + FK - 1.
FragmentB tile_transposed(uint at, uint row, uint k) {
    FragmentB b;
    coopMatLoad(b, tile, at + row * STRIDE + k * FK / 8, STRIDE, gl_CooperativeMatrixLayoutColumnMajor);
    return b;
}
// Rows `row` to row + FK - 1 of the tile at `at`: their channels j * FN to j * FN + FN - 1.
FragmentB tile_rows(uint at, uint row, uint j) {
    FragmentB b;
    coopMatLoad(b, tile, at + row * STRIDE + j * FN / 8, STRIDE, gl_CooperativeMatrixLayoutRowMajor);
    return b;
}

// Writes a sum to the patch, at row fragment r and column fragment j.
void publish(FragmentSum f, uint r, uint j) {
    coopMatStore(FragmentReal(f), patches, own_patch() + r * FM * PATCH_STRIDE + j * FN / 8, PATCH_STRIDE,
                 gl_CooperativeMatrixLayoutRowMajor);
}
// What was written there, as a factor: row fragment r, columns k * FK to k * FK + FK - 1.
FragmentA published(uint r, uint k) {
    FragmentA a;
    coopMatLoad(a, patches, own_patch() + r * FM * PATCH_STRIDE + k * FK / 8, PATCH_STRIDE,
                gl_CooperativeMatrixLayoutRowMajor);
    return a;
}

// Fragments k of the rows that stage_own() copies, one after the other: it copies where a slice begins.
FragmentA own_factor(HeadRows h, uint first, uint r, uint k) {
    const uint fit = STEP / FK;
    if (r == 0 && k % fit == 0) stage_own(h, first, k / fit);
    return published(r, k % fit);
}
// Stores fragments j likewise: where a slice ends.
void put_own(FragmentSum f, HeadRows h, uint first, uint r, uint j) {
    const uint fit = STEP / FN;
    publish(f, r, j % fit);
    if (r == FRAGMENTS - 1 && (j % fit == fit - 1 || j == WIDE - 1)) store_own(h, first, j / fit);
}

// Row minus column of each component.
FragmentSum slants() {
    FragmentSum n;
    coopMatLoad(n, numbers, 0, FN, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint i = 0; i < n.length(); i++) n[i] = floor(n[i] / FN) * (FN + 1) - n[i];
    return n;
}

bool same_places = false;  // each component of a sum lies where that of a factor does
bool rows_of_four = false; // rows lie in components i, i ^ 1, i ^ 4, i ^ 5 of four neighbouring invocations

// Finds these two out; needs fill_numbers() and a barrier. True on NVIDIA's devices, where 16 x 16 sums have 8 components.
void find_places() {
    if (DIRECT == 0 || FN != FK) return;
    FragmentSum n;
    coopMatLoad(n, numbers, 0, FN, gl_CooperativeMatrixLayoutRowMajor);
    publish(n, 0, 0);
    patch_barrier();
    const FragmentA a = published(0, 0);
    patch_barrier();
    bool same = a.length() == n.length();
    [[unroll]] for (uint i = 0; i < min(a.length(), n.length()); i++) same = same && float(a[i]) == n[i];
    same_places = subgroupAll(same);
    if (n.length() != 8 || FN != 16) return;
    bool four = true;
    [[unroll]] for (uint i = 0; i < 8; i++) {
        const float row = floor(n[i] / FN);
        four = four && subgroupShuffleXor(row, 1) == row && subgroupShuffleXor(row, 2) == row &&
               floor(n[i ^ 1] / FN) == row && floor(n[i ^ 4] / FN) == row;
    }
    rows_of_four = DIRECT > 1 && subgroupAll(four);
}

// A sum as a factor of the same shape, where same_places.
FragmentA factor_of(FragmentSum f) {
    FragmentA a;
    [[unroll]] for (uint i = 0; i < a.length(); i++) a[i] = REAL(f[i]);
    return a;
}
