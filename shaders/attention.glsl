// What the tiled attention kernels share. A workgroup holds 64 x 64 scores in registers: BLOCK = 8 * ROW_STEP
// invocations, each with ROWS x 8 of them, at rows row_of(0..) and columns column_of(0..). The factors of a product
// pass through one array of shared memory in slices, so that it stays under 22 KiB for every head size to 128.
layout(constant_id = 1) const uint HS = 64;       // channels of a head
layout(constant_id = 2) const uint QUADS = 1;     // rows allow accesses of four channels

const uint TILE = 64;                             // queries or keys
const uint COLUMNS = 8;                           // of the scores, per invocation
const uint ROW_STEP = BLOCK / 8;
const uint ROWS = TILE / ROW_STEP;                // of the scores, per invocation
const uint WIDE = (HS + 31) / 32;                 // quads of channels per invocation and row
const uint SCORES = ROWS * COLUMNS, SUMS = ROWS * WIDE;  // named: glslang takes equal expressions for other sizes
const uint DEPTH = 8;                             // quads of channels in a slice of q k^T
const uint STRIDE = DEPTH + 1;                    // an odd number of quads: 8 rows at one column lie in different banks
const uint SCORE_STRIDE = TILE / 4 + 1;
const uint LENGTH = WIDE == 1 ? 32 : WIDE == 2 ? 16 : 8;  // rows in a slice of p v, of 8 * WIDE quads: 256 at most

shared vec4 tile[TILE * SCORE_STRIDE + 256];  // an H200 runs two workgroups of under 24 KiB at a time, but only one above
const uint COLUMN_TILE = TILE * STRIDE;           // where the second factor of multiply() lies; the first lies at 0
const uint VALUE_TILE = TILE * SCORE_STRIDE;      // where the second factor of accumulate() lies; the scores lie at 0

const float LOG2E = 1.44269504, LN2 = 0.69314718;

uint row_of(uint r) { return gl_LocalInvocationID.x / 8 + ROW_STEP * r; }
// Four columns follow each other, so that scores are published as quads. multiply() reads column_of(c) as row
// gl_LocalInvocationID.x % 8 + 8 * c of its second tile: 8 neighbouring rows at once, in different banks.
uint column_of(uint c) { return 4 * (gl_LocalInvocationID.x % 8) + 32 * (c / 4) + c % 4; }
uint slot_of_column(uint j) { return j % 32 / 4 + 8 * (j / 32 * 4 + j % 4); }
// The quads of channels that an invocation holds of its rows' sums.
uint quad_of(uint w) { return gl_LocalInvocationID.x % 8 + 8 * w; }

// Rows of one head: row t starts `offset` elements into p's row t of `width` elements, and there are `count`.
struct HeadRows {
    Reals p;
    uint width, offset, count;
};

// Four channels from 4 * quad on of row `row` of those that begin at p; zeros past the head's last channel.
vec4 load_quad(Reals p, HeadRows h, uint row, uint quad) {
    const uint c = 4 * quad, i = row * h.width + h.offset + c;
    vec4 v = vec4(0);
    if (QUADS != 0) {
        if (c < HS) v = load4(p, i / 4);
    } else {
        [[unroll]] for (uint k = 0; k < 4; k++)
            if (c + k < HS) v[k] = load(p, i + k);
    }
    return v;
}

// Copies `rows` rows from `first` on, `quads` quads of each from `quad` on, to tile[at], `stride` quads apart, in the
// order of multiply()'s columns where `columns` is set; rows past the last one become zero. Each invocation has four
// loads under way at once.
void load_tile(uint at, uint stride, bool columns, HeadRows h, uint first, uint rows, uint quad, uint quads) {
    Reals p = real_row(h.p, first, h.width);
    for (uint start = gl_LocalInvocationID.x; start < rows * quads; start += 4 * BLOCK) {
        vec4 v[4];
        [[unroll]] for (uint n = 0; n < 4; n++) {
            const uint i = start + n * BLOCK, row = i / quads;
            const bool inside = i < rows * quads && first + row < h.count;
            v[n] = inside ? load_quad(p, h, row, quad + i % quads) : vec4(0);
        }
        [[unroll]] for (uint n = 0; n < 4; n++) {
            const uint i = start + n * BLOCK, row = columns ? slot_of_column(i / quads) : i / quads;
            if (i < rows * quads) tile[at + row * stride + i % quads] = v[n];
        }
    }
}

