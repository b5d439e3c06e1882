// Products for devices whose subgroup is a vector of a CPU. There a barrier costs a switch of all invocations, and a
// fetch a loop over the lanes, about 20 instructions; a broadcast costs as much. So there is no shared memory, and an
// invocation computes ROWS x COLUMNS elements, 128 multiply-adds for 24 fetches. (16 x 16 runs a fifth faster, but
// takes three times as long to compile.)
const uint ROWS = 16, COLUMNS = 8;

float sums[ROWS][COLUMNS];

// An operand seen as (rows, K): element (r, k) is x[r * row_stride + k * k_stride].
struct Operand {
    Reals x;
    uint rows, row_stride, k_stride;
};

// The tile of this invocation: rows next to each other, columns BLOCK apart, so that neighbouring invocations have
// neighbouring columns. A workgroup covers ROWS by BLOCK * COLUMNS.
uint groups_across(uint N) { return (N + BLOCK * COLUMNS - 1) / (BLOCK * COLUMNS); }
uint tile_row(uint N) { return group_index() / groups_across(N) * ROWS; }
uint tile_column(uint N, uint c) {
    return (group_index() % groups_across(N) * COLUMNS + c) * BLOCK + gl_LocalInvocationID.x;
}

// Addresses of rows past the operand's last one are those of the last: what comes of them is never stored.
uint64_t row_address(Operand o, uint row) {
    return uint64_t(real_row(o.x, min(row, o.rows - 1), o.row_stride));
}

// sums = the tile of a b^T.
void product(Operand a, Operand b, uint K) {
    const uint row = tile_row(b.rows);
    uint64_t columns[COLUMNS];
    [[unroll]] for (uint c = 0; c < COLUMNS; c++) columns[c] = row_address(b, tile_column(b.rows, c));
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        [[unroll]] for (uint c = 0; c < COLUMNS; c++) sums[r][c] = 0;
    uint64_t rows[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) rows[r] = row_address(a, row + r);
    for (uint k = 0; k < K; k++) {
        float b_values[COLUMNS];
        [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
            b_values[c] = load(Reals(columns[c]), 0);
            columns[c] += b.k_stride * REAL_BYTES;
        }
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            const float value = load(Reals(rows[r]), 0);
            rows[r] += a.k_stride * REAL_BYTES;
            [[unroll]] for (uint c = 0; c < COLUMNS; c++) sums[r][c] = fma(value, b_values[c], sums[r][c]);
        }
    }
}
