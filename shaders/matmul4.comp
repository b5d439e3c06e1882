// GEMM for software devices, outp (M, N) = a b + bias, or += a b with args.accumulate. Their subgroups are
// CPU vectors. There, a barrier switches among all invocations of the workgroup, a load loops over the lanes
// in about 20 instructions, and a broadcast costs as much as a load. The kernel therefore uses no shared
// memory. An invocation computes ROWS x COLUMNS elements, with 128 multiply-adds for 24 loads. (16 x 16 is a
// fifth faster, but takes three times as long to compile.)
#version 460
#include "util.glsl"

layout(constant_id = 1) const bool A_M_MAJOR = false;  // a is (K, M); otherwise (M, K)
layout(constant_id = 2) const bool B_N_MAJOR = false;  // b is (K, N); otherwise (N, K)
layout(push_constant, scalar) uniform Push { MatmulArgs args; };

const uint ROWS = 16, COLUMNS = 8;

float accumulators[ROWS][COLUMNS];

// An operand (rows, K): element (r, k) is x[r * row_stride + k * k_stride].
struct Operand {
    Reals x;
    uint rows, row_stride, k_stride;
};

// The elements of this invocation: ROWS consecutive rows, and COLUMNS columns that are BLOCK apart, so that
// neighbouring invocations have neighbouring columns. A workgroup computes ROWS x (BLOCK * COLUMNS) elements.
uint tiles_n(uint N) { return (N + BLOCK * COLUMNS - 1) / (BLOCK * COLUMNS); }
uint tile_row(uint N) { return group_index() / tiles_n(N) * ROWS; }
uint tile_column(uint N, uint c) {
    return (group_index() % tiles_n(N) * COLUMNS + c) * BLOCK + gl_LocalInvocationID.x;
}

// The address of a row, clamped to the operand's last one. Results of rows past the last one are never
// stored.
uint64_t row_address(Operand o, uint row) {
    return uint64_t(real_row(o.x, min(row, o.rows - 1), o.row_stride));
}

// accumulators = this invocation's elements of a b^T.
void multiply(Operand a, Operand b, uint K) {
    const uint row = tile_row(b.rows);
    uint64_t columns[COLUMNS];
    [[unroll]] for (uint c = 0; c < COLUMNS; c++) columns[c] = row_address(b, tile_column(b.rows, c));
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        [[unroll]] for (uint c = 0; c < COLUMNS; c++) accumulators[r][c] = 0;
    uint64_t rows[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) rows[r] = row_address(a, row + r);
    for (uint k = 0; k < K; k++) {
        // Mesa 26.1 loads from addresses that all lanes share once more after the last pass, for no lane.
        // They stay at the last element then: what follows may be no memory of the program.
        const uint64_t next = k + 1 < K ? REAL_BYTES : 0;
        float b_values[COLUMNS];
        [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
            b_values[c] = load(Reals(columns[c]), 0);
            columns[c] += b.k_stride * next;
        }
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            const float a_value = load(Reals(rows[r]), 0);
            rows[r] += a.k_stride * next;
            [[unroll]] for (uint c = 0; c < COLUMNS; c++)
                accumulators[r][c] = fma(a_value, b_values[c], accumulators[r][c]);
        }
    }
}

void main() {
    const uint M = args.M, N = args.N, K = args.K;
    if (tile_row(N) >= M) return;
    multiply(Operand(args.a, M, A_M_MAJOR ? 1 : K, A_M_MAJOR ? M : 1),
             Operand(args.b, N, B_N_MAJOR ? 1 : K, B_N_MAJOR ? N : 1), K);
    [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
        const uint column = tile_column(N, c);
        if (column >= N) continue;
        const float bias = uint64_t(args.bias) != 0 ? load(args.bias, column) : 0;
        uint64_t outp = uint64_t(real_row(args.outp, tile_row(N), N)) + column * REAL_BYTES;
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            if (tile_row(N) + r < M) {
                const float added = A_M_MAJOR && args.accumulate != 0 ? load(Reals(outp), 0) : bias;
                store(Reals(outp), 0, accumulators[r][c] + added);
            }
            outp += N * REAL_BYTES;
        }
    }
}
