// Products blocked for registers: a workgroup computes a tile of TILE x TILE, an invocation 8 x 8 of its elements, so
// that 64 multiply-adds follow four 16-byte reads of shared memory. Per round, half of the workgroup fetches DEPTH
// values of K of operand a and the other half of b, each invocation a block of 4 x 4, one round ahead of their use.
// About 110 registers an invocation and 16 KiB a workgroup: two workgroups of 256 share an NVIDIA multiprocessor.
// C and OC are constants: strides fold into the addresses.
layout(constant_id = 1) const uint C = 1;
layout(constant_id = 2) const uint OC = 1;
layout(constant_id = 3) const uint TILE = 64;        // 64 or 128; BLOCK = TILE * TILE / 64
layout(constant_id = 4) const bool WIDE = false;     // C and OC are multiples of 4, addresses of 16 bytes
layout(constant_id = 5) const bool GUARDED = true;   // tiles may reach past the operands

const uint DEPTH = TILE / 8;   // makes TILE * DEPTH / 16 = BLOCK / 2 blocks of 4 x 4 an operand
const uint QUADS = TILE / 4;   // vec4 in a tile's row
const uint PANEL = 8;          // rows of tiles walked together, so that they share what lies in the cache

shared vec4 tiles[2 * DEPTH * QUADS];  // of a, then of b: (DEPTH, TILE)

vec4 sums[8][2];  // this invocation's rows 0-3 and TILE/2 + 0-3, columns likewise, from row_in_tile, column_in_tile

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
    const uint down = (M + TILE - 1) / TILE, across = (N + TILE - 1) / TILE;
    const uint split = group_index() / (down * across), i = group_index() % (down * across);
    const uint first = i / (PANEL * across) * PANEL, height = min(PANEL, down - first), j = i % (PANEL * across);
    return TilePlace((first + j % height) * TILE, j / height * TILE, split, split >= splits);
}

// A subgroup of 32 covers 4 rows by 8 columns of invocations: few distinct addresses at each read of shared memory.
const uint SPANS = TILE / 64;
uint row_in_tile(uint i) {
    const uint lane = gl_LocalInvocationID.x;
    return (lane / 32 / SPANS * 4 + lane / 8 % 4) * 4 + i % 4 + i / 4 * (TILE / 2);
}
uint column_in_tile(uint half_tile) {
    const uint lane = gl_LocalInvocationID.x;
    return (lane / 32 % SPANS * 8 + lane % 8) * 4 + half_tile * (TILE / 2);
}

// Four values from `at` on, of which `left` exist.
vec4 load4(uint64_t at, uint left) {
    if (WIDE) return Reals4(at).x[0];
    vec4 v = vec4(0);
    [[unroll]] for (uint i = 0; i < 4; i++)
        if (i < left) v[i] = load(Reals(at), i);
    return v;
}

void store4(Reals p, uint column, vec4 v, uint columns) {
    if (WIDE) {
        Reals4(uint64_t(p) + column * REAL_BYTES).x[0] = v;
        return;
    }
    [[unroll]] for (uint i = 0; i < 4; i++)
        if (column + i < columns) store(p, column + i, v[i]);
}

// The block of 4 x 4 that this invocation fetches in each round: its row and its first k, counted from the tile's.
// Eight neighbours take rows one below the other, which makes their writes to shared memory one line.
uvec2 block_place(bool k_major) {
    const uint i = gl_LocalInvocationID.x % (BLOCK / 2);
    if (k_major) return uvec2(i % QUADS, i / QUADS) * 4;
    return uvec2(i % 8 + i / (2 * DEPTH) * 8, i / 8 % (DEPTH / 4)) * 4;
}

// The block at (r, k) of the operand as 4 vec4 along its contiguous side, zero past `rows` and `end`.
void fetch_block(out vec4 block[4], Operand o, uint r, uint k, uint end) {
    const uint line = o.k_major ? k : r, lines = o.k_major ? end : o.rows;
    const uint start = o.k_major ? r : k, width = o.k_major ? o.rows : end;
    const uint64_t at = uint64_t(real_row(o.x, line, o.ld)) + start * REAL_BYTES;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        block[i] = vec4(0);
        if (!GUARDED || (line + i < lines && start < width))
            block[i] = load4(at + i * o.ld * REAL_BYTES, width - start);
    }
}

// Shared memory holds lines of equal k, so a block whose lines are rows is transposed.
void put_block(vec4 block[4], uint first, uvec2 place, bool k_major) {
    const uint at = first + place.y * QUADS + place.x / 4;
    [[unroll]] for (uint i = 0; i < 4; i++)
        tiles[at + i * QUADS] = k_major ? block[i] : vec4(block[0][i], block[1][i], block[2][i], block[3][i]);
}

// Four steps of k at a time: 256 multiply-adds a turn of the loop, and code that stays in the instruction cache.
void multiply_tiles() {
    const uint row = row_in_tile(0) / 4, column = DEPTH * QUADS + column_in_tile(0) / 4;
    for (uint k0 = 0; k0 < DEPTH; k0 += 4)
        [[unroll]] for (uint step = 0; step < 4; step++) {
            const uint k = (k0 + step) * QUADS;
            const vec4 a[2] = {tiles[k + row], tiles[k + row + QUADS / 2]};
            const vec4 b[2] = {tiles[k + column], tiles[k + column + QUADS / 2]};
            [[unroll]] for (uint i = 0; i < 8; i++)
                [[unroll]] for (uint j = 0; j < 2; j++) sums[i][j] = fma(vec4(a[i / 4][i % 4]), b[j], sums[i][j]);
        }
}

// sums = this invocation's part of a b^T over k = first .. end - 1. All invocations of a workgroup must call it.
void product(Operand a, Operand b, TilePlace tile, uint first, uint end) {
    const bool for_a = gl_LocalInvocationID.x < BLOCK / 2;
    const uvec2 place = block_place(for_a ? a.k_major : b.k_major);
    vec4 block[4];
    [[unroll]] for (uint i = 0; i < 8; i++)
        [[unroll]] for (uint j = 0; j < 2; j++) sums[i][j] = vec4(0);
    if (for_a) fetch_block(block, a, tile.row + place.x, first + place.y, end);
    else fetch_block(block, b, tile.column + place.x, first + place.y, end);
    for (uint k = first; k < end; k += DEPTH) {
        barrier();  // the round before has been read
        if (for_a) put_block(block, 0, place, a.k_major);
        else put_block(block, DEPTH * QUADS, place, b.k_major);
        barrier();
        if (k + DEPTH < end) {
            if (for_a) fetch_block(block, a, tile.row + place.x, k + DEPTH + place.y, end);
            else fetch_block(block, b, tile.column + place.x, k + DEPTH + place.y, end);
        }
        multiply_tiles();
    }
}
