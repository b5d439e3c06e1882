// What the attention kernels on matrix cores share. A subgroup owns ROWS rows of its workgroup's (queries, or keys in
// the kernel for dk and dv), whose factors stay in its registers; the rows that they meet pass through tiles in shared
// memory, STEP at a time. Rows that the mask leaves whole come in a loop of their own, without masks and branches.
//
// Where the components of a fragment lie in registers is the device's secret, but the launchpad looks at it (matrix_layout.h). Where
// sums lie as factors do, which is so on NVIDIA's devices, sums become factors in their registers, elsewhere through the
// subgroup's patch of shared memory.
//
// An H200 runs two workgroups on a multiprocessor if their shared memory stays under 24 KiB, and three under 16 KiB;
// with one, attention takes 1.5 times as long.
//
// The file that includes this defines TILES, the tiles in shared memory, and PATCH_PARTS, the sums of CHUNK columns that a
// patch holds side by side.
#extension GL_KHR_shader_subgroup_shuffle : require

layout(constant_id = 4) const uint HS = 64;        // channels of a head
layout(constant_id = 5) const uint C = 768;        // channels of a row
layout(constant_id = 6) const uint LANES = 32;     // invocations of a subgroup
layout(constant_id = 7) const uint FRAGMENTS = 2;  // of rows that a subgroup owns
layout(constant_id = 8) const uint STEP = 32;      // rows of a tile
layout(constant_id = 9) const uint CHUNK = 32;     // of these, what a subgroup takes at once
layout(constant_id = 10) const bool IN_PLACE = false;    // components of sums lie where those of factors do
// Components of a sum whose numbers agree in the bits ROW_COMPONENTS belong to the same row, and the rest of the row is
// with the lanes whose numbers differ in the bits COLUMN_LANES alone.
layout(constant_id = 11) const uint ROW_COMPONENTS = 4;
layout(constant_id = 12) const uint COLUMN_LANES = 3;
// Whether the backward kernels compute delta by themselves, for short sequences: a stage less. Only where the packs of a row
// are a power of two and not more than LANES.
layout(constant_id = 13) const bool OWN_DELTA = false;

const uint SUBGROUPS = BLOCK / LANES;
const uint ROWS = FRAGMENTS * FM;
const uint PACKS = HS / 8;          // 16 bytes each, in a row
const uint STRIDE = PACKS + 1;      // of a tile's rows, so that 8 of them start in different banks
const uint SECOND = STEP * STRIDE;  // where the second tile starts
const uint DEEP = HS / FK, WIDE = HS / FN;  // fragments along a row, as a factor and as a sum
const uint FACTORS = FRAGMENTS * DEEP, SUMS = FRAGMENTS * WIDE;
const uint COLUMNS = CHUNK / FN, SCORES = FRAGMENTS * COLUMNS;
const uint COMPONENTS = FM * FN / LANES;  // of a sum, in an invocation
const uint LINES = BLOCK / PACKS;   // rows that the workgroup fetches at once; invocations may be left over
const uint FETCHES = (STEP + LINES - 1) / LINES;

// A patch, in units of 16 bytes, holds ROWS rows of REAL.
const uint PATCH_STRIDE = PATCH_PARTS * CHUNK / 8 + 1, PATCH = IN_PLACE ? 0 : ROWS * PATCH_STRIDE;
// Before and after the loop over tiles, a subgroup's own rows pass through the same memory, FM of them at a time.
const uint OWN = FM * STRIDE, BETWEEN = TILES * SECOND + SUBGROUPS * PATCH;

shared uvec4 area[BETWEEN > SUBGROUPS * OWN ? BETWEEN : SUBGROUPS * OWN];
shared float places[FM * FN];  // row * FN + column

const float LOG2E = 1.44269504, LN2 = 0.69314718, HIDDEN = -1e30;

float scale() { return 1 / sqrt(float(HS)); }
float scale2() { return LOG2E * scale(); }  // makes scores powers of 2

// Rows of one head: row t starts at t * width + offset of p, in units of 16 bytes, and there are `count`.
struct HeadRows {
    Reals p;
    uint width, offset, count;
};

Reals8 pack_address(HeadRows h, uint row, uint pack) {
    return Reals8(uint64_t(h.p) + uint64_t(row * h.width + h.offset + pack) * 16);
}

uint own_patch() { return TILES * SECOND + gl_SubgroupID * PATCH; }

// Ends writes of a subgroup to its part of shared memory, or its reads.
void patch_barrier() {
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}

// Whether an invocation whose first row of a tile is `line` has a part number n of it.
bool has_part(uint line, uint n) {
    return (BLOCK % PACKS == 0 || line < LINES) && (STEP % LINES == 0 || line + n * LINES < STEP);
}

void put_places() {
    for (uint i = gl_LocalInvocationID.x; i < FM * FN; i += BLOCK) places[i] = i;
}
FragmentSum load_places() {
    FragmentSum f;
    coopMatLoad(f, places, 0, FN, gl_CooperativeMatrixLayoutRowMajor);
    return f;
}
int row_of(float place) { return int(uint(place) / FN); }
int column_of(float place) { return int(uint(place) % FN); }

// The invocation's number among those that fetch. Where subgroups add what they fetched, packs of a row are with neighbours,
// which nobody promises of the invocation's number in the workgroup.
uint fetcher() { return OWN_DELTA ? gl_SubgroupID * LANES + gl_SubgroupInvocationID : gl_LocalInvocationID.x; }

