// Products on matrix cores: (M, N) = a b over K. A workgroup computes a tile of TILE_M x TILE_N, each of its subgroups
// SUB_M x SUB_N of it, in fragments of FM x FN whose sums stay in registers, in fp32. Per round, TILE_K of K pass through
// shared memory. All sizes are constants: strides fold into addresses, which on an H200 is worth a third.
//
// The order of a round is what makes it fast there (SPEED.md has what failed): all fragments go to registers, then a
// barrier frees the shared memory, and the next round's factors, fetched one round ahead, are published and the round
// after that is fetched while the products run from registers. One buffer of shared memory is enough for that; it
// should stay under 24 KiB, or a multiprocessor runs a single workgroup.
//
// Two teams of subgroups may share the K of each round, and add their sums up in the end: where tiles are so few that
// each has a multiprocessor to itself, twice the subgroups hide more of what one waits for.
//
// The file that includes this says how the factors lie in memory: A_K_MAJOR: a is (K, M), else (M, K); B_K_MAJOR: b is
// (K, N), else (N, K). M, N and K are multiples of 8 where they run along memory.
#include "gelu.glsl"

layout(constant_id = 4) const uint TILE_M = 128;
layout(constant_id = 5) const uint TILE_N = 128;
layout(constant_id = 6) const uint TILE_K = 32;
layout(constant_id = 7) const uint SUB_M = 64;
layout(constant_id = 8) const uint SUB_N = 64;
layout(constant_id = 9) const uint EARLY_STEPS = 1;   // of a team's steps of FK in a round: before shared memory is refilled
layout(constant_id = 10) const uint PANEL = 8;        // rows of tiles walked together, so that they share what the cache holds
layout(constant_id = 11) const uint M = 8;
layout(constant_id = 12) const uint N = 8;
layout(constant_id = 13) const uint K = 8;
layout(constant_id = 14) const bool GUARDED = true;   // tiles may reach past the operands
layout(constant_id = 15) const uint EPILOGUE = 0;     // EPILOGUE_... of args.h
layout(constant_id = 16) const uint TEAMS = 1;        // or 2; a divisor of SUB_M / FM

layout(push_constant, scalar) uniform Push { MatmulMatrixArgs args; };

// Factors in shared memory: lines of 16-byte chunks of 8 elements, as in memory. An odd number of chunks from line to
// line spreads the rows of a fragment over the banks.
const uint A_LINES = A_K_MAJOR ? TILE_K : TILE_M, A_CHUNKS = (A_K_MAJOR ? TILE_M : TILE_K) / 8;
const uint B_LINES = B_K_MAJOR ? TILE_K : TILE_N, B_CHUNKS = (B_K_MAJOR ? TILE_N : TILE_K) / 8;
const uint A_STRIDE = A_CHUNKS + 1, B_STRIDE = B_CHUNKS + 1;
const uint A_SIZE = A_LINES * A_STRIDE, FACTORS = A_SIZE + B_LINES * B_STRIDE;
const uint A_STEP = BLOCK / A_CHUNKS, B_STEP = BLOCK / B_CHUNKS;  // lines that the workgroup fetches at once
const uint A_PARTS = A_LINES / A_STEP, B_PARTS = B_LINES / B_STEP;
const uint A_ADVANCE = TILE_K * (A_K_MAJOR ? M : 1) * REAL_BYTES, B_ADVANCE = TILE_K * (B_K_MAJOR ? N : 1) * REAL_BYTES;
const uint A_LAYOUT = A_K_MAJOR ? gl_CooperativeMatrixLayoutColumnMajor : gl_CooperativeMatrixLayoutRowMajor;
const uint B_LAYOUT = B_K_MAJOR ? gl_CooperativeMatrixLayoutRowMajor : gl_CooperativeMatrixLayoutColumnMajor;

const uint DOWN = SUB_M / FM, ACROSS = SUB_N / FN, FRAGMENTS = DOWN * ACROSS, STEPS = TILE_K / FK / TEAMS;
const uint SUBGROUPS = (TILE_M / SUB_M) * (TILE_N / SUB_N), LANES = BLOCK / (SUBGROUPS * TEAMS);  // of a team

