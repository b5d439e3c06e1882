// Shared code of the tiled attention kernels. A workgroup holds TILE x TILE scores in registers: each of its
// BLOCK = 8 * ROW_STEP invocations has ROWS x COLUMNS of them, at rows row_of(0..) and columns column_of(0..).
// GEMM operands are loaded into shared memory in blocks of K, so that it stays under 22 KiB for all head sizes
// up to 128.
layout(constant_id = 1) const uint HS = 64;       // channels of a head
layout(constant_id = 2) const uint QUADS = 1;     // 1: rows are aligned for accesses of four channels

layout(constant_id = 3) const uint TILE = 64;     // queries or keys per tile: 32 or 64

const uint COLUMNS = TILE / 8;                    // of the scores per invocation
const uint ROW_STEP = BLOCK / 8;
const uint ROWS = TILE / ROW_STEP;                // of the scores per invocation
const uint WIDE = (HS + 31) / 32;                 // quads of channels per invocation and row
// These have names because glslang treats equal expressions as different array sizes.
const uint SCORES = ROWS * COLUMNS, ACCUMULATORS = ROWS * WIDE;
const uint DEPTH = HS < 32 ? (HS + 3) / 4 : 8;    // quads of channels in a K slice of a b^T
const uint STRIDE = 9;                            // odd, so that a column of 8 rows has no bank conflicts
const uint SCORE_STRIDE = TILE / 4 + 1;
const uint LENGTH = WIDE == 1 ? 32 : WIDE == 2 ? 16 : 8;  // rows in a K slice of p v: at most 256 quads

// Two workgroups fit on an SM of an H200 while shared memory stays under 24 KiB, and only one above.
shared vec4 tile[TILE * SCORE_STRIDE + (TILE == 64 ? 256 : 288)];
const uint COLUMN_TILE = TILE * STRIDE;           // offset of operand b of multiply(); operand a is at 0
const uint VALUE_TILE = TILE * SCORE_STRIDE;      // offset of operand b of accumulate(); the scores are at 0

const float LOG2E = 1.44269504, LN2 = 0.69314718;

// A loop bound. Blocks of more than 128 invocations are for devices with few registers, where the loads of an
// unrolled loop would spill: the bound is then unknown to the compiler (no grid has two workgroups in z).
uint loop_bound(uint n) { return BLOCK > 128 ? n * gl_NumWorkGroups.z : n; }

uint row_of(uint r) { return gl_LocalInvocationID.x / 8 + ROW_STEP * r; }
// Groups of four columns are contiguous, so that scores are stored as quads. Operand b of multiply() lies in
// shared memory with its rows permuted: column_of(c) is row gl_LocalInvocationID.x % 8 + 8 * c. The 8 rows
// that invocations load together are then adjacent, without bank conflicts.
uint column_of(uint c) { return 4 * (gl_LocalInvocationID.x % 8) + 32 * (c / 4) + c % 4; }
uint slot_of_column(uint j) { return j % 32 / 4 + 8 * (j / 32 * 4 + j % 4); }
// The quads of channels that an invocation accumulates for its rows.
uint quad_of(uint w) { return gl_LocalInvocationID.x % 8 + 8 * w; }

// `count` rows of one head: row t starts at element `offset` of row t of p, whose rows have `width` elements.
struct HeadRows {
    Reals p;
    uint width, offset, count;
};

// Four channels, from 4 * quad on, of row `row` counted from p; channels past the head's last one are zero.
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

// Copies `rows` rows from `first` on, `quads` quads of each from `quad` on, to tile[at] with a row stride of
// `stride` quads. With `columns`, rows are permuted as operand b of multiply(). Rows past the last one become
// zero. Each invocation keeps four loads in flight.
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

// scores = a b^T for TILE rows of a from a_first on and of b from b_first on.
void multiply(out float scores[SCORES], HeadRows a, uint a_first, HeadRows b, uint b_first) {
    [[unroll]] for (uint i = 0; i < SCORES; i++) scores[i] = 0;
    for (uint quad = 0; 4 * quad < HS; quad += DEPTH) {
        barrier();  // earlier code may still read shared memory
        load_tile(0, STRIDE, false, a, a_first, TILE, quad, DEPTH);
        load_tile(COLUMN_TILE, STRIDE, true, b, b_first, TILE, quad, DEPTH);
        barrier();
        for (uint q = 0; q < loop_bound(DEPTH); q++) {
            vec4 x[ROWS];
            [[unroll]] for (uint r = 0; r < ROWS; r++) x[r] = tile[row_of(r) * STRIDE + q];
            [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
                const vec4 y = tile[COLUMN_TILE + (gl_LocalInvocationID.x % 8 + 8 * c) * STRIDE + q];
                [[unroll]] for (uint r = 0; r < ROWS; r++) {
                    const uint i = r * COLUMNS + c;
                    scores[i] =
                        fma(x[r].w, y.w, fma(x[r].z, y.z, fma(x[r].y, y.y, fma(x[r].x, y.x, scores[i]))));
                }
            }
        }
    }
}

// Stores scores to shared memory for accumulate(). The caller's barrier must have ended earlier reads.
void store_scores(float scores[SCORES]) {
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        [[unroll]] for (uint c = 0; c < COLUMNS; c += 4) {
            const uint i = r * COLUMNS + c;
            tile[row_of(r) * SCORE_STRIDE + column_of(c) / 4] =
                vec4(scores[i], scores[i + 1], scores[i + 2], scores[i + 3]);
        }
}

// accumulators += scores b, for the columns of scores in shared memory and TILE rows of b from `first` on. For
// each of its rows, an invocation accumulates the WIDE quads of channels quad_of(0..).
void accumulate(inout vec4 accumulators[ACCUMULATORS], HeadRows b, uint first) {
    for (uint start = 0; start < TILE; start += LENGTH) {
        barrier();
        load_tile(VALUE_TILE, 8 * WIDE, false, b, first + start, LENGTH, 0, 8 * WIDE);
        barrier();
        for (uint j = 0; j < loop_bound(LENGTH); j += 4) {
            vec4 x[ROWS];
            [[unroll]] for (uint r = 0; r < ROWS; r++)
                x[r] = tile[row_of(r) * SCORE_STRIDE + (start + j) / 4];
            [[unroll]] for (uint k = 0; k < 4; k++)
                [[unroll]] for (uint w = 0; w < WIDE; w++) {
                    const vec4 y = tile[VALUE_TILE + (j + k) * 8 * WIDE + quad_of(w)];
                    [[unroll]] for (uint r = 0; r < ROWS; r++)
                        accumulators[r * WIDE + w] = fma(vec4(x[r][k]), y, accumulators[r * WIDE + w]);
                }
        }
    }
}

// Stores one quad of one row, if the row and the quad exist.
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
