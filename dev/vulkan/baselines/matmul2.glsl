// GEMM with shared-memory tiles: a workgroup of TILE x TILE invocations computes a TILE x TILE tile, one
// element per invocation. Each main-loop iteration loads TILE values of K of both operands and uses each of
// them TILE times.
layout(constant_id = 1) const uint TILE = 8;  // BLOCK = TILE * TILE

shared float tile_a[TILE * (TILE + 1)], tile_b[TILE * (TILE + 1)];  // (TILE rows, TILE of K), rows padded

// One element of an operand (rows, K), 0 outside it. Element (r, k) is x[r * ld + k], or x[k * ld + r] if the
// operand is MN-major, that is, stored as (K, rows).
float load_operand(Reals x, uint r, uint k, uint rows, uint K, uint ld, bool mn_major) {
    if (r >= rows || k >= K) return 0;
    return mn_major ? load(real_row(x, k, ld), r) : load(real_row(x, r, ld), k);
}

// The first row and column of this workgroup's tile, in a result of N columns; and this invocation's
// element of the tile.
uvec2 tile_offset(uint N) {
    const uint tiles_n = (N + TILE - 1) / TILE;
    return uvec2(group_index() / tiles_n, group_index() % tiles_n) * TILE;
}
uint local_row() { return gl_LocalInvocationID.x / TILE; }
uint local_column() { return gl_LocalInvocationID.x % TILE; }

// Returns this invocation's element of (M,K) a (N,K)^T b. All invocations of a workgroup must call it.
float multiply(Reals a, Reals b, uvec2 tile, uint M, uint N, uint K, uint lda, uint ldb, bool a_m_major,
               bool b_n_major) {
    const uint y = local_row(), x = local_column();
    // Neighbouring invocations load neighbouring addresses in either layout.
    const uint a_r = a_m_major ? x : y, a_k = a_m_major ? y : x;
    const uint b_r = b_n_major ? x : y, b_k = b_n_major ? y : x;
    float accumulator = 0;
    for (uint k = 0; k < K; k += TILE) {
        tile_a[a_r * (TILE + 1) + a_k] = load_operand(a, tile.x + a_r, k + a_k, M, K, lda, a_m_major);
        tile_b[b_r * (TILE + 1) + b_k] = load_operand(b, tile.y + b_r, k + b_k, N, K, ldb, b_n_major);
        barrier();
        for (uint i = 0; i < TILE; i++)
            accumulator += tile_a[y * (TILE + 1) + i] * tile_b[x * (TILE + 1) + i];
        barrier();
    }
    return accumulator;
}
