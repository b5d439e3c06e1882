// Products blocked for registers: a workgroup computes a tile of TILE_ROWS x TILE_COLUMNS, an invocation ROWS x 8 of
// its elements, so that 16 x 8 multiply-adds follow six 16-byte reads of shared memory (8 x 8: four). Per round,
// invocations fetch DEPTH values of K as blocks of 4 x 4, one round ahead of their use. Where tiles are few, TEAMS of
// invocations compute the same tile, each over its own stretch of K, and their sums are added in a fixed order.
// A round is unrolled whole, which on an H200 is worth a sixth. C and OC are constants: strides fold into addresses.
layout(constant_id = 1) const uint C = 1;
layout(constant_id = 2) const uint OC = 1;
layout(constant_id = 3) const bool WIDE = false;     // C and OC are multiples of 4, addresses of 16 bytes
layout(constant_id = 4) const bool GUARDED = true;   // tiles may reach past the operands
layout(constant_id = 5) const uint TILE_ROWS = 64;   // both a multiple of 32
layout(constant_id = 6) const uint TILE_COLUMNS = 64;
layout(constant_id = 7) const uint ROWS = 8;         // of an invocation: 8 or 16
layout(constant_id = 8) const uint TEAMS = 1;        // BLOCK = TEAMS * TILE_ROWS * TILE_COLUMNS / (8 * ROWS)

const uint DEPTH = 8;
const uint TEAM = BLOCK / TEAMS;                                   // invocations
const uint DOWN = TILE_ROWS / ROWS, ACROSS = TILE_COLUMNS / 8;     // of them in a tile
const uint A_QUADS = TILE_ROWS / 4, B_QUADS = TILE_COLUMNS / 4;    // vec4 in a line of equal k
const uint A_BLOCKS = A_QUADS * DEPTH / 4, BLOCKS = A_BLOCKS + B_QUADS * DEPTH / 4;  // of 4 x 4 in a round
const uint PARTS = (BLOCKS + TEAM - 1) / TEAM;                     // blocks that an invocation fetches
const uint TEAM_QUADS = DEPTH * (A_QUADS + B_QUADS);
const uint BUFFERS = TEAMS > 1 ? 1 : 2;  // two spare a barrier a round; many teams would take more than 32 KiB
const uint PANEL = 8;                    // rows of tiles walked together, so that they share what lies in the cache

// Each buffer: each team's lines of a, then of b: (DEPTH, TILE_ROWS), (DEPTH, TILE_COLUMNS).
shared vec4 tiles[BUFFERS * TEAMS * TEAM_QUADS];

vec4 sums[ROWS][2];  // [i][j]: this invocation's row row_in_tile(i), four columns from column_in_tile(j)
vec4 fetched[PARTS][4];
uint64_t fetch_from[PARTS];

// An operand seen as (rows, K): element (r, k) is x[r * ld + k], or x[k * ld + r] where k_major.
struct Operand {
    Reals x;
    uint rows, ld;
    bool k_major;
};

struct TilePlace {
    uint row, column, split;
    bool outside;  // past the last one
};

// Which tile of a product (M,N), in which slice of K, workgroup group_index() computes.
TilePlace tile_place(uint M, uint N, uint splits) {
    const uint down = (M + TILE_ROWS - 1) / TILE_ROWS, across = (N + TILE_COLUMNS - 1) / TILE_COLUMNS;
    const uint split = group_index() / (down * across), i = group_index() % (down * across);
    const uint first = i / (PANEL * across) * PANEL, height = min(PANEL, down - first), j = i % (PANEL * across);
    return TilePlace((first + j % height) * TILE_ROWS, j / height * TILE_COLUMNS, split, split >= splits);
}

uint team() { return gl_LocalInvocationID.x / TEAM; }
uint member() { return gl_LocalInvocationID.x % TEAM; }