// Reads STEP rows from `first` on into the registers of the workgroup; rows past the last one are zeros.
void fetch(inout uvec4 v[FETCHES], HeadRows h, uint first) {
    const uint line = fetcher() / PACKS;
    Reals8 p = pack_address(h, first + line, fetcher() % PACKS);
    [[unroll]] for (uint n = 0; n < FETCHES; n++) {
        v[n] = uvec4(0);
        if (has_part(line, n) && first + line + n * LINES < h.count) v[n] = p.x[n * LINES * h.width];
    }
}

// Writes them to the tile that starts at `at`.
void put(uint at, uvec4 v[FETCHES]) {
    const uint line = fetcher() / PACKS, to = at + line * STRIDE + fetcher() % PACKS;
    [[unroll]] for (uint n = 0; n < FETCHES; n++)
        if (has_part(line, n)) area[to + n * LINES * STRIDE] = v[n];
}

// The subgroup's rows, `first` and on, as factors; rows past the last one are zeros.
void load_own(inout FragmentA a[FACTORS], HeadRows h, uint first) {
    const uint own = gl_SubgroupID * OWN;
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
        for (uint i = gl_SubgroupInvocationID; i < FM * PACKS; i += LANES) {
            const uint row = first + r * FM + i / PACKS;
            area[own + i / PACKS * STRIDE + i % PACKS] = row < h.count ? pack_address(h, row, i % PACKS).x[0] : uvec4(0);
        }
        patch_barrier();
        [[unroll]] for (uint k = 0; k < DEEP; k++)
            coopMatLoad(a[r * DEEP + k], area, own + k * FK / 8, STRIDE, gl_CooperativeMatrixLayoutRowMajor);
        patch_barrier();
    }
}

// Stores sums as the subgroup's rows, but for rows past the last one.
void store_own(FragmentSum f[SUMS], HeadRows h, uint first) {
    const uint own = gl_SubgroupID * OWN;
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
        [[unroll]] for (uint j = 0; j < WIDE; j++)
            coopMatStore(round_fragment(f[r * WIDE + j]), area, own + j * FN / 8, STRIDE, gl_CooperativeMatrixLayoutRowMajor);
        patch_barrier();
        for (uint i = gl_SubgroupInvocationID; i < FM * PACKS; i += LANES) {
            const uint row = first + r * FM + i / PACKS;
            if (row < h.count) pack_address(h, row, i % PACKS).x[0] = area[own + i / PACKS * STRIDE + i % PACKS];
        }
        patch_barrier();
    }
}

// The product of two rows, of which each of PACKS neighbours in the subgroup has a pack: all of them get the same bits.
float row_product(uvec4 a, uvec4 b) {
    float sum = 0;
    [[unroll]] for (uint i = 0; i < 4; i++) sum += dot(unpack(a[i]), unpack(b[i]));
    [[unroll]] for (uint bit = 1; bit < PACKS; bit *= 2) sum += subgroupShuffleXor(sum, bit);
    return sum;
}

// Rows `row` to row + FN - 1 of the tile at `at`, transposed: their channels k * FK to k * FK + FK - 1.
FragmentB tile_transposed(uint at, uint row, uint k) {
    FragmentB b;
    coopMatLoad(b, area, at + row * STRIDE + k * FK / 8, STRIDE, gl_CooperativeMatrixLayoutColumnMajor);
    return b;
}
// Rows `row` to row + FK - 1 of the tile at `at`: their channels j * FN to j * FN + FN - 1.
FragmentB tile_rows(uint at, uint row, uint j) {
    FragmentB b;
    coopMatLoad(b, area, at + row * STRIDE + j * FN / 8, STRIDE, gl_CooperativeMatrixLayoutRowMajor);
    return b;
}

// What converts to REAL exactly, or is rounded well by it. These numbers are many: ties are rounded away from zero, and a
// NaN may get lost, which is another number's business to report.
float rounded(float v) {
#ifdef REAL_BF16
    return uintBitsToFloat((floatBitsToUint(v) + 0x8000u) & 0xffff0000u);
#else
    return v;
#endif
}

// Sums become factors: each is published, at row fragment r and column fragment j, and after a patch_barrier() taken as
// a factor. Where that happens in place, nothing need be done before.
void publish(FragmentSum f, uint r, uint j) {
    if (IN_PLACE) return;
    [[unroll]] for (uint i = 0; i < f.length(); i++) f[i] = rounded(f[i]);
    coopMatStore(FragmentResult(f), area, own_patch() + r * FM * PATCH_STRIDE + j * FN / 8, PATCH_STRIDE,
                 gl_CooperativeMatrixLayoutRowMajor);
}
// Row fragment r of the sums, their columns k * FK to k * FK + FK - 1; in the patch they begin at fragment `part`.
FragmentA as_factor(FragmentSum sums[SCORES], uint r, uint k, uint part) {
    FragmentA a;
    if (IN_PLACE) {
        const uint s = r * COLUMNS + min(k, COLUMNS - 1);  // k: in place, FN is FK
        [[unroll]] for (uint i = 0; i < COMPONENTS; i++) a[i] = REAL(rounded(sums[s][i]));
    } else {
        coopMatLoad(a, area, own_patch() + r * FM * PATCH_STRIDE + part * FN / 8 + k * FK / 8, PATCH_STRIDE,
                    gl_CooperativeMatrixLayoutRowMajor);
    }
    return a;
}
// Ends a subgroup's writes to its patch, or its reads, where it has one.
void published_barrier() {
    if (!IN_PLACE) patch_barrier();
}