// Results leave through a strip of shared memory for each subgroup, FM rows at a time, so that memory is written in
// 16-byte pieces: SUB_N elements of the storage type a row, or of fp32 for partial sums.
const uint ROW_CHUNKS = SUB_N / (EPILOGUE == EPILOGUE_PARTIAL ? 4 : 8), STRIP_STRIDE = ROW_CHUNKS + 1;
const uint STRIP = FM * STRIP_STRIDE, STRIPS = SUBGROUPS * TEAMS * STRIP, OWN_STRIPS = DOWN / TEAMS;
const uint STRIP_PARTS = FM * ROW_CHUNKS / LANES, PIECES = STRIP_PARTS * OWN_STRIPS;  // 16-byte pieces of an invocation

// Sums that teams hand over, in fp32, fragment by fragment: half of those of each.
const uint FRAGMENT_CHUNKS = FM * FN / 4, HANDED = TEAMS / 2 * SUBGROUPS * FRAGMENTS * FRAGMENT_CHUNKS;
const uint FACTORS_OR_STRIPS = STRIPS > FACTORS ? STRIPS : FACTORS;

shared uvec4 tile[HANDED > FACTORS_OR_STRIPS ? HANDED : FACTORS_OR_STRIPS];

FragmentSum sums[FRAGMENTS];
uvec4 fetched_a[A_PARTS], fetched_b[B_PARTS];

struct Place {
    uint m, n;          // first row and column of the workgroup's tile
    uint sub_m, sub_n;  // of the subgroup's part in it
    uint slice, end;    // slice of K, and where it ends
    uint team;          // of the subgroup
};

// Which of the lines that are fetched at once invocations take: where a line has 64 or 32 bytes, the eight invocations
// that write to shared memory together take lines 4, or 2, apart, which lie in different banks.
uint line_of(uint i, uint chunks, uint at_once) {
    if (at_once % 8 != 0) return i;
    return chunks == 4 ? (i & ~7u) | (i & 1u) << 2 | (i & 7u) >> 1 : chunks == 2 ? (i & ~7u) | (i & 3u) << 1 | (i & 7u) >> 2 : i;
}
uvec2 place_a() { return uvec2(line_of(gl_LocalInvocationID.x / A_CHUNKS, A_CHUNKS, A_STEP), gl_LocalInvocationID.x % A_CHUNKS); }
uvec2 place_b() { return uvec2(line_of(gl_LocalInvocationID.x / B_CHUNKS, B_CHUNKS, B_STEP), gl_LocalInvocationID.x % B_CHUNKS); }

// Address of an operand's chunk; its lines are `width` elements long.
uint64_t chunk_address(Reals p, uint line, uint width, uint chunk) {
    return uint64_t(p) + (uint64_t(line) * (width / 8) + chunk) * 16;
}

// Reads the factors of the round that begins at k, from the addresses of this invocation's first chunks; the others lie
// at constant distances. What lies outside the operands is zero.
void fetch_round(uint64_t a, uint64_t b, Place p, uint k) {
    [[unroll]] for (uint i = 0; i < A_PARTS; i++) {
        const uint line = place_a().x + i * A_STEP, chunk = place_a().y;
        const bool inside = A_K_MAJOR ? k + line < p.end && p.m / 8 + chunk < M / 8 : p.m + line < M && k / 8 + chunk < K / 8;
        fetched_a[i] = !GUARDED || inside ? Reals8(a).x[i * A_STEP * (A_K_MAJOR ? M : K) / 8] : uvec4(0);
    }
    [[unroll]] for (uint i = 0; i < B_PARTS; i++) {
        const uint line = place_b().x + i * B_STEP, chunk = place_b().y;
        const bool inside = B_K_MAJOR ? k + line < p.end && p.n / 8 + chunk < N / 8 : p.n + line < N && k / 8 + chunk < K / 8;
        fetched_b[i] = !GUARDED || inside ? Reals8(b).x[i * B_STEP * (B_K_MAJOR ? N : K) / 8] : uvec4(0);
    }
}