// This invocation's place among its team's, (down, across). 32 neighbours cover 4 by 8 where the tile is that wide:
// few distinct addresses at each read of shared memory; and neighbours share either a's or b's, which lets
// NVIDIA's serve twice as many invocations at a time.
const uint SPAN = ACROSS < 8 ? ACROSS : 8, HEIGHT = DOWN < 32 / SPAN ? DOWN : 32 / SPAN;
uvec2 place_in_team() {
    const uint lane = member() % (SPAN * HEIGHT), group = member() / (SPAN * HEIGHT);
    const uint down = lane % 2 + lane / (2 * SPAN) * 2, across = lane / 2 % SPAN;
    return uvec2(group / (ACROSS / SPAN) * HEIGHT + down, group % (ACROSS / SPAN) * SPAN + across);
}
uint row_in_tile(uint i) { return (place_in_team().x + i / 4 * DOWN) * 4 + i % 4; }
uint column_in_tile(uint half_tile) { return (place_in_team().y + half_tile * ACROSS) * 4; }

// Four values from `at` on, of which `left` exist.
vec4 load_four(uint64_t at, uint left) {
    if (WIDE) return load4(Reals(at), 0);
    vec4 v = vec4(0);
    [[unroll]] for (uint i = 0; i < 4; i++)
        if (i < left) v[i] = load(Reals(at), i);
    return v;
}

void store_four(Reals p, uint column, vec4 v, uint columns) {
    if (WIDE) {
        store4(p, column / 4, v);
        return;
    }
    [[unroll]] for (uint i = 0; i < 4; i++)
        if (column + i < columns) store(p, column + i, v[i]);
}

// What this invocation fetches of a round: `part` counts its blocks, those of a come before those of b.
bool fetches(uint part) { return BLOCKS % TEAM == 0 || part * TEAM + member() < BLOCKS; }
bool is_of_a(uint part) { return part * TEAM < A_BLOCKS && part * TEAM + member() < A_BLOCKS; }

// A block's row and its first k, counted from the tile's. Eight neighbours take rows one below the other, which makes
// their writes to shared memory one line.
uvec2 block_place(uint part, bool k_major) {
    const uint i = part * TEAM + member() - (is_of_a(part) ? 0 : A_BLOCKS);
    const uint quads = is_of_a(part) ? A_QUADS : B_QUADS;
    if (k_major) return uvec2(i % quads, i / quads) * 4;
    return uvec2(i % 8 + i / (2 * DEPTH) * 8, i / 8 % (DEPTH / 4)) * 4;
}

// Where a block begins whose tile begins at (row, k) of the operand.
uint64_t block_address(uint part, Operand o, uint row, uint k) {
    const uvec2 at = uvec2(row, k) + block_place(part, o.k_major);
    return uint64_t(real_row(o.x, o.k_major ? at.y : at.x, o.ld)) + (o.k_major ? at.x : at.y) * REAL_BYTES;
}

// The block as 4 vec4 along its contiguous side, zero past the operand's rows and `end`; then moves on by DEPTH.
void fetch_block(uint part, Operand o, uint row, uint k, uint end) {
    const uvec2 at = uvec2(row, k) + block_place(part, o.k_major);
    const uint line = o.k_major ? at.y : at.x, lines = o.k_major ? end : o.rows;
    const uint start = o.k_major ? at.x : at.y, width = o.k_major ? o.rows : end;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        fetched[part][i] = vec4(0);
        if (!GUARDED || (line + i < lines && start < width))
            fetched[part][i] = load_four(fetch_from[part] + i * o.ld * REAL_BYTES, width - start);
    }
    fetch_from[part] += DEPTH * (o.k_major ? o.ld : 1) * REAL_BYTES;
}

// Shared memory holds lines of equal k, so a block whose lines are rows is transposed.
void put_block(uint part, uint first, uint quads, bool k_major) {
    const uvec2 place = block_place(part, k_major);
    const uint at = first + place.y * quads + place.x / 4;
    const vec4 v[4] = fetched[part];
    [[unroll]] for (uint i = 0; i < 4; i++)
        tiles[at + i * quads] = k_major ? v[i] : vec4(v[0][i], v[1][i], v[2][i], v[3][i]);
}