// scores = a b^T for the 64 rows of a from a_first on and of b from b_first on.
void multiply(out float scores[SCORES], HeadRows a, uint a_first, HeadRows b, uint b_first) {
    [[unroll]] for (uint i = 0; i < SCORES; i++) scores[i] = 0;
    for (uint quad = 0; 4 * quad < HS; quad += DEPTH) {
        barrier();  // the shared memory may still be read by what came before
        load_tile(0, STRIDE, false, a, a_first, TILE, quad, DEPTH);
        load_tile(COLUMN_TILE, STRIDE, true, b, b_first, TILE, quad, DEPTH);
        barrier();
        for (uint q = 0; q < DEPTH; q++) {
            vec4 x[ROWS];
            [[unroll]] for (uint r = 0; r < ROWS; r++) x[r] = tile[row_of(r) * STRIDE + q];
            [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
                const vec4 y = tile[COLUMN_TILE + (gl_LocalInvocationID.x % 8 + 8 * c) * STRIDE + q];
                [[unroll]] for (uint r = 0; r < ROWS; r++) {
                    const uint i = r * COLUMNS + c;
                    scores[i] = fma(x[r].w, y.w, fma(x[r].z, y.z, fma(x[r].y, y.y, fma(x[r].x, y.x, scores[i]))));
                }
            }
        }
    }
}

// Writes scores to shared memory, for accumulate(); a barrier must have ended the reads of what lies there.
void publish(float scores[SCORES]) {
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        [[unroll]] for (uint c = 0; c < COLUMNS; c += 4) {
            const uint i = r * COLUMNS + c;
            tile[row_of(r) * SCORE_STRIDE + column_of(c) / 4] =
                vec4(scores[i], scores[i + 1], scores[i + 2], scores[i + 3]);
        }
}

// sums += scores b for the 64 published columns of scores and rows of b from `first` on. Invocation and row r hold
// the WIDE quads quad_of(0..) of the sums' channels.
void accumulate(inout vec4 sums[SUMS], HeadRows b, uint first) {
    for (uint start = 0; start < TILE; start += LENGTH) {
        barrier();
        load_tile(VALUE_TILE, 8 * WIDE, false, b, first + start, LENGTH, 0, 8 * WIDE);
        barrier();
        for (uint j = 0; j < LENGTH; j += 4) {
            vec4 x[ROWS];
            [[unroll]] for (uint r = 0; r < ROWS; r++) x[r] = tile[row_of(r) * SCORE_STRIDE + (start + j) / 4];
            [[unroll]] for (uint k = 0; k < 4; k++)
                [[unroll]] for (uint w = 0; w < WIDE; w++) {
                    const vec4 y = tile[VALUE_TILE + (j + k) * 8 * WIDE + quad_of(w)];
                    [[unroll]] for (uint r = 0; r < ROWS; r++)
                        sums[r * WIDE + w] = fma(vec4(x[r][k]), y, sums[r * WIDE + w]);
                }
        }
    }
}

// Stores one quad of one row where both exist.
void store_quad(HeadRows h, uint row, uint quad, vec4 v) {
    if (row >= h.count || 4 * quad >= HS) return;
    Reals p = real_row(h.p, row, h.width);
    const uint i = h.offset + 4 * quad;
    if (QUADS != 0) {
        store4(p, i / 4, v);
    } else {
        [[unroll]] for (uint k = 0; k < 4; k++)
            if (4 * quad + k < HS) store(p, i + k, v[k]);
    }
}