void publish_round() {
    const uint a_at = place_a().x * A_STRIDE + place_a().y, b_at = A_SIZE + place_b().x * B_STRIDE + place_b().y;
    [[unroll]] for (uint i = 0; i < A_PARTS; i++) tile[a_at + i * A_STEP * A_STRIDE] = fetched_a[i];
    [[unroll]] for (uint i = 0; i < B_PARTS; i++) tile[b_at + i * B_STEP * B_STRIDE] = fetched_b[i];
}

void multiply_step(FragmentA a[DOWN], FragmentB b[ACROSS]) {
    [[unroll]] for (uint j = 0; j < ACROSS; j++)
        [[unroll]] for (uint i = 0; i < DOWN; i++)
            sums[i * ACROSS + j] = coopMatMulAdd(a[i], b[j], sums[i * ACROSS + j]);
}

// sums += a b over the slice of K from `begin` to p.end.
void multiply(Place p, uint begin) {
    uint64_t a_from = A_K_MAJOR ? chunk_address(args.a, begin + place_a().x, M, p.m / 8 + place_a().y)
                                : chunk_address(args.a, p.m + place_a().x, K, begin / 8 + place_a().y);
    uint64_t b_from = B_K_MAJOR ? chunk_address(args.b, begin + place_b().x, N, p.n / 8 + place_b().y)
                                : chunk_address(args.b, p.n + place_b().x, K, begin / 8 + place_b().y);
    const uint a_sub = A_K_MAJOR ? p.sub_m / 8 : p.sub_m * A_STRIDE;
    const uint b_sub = A_SIZE + (B_K_MAJOR ? p.sub_n / 8 : p.sub_n * B_STRIDE);
    fetch_round(a_from, b_from, p, begin);
    publish_round();
    if (begin + TILE_K < p.end) fetch_round(a_from += A_ADVANCE, b_from += B_ADVANCE, p, begin + TILE_K);
    barrier();
    [[dont_unroll]] for (uint k = begin; k < p.end; k += TILE_K) {
        FragmentA a[STEPS][DOWN];
        FragmentB b[STEPS][ACROSS];
        [[unroll]] for (uint step = 0; step < STEPS; step++) {
            const uint kk = (p.team * STEPS + step) * FK;
            [[unroll]] for (uint i = 0; i < DOWN; i++)
                coopMatLoad(a[step][i], tile, a_sub + (A_K_MAJOR ? kk * A_STRIDE + i * FM / 8 : i * FM * A_STRIDE + kk / 8),
                            A_STRIDE, int(A_LAYOUT));
            [[unroll]] for (uint j = 0; j < ACROSS; j++)
                coopMatLoad(b[step][j], tile, b_sub + (B_K_MAJOR ? kk * B_STRIDE + j * FN / 8 : j * FN * B_STRIDE + kk / 8),
                            B_STRIDE, int(B_LAYOUT));
        }
        [[unroll]] for (uint step = 0; step < EARLY_STEPS; step++) multiply_step(a[step], b[step]);
        barrier();
        if (k + TILE_K < p.end) publish_round();
        if (k + 2 * TILE_K < p.end) fetch_round(a_from += A_ADVANCE, b_from += B_ADVANCE, p, k + 2 * TILE_K);
        [[unroll]] for (uint step = EARLY_STEPS; step < STEPS; step++) multiply_step(a[step], b[step]);
        barrier();
    }
}