// A round's blocks into registers, and from there to the team's lines in shared memory, which begin at `first`.
void fetch(Operand a, Operand b, TilePlace tile, uint k, uint end) {
    [[unroll]] for (uint part = 0; part < PARTS; part++)
        if (fetches(part)) {
            if (is_of_a(part)) fetch_block(part, a, tile.row, k, end);
            else fetch_block(part, b, tile.column, k, end);
        }
}
void put(Operand a, Operand b, uint first) {
    [[unroll]] for (uint part = 0; part < PARTS; part++)
        if (fetches(part)) {
            if (is_of_a(part)) put_block(part, first, A_QUADS, a.k_major);
            else put_block(part, first + DEPTH * A_QUADS, B_QUADS, b.k_major);
        }
}

void multiply_tiles(uint first) {
    const uint row = first + place_in_team().x, column = first + DEPTH * A_QUADS + place_in_team().y;
    [[unroll]] for (uint k = 0; k < DEPTH; k++) {
        vec4 a[ROWS / 4];
        [[unroll]] for (uint i = 0; i < ROWS / 4; i++) a[i] = tiles[row + k * A_QUADS + i * DOWN];
        const vec4 b[2] = {tiles[column + k * B_QUADS], tiles[column + k * B_QUADS + ACROSS]};
        [[unroll]] for (uint i = 0; i < ROWS; i++)
            [[unroll]] for (uint j = 0; j < 2; j++) sums[i][j] = fma(vec4(a[i / 4][i % 4]), b[j], sums[i][j]);
    }
}

// Adds the teams' sums into team 0's: the upper half of the teams to the lower half, until one is left. Half of the
// sums at a time fit where the tiles were.
void add_teams() {
    for (uint half_teams = TEAMS / 2; half_teams > 0; half_teams /= 2)
        [[unroll]] for (uint j = 0; j < 2; j++) {
            barrier();
            if (team() >= half_teams && team() < 2 * half_teams)
                [[unroll]] for (uint i = 0; i < ROWS; i++)
                    tiles[i * (BLOCK / 2) + gl_LocalInvocationID.x - half_teams * TEAM] = sums[i][j];
            barrier();
            if (team() < half_teams)
                [[unroll]] for (uint i = 0; i < ROWS; i++)
                    sums[i][j] += tiles[i * (BLOCK / 2) + gl_LocalInvocationID.x];
        }
}

// Team 0's sums = this invocation's part of a b^T over k = begin .. stop - 1; the other teams' are left undefined.
// All invocations of a workgroup must call it.
void product(Operand a, Operand b, TilePlace tile, uint begin, uint stop) {
    const uint rounds = (stop - begin + TEAMS * DEPTH - 1) / (TEAMS * DEPTH);
    const uint first = begin + team() * rounds * DEPTH, end = min(stop, first + rounds * DEPTH);
    [[unroll]] for (uint i = 0; i < ROWS; i++)
        [[unroll]] for (uint j = 0; j < 2; j++) sums[i][j] = vec4(0);
    [[unroll]] for (uint part = 0; part < PARTS; part++)
        fetch_from[part] = is_of_a(part) ? block_address(part, a, tile.row, first)
                                         : block_address(part, b, tile.column, first);
    fetch(a, b, tile, first, end);
    for (uint round = 0; round < rounds; round++) {
        const uint mine = (round % BUFFERS * TEAMS + team()) * TEAM_QUADS;
        if (BUFFERS == 1) barrier();  // the round before has been read
        put(a, b, mine);
        barrier();
        if (round + 1 < rounds) fetch(a, b, tile, first + (round + 1) * DEPTH, end);
        multiply_tiles(mine);
    }
    if (TEAMS > 1) add_teams();
}
