// Shared code of the forward attention kernels on cooperative matrices (versions 3 and 4), after
// attention3.glsl.
layout(push_constant, scalar) uniform Push { AttentionForwardArgs args; };

FragmentA q[OPERANDS];
FragmentSum scores[SCORES], outputs[ACCUMULATORS];
// State of the softmax; the row of component i has index i & ROW_COMPONENTS. offset: the offset subtracted
// from scores * scale2() before exp2(). row_sums: this invocation's part of the row sum.
float offset[FRAGMENTS][COMPONENTS], row_sums[FRAGMENTS][COMPONENTS];

// scores = q k^T for the keys from c on in the tile at `at`.
void multiply_scores(uint at, uint c) {
    [[unroll]] for (uint i = 0; i < SCORES; i++) scores[i] = FragmentSum(0);
    [[unroll]] for (uint k = 0; k < K_FRAGMENTS; k++)
        [[unroll]] for (uint j = 0; j < COLUMNS; j++) {
            const FragmentB b = load_tile_transposed(at, c + j * FN, k);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
                scores[r * COLUMNS + j] = coopMatMulAdd(q[r * K_FRAGMENTS + k], b, scores[r * COLUMNS + j]);
        }
}

// Applies the causal mask. row, key: of the first score.
void mask_scores(uint row, uint key) {
    const FragmentSum position = load_positions();
    [[unroll]] for (uint i = 0; i < COMPONENTS; i++) {
        const int diagonal = row_of(position[i]) - column_of(position[i]);
        [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
            [[unroll]] for (uint j = 0; j < COLUMNS; j++)
                if (diagonal < int(key + j * FN) - int(row + r * FM)) scores[r * COLUMNS + j][i] = MASKED;
    }
}

float row_max(float v) {
    [[unroll]] for (uint bit = 1; bit < LANES; bit *= 2)
        if ((COLUMN_LANES & bit) != 0) v = max(v, subgroupShuffleXor(v, bit));
    return v;
}
float row_sum(float v) {
    [[unroll]] for (uint bit = 1; bit < LANES; bit *= 2)
        if ((COLUMN_LANES & bit) != 0) v += subgroupShuffleXor(v, bit);
    return v;
}

// outputs += p v for the values from c on in the tile at `at`.
void multiply_values(uint at, uint c) {
    [[unroll]] for (uint k = 0; k < CHUNK / FK; k++) {
        FragmentA p[FRAGMENTS];
        [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) p[r] = as_operand(scores, r, k, 0);
        [[unroll]] for (uint j = 0; j < N_FRAGMENTS; j++) {
            const FragmentB b = load_tile(at, c + k * FK, j);
            [[unroll]] for (uint r = 0; r < FRAGMENTS; r++)
                outputs[r * N_FRAGMENTS + j] = coopMatMulAdd(p[r], b, outputs[r * N_FRAGMENTS + j]);
        }
    }
    staging_barrier();
}

// Divides outputs by their row sums, and stores lse.
void finish(Floats lse, uint first, uint T) {
    const FragmentSum position = load_positions();
    [[unroll]] for (uint r = 0; r < FRAGMENTS; r++) {
        float all[COMPONENTS], inverse[COMPONENTS];
        [[unroll]] for (uint i = 0; i < COMPONENTS; i++)
            if ((i & ROW_COMPONENTS) == i) {
                all[i] = row_sum(row_sums[r][i]);
                inverse[i] = 1 / all[i];
            }
        [[unroll]] for (uint i = 0; i < COMPONENTS; i++) {
            const uint t = first + r * FM + row_of(position[i]), same = i & ROW_COMPONENTS;
            if (column_of(position[i]) == 0 && t < T) lse.x[t] = (offset[r][same] + log2(all[same])) * LN2;
        }
        [[unroll]] for (uint j = 0; j < N_FRAGMENTS; j++)
            [[unroll]] for (uint i = 0; i < COMPONENTS; i++)
                outputs[r * N_FRAGMENTS + j][i] *= inverse[i & ROW_COMPONENTS];
    }
}