// sums = bias, the same in every row, or zero, as in all teams but the first. The bias takes its way through the shared memory as fp32; a fragment whose
// rows are 0 elements apart then holds it in each of its rows.
void start_sums(Place p) {
    [[unroll]] for (uint i = 0; i < FRAGMENTS; i++) sums[i] = FragmentSum(0.0);
    if (EPILOGUE != EPILOGUE_BIAS && EPILOGUE != EPILOGUE_GELU) return;
    for (uint i = gl_LocalInvocationID.x; i < TILE_N / 4; i += BLOCK) {
        const uint n = p.n + 4 * i;
        tile[i] = floatBitsToUint(!GUARDED || n < N ? load4(args.bias, n / 4) : vec4(0));
    }
    barrier();
    if (p.team == 0)
        [[unroll]] for (uint j = 0; j < ACROSS; j++) {
            coopMatLoad(sums[j], tile, p.sub_n / 4 + j * FN / 4, 0, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint i = 1; i < DOWN; i++) sums[i * ACROSS + j] = sums[j];
        }
    barrier();
}

// Adds two teams' sums up: each gets every other strip of FM rows, of which the other one hands over its sums, and has
// them as its first ones then.
void add_teams(Place p) {
    const uint handed = gl_SubgroupID % SUBGROUPS * FRAGMENTS * FRAGMENT_CHUNKS;
    [[unroll]] for (uint i = 0; i < DOWN; i++)
        if (i % TEAMS != p.team)
            [[unroll]] for (uint j = 0; j < ACROSS; j++)
                coopMatStore(sums[i * ACROSS + j], tile, handed + (i * ACROSS + j) * FRAGMENT_CHUNKS, FN / 4,
                             gl_CooperativeMatrixLayoutRowMajor);
    barrier();
    [[unroll]] for (uint i = 0; i < DOWN; i++)
        if (i % TEAMS == p.team)
            [[unroll]] for (uint j = 0; j < ACROSS; j++) {
                FragmentSum other;
                coopMatLoad(other, tile, handed + (i * ACROSS + j) * FRAGMENT_CHUNKS, FN / 4,
                            gl_CooperativeMatrixLayoutRowMajor);
                sums[i / TEAMS * ACROSS + j] = sums[i * ACROSS + j] + other;
            }
    barrier();
}

// --- the results, a strip of FM rows at a time ---

uint strip_start() { return gl_SubgroupID * STRIP; }
uint strip_at(uint part) {
    const uint e = part * LANES + gl_SubgroupInvocationID;
    return strip_start() + e / ROW_CHUNKS * STRIP_STRIDE + e % ROW_CHUNKS;
}
// Row and chunk in memory of this invocation's piece number `part` of its team's strip i.
uvec2 strip_place(Place p, uint i, uint part) {
    const uint e = part * LANES + gl_SubgroupInvocationID, per_chunk = EPILOGUE == EPILOGUE_PARTIAL ? 4 : 8;
    return uvec2(p.m + p.sub_m + (i * TEAMS + p.team) * FM + e / ROW_CHUNKS, (p.n + p.sub_n) / per_chunk + e % ROW_CHUNKS);
}
bool in_product(uvec2 at) { return !GUARDED || (at.x < M && at.y < N / (EPILOGUE == EPILOGUE_PARTIAL ? 4 : 8)); }

// Writes strip i of the sums to outp, rounded to the storage type.
void store_strip(Reals outp, Place p, uint i) {
    [[unroll]] for (uint j = 0; j < ACROSS; j++)
        coopMatStore(round_fragment(sums[i * ACROSS + j]), tile, strip_start() + j * FN / 8, STRIP_STRIDE,
                     gl_CooperativeMatrixLayoutRowMajor);
    subgroupBarrier();
    [[unroll]] for (uint part = 0; part < STRIP_PARTS; part++) {
        const uvec2 at = strip_place(p, i, part);
        if (in_product(at)) Reals8(uint64_t(outp)).x[at.x * (N / 8) + at.y] = tile[strip_at(part)];
    }
    subgroupBarrier();
}

void store_partial_strip(Place p, uint i) {
    [[unroll]] for (uint j = 0; j < ACROSS; j++)
        coopMatStore(sums[i * ACROSS + j], tile, strip_start() + j * FN / 4, STRIP_STRIDE,
                     gl_CooperativeMatrixLayoutRowMajor);
    subgroupBarrier();
    [[unroll]] for (uint part = 0; part < STRIP_PARTS; part++) {
        const uvec2 at = strip_place(p, i, part);
        if (in_product(at))
            Floats4(uint64_t(args.partials)).x[(p.slice * M + at.x) * (N / 4) + at.y] = uintBitsToFloat(tile[strip_at(part)]);
    }
    subgroupBarrier();
}

// Combines strip i with the values that were read from memory for it.
void combine_strip(uvec4 values[PIECES], uint i) {
    [[unroll]] for (uint part = 0; part < STRIP_PARTS; part++) tile[strip_at(part)] = values[i * STRIP_PARTS + part];
    subgroupBarrier();
    [[unroll]] for (uint j = 0; j < ACROSS; j++) {
        FragmentResult stored;
        coopMatLoad(stored, tile, strip_start() + j * FN / 8, STRIP_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
        FragmentSum other = FragmentSum(stored);
        if (EPILOGUE == EPILOGUE_ADD)
            sums[i * ACROSS + j] += other;
        else
            for (int e = 0; e < other.length(); e++) sums[i * ACROSS + j][e] *= quick_gelu_slope(other[e]);
    }
    subgroupBarrier();
}

void main() {
    const uint down = (M + TILE_M - 1) / TILE_M, across = (N + TILE_N - 1) / TILE_N;
    const uint slice = group_index() / (down * across), i_tile = group_index() % (down * across);
    if (slice >= args.slices) return;
    const uint first = i_tile / (PANEL * across) * PANEL, height = min(PANEL, down - first), in_panel = i_tile % (PANEL * across);
    const uint begin = slice * args.slice_k;
    const Place p = Place((first + in_panel % height) * TILE_M, in_panel / height * TILE_N,
                          gl_SubgroupID % (TILE_M / SUB_M) * SUB_M, gl_SubgroupID % SUBGROUPS / (TILE_M / SUB_M) * SUB_N,
                          slice, min(begin + args.slice_k, K), gl_SubgroupID / SUBGROUPS);
    start_sums(p);
    multiply(p, begin);
    if (TEAMS > 1) add_teams(p);

    if (EPILOGUE == EPILOGUE_PARTIAL) {
        [[unroll]] for (uint i = 0; i < OWN_STRIPS; i++) store_partial_strip(p, i);
        return;
    }
    uvec4 others[PIECES];  // all are under way at once
    if (EPILOGUE == EPILOGUE_GELU_SLOPE || EPILOGUE == EPILOGUE_ADD)
        [[unroll]] for (uint i = 0; i < PIECES; i++) {
            const uvec2 at = strip_place(p, i / STRIP_PARTS, i % STRIP_PARTS);
            const uint64_t from = uint64_t(EPILOGUE == EPILOGUE_ADD ? args.outp : args.other);
            others[i] = in_product(at) ? Reals8(from).x[at.x * (N / 8) + at.y] : uvec4(0);
        }
    [[unroll]] for (uint i = 0; i < OWN_STRIPS; i++) {
        if (EPILOGUE == EPILOGUE_GELU_SLOPE || EPILOGUE == EPILOGUE_ADD) combine_strip(others, i);
        if (EPILOGUE == EPILOGUE_GELU) {
            store_strip(args.other, p, i);
            [[unroll]] for (uint j = 0; j < ACROSS; j++) {
                // of the number that was stored, as when it is computed again from there
#ifdef REAL_BF16
                sums[i * ACROSS + j] = FragmentSum(round_fragment(sums[i * ACROSS + j]));
#else
                FragmentResult stored;  // read back: compilers drop a conversion to fp16 and back
                coopMatLoad(stored, tile, strip_start() + j * FN / 8, STRIP_STRIDE, gl_CooperativeMatrixLayoutRowMajor);
                sums[i * ACROSS + j] = FragmentSum(stored);
#endif
                for (int e = 0; e < sums[i * ACROSS + j].length(); e++)
                    sums[i * ACROSS + j][e] = quick_gelu(sums[i * ACROSS + j][e]);
            }
            subgroupBarrier();
        }
        store_strip(args.outp, p, i);
    }
}
