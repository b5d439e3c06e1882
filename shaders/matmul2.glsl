// Products through shared memory: a workgroup of TILE x TILE invocations computes a tile of that size, one element an
// invocation. It reads both operands TILE values of K at a time, so that each value is fetched once for TILE uses.
layout(constant_id = 1) const uint TILE = 8;  // BLOCK = TILE * TILE

shared float tile_a[TILE * (TILE + 1)], tile_b[TILE * (TILE + 1)];  // (TILE rows, TILE of K), rows padded

// One value of an operand seen as (rows, K): element (r, k) is x[r * ld + k], or x[k * ld + r] where k_major.
float fetch(Reals x, uint r, uint k, uint rows, uint K, uint ld, bool k_major) {
    if (r >= rows || k >= K) return 0;
    return k_major ? load(real_row(x, k, ld), r) : load(real_row(x, r, ld), k);
}

// Where this invocation's element lies in a product of N columns: its tile's corner and its place in the tile.
uvec2 tile_place(uint N) {
    const uint across = (N + TILE - 1) / TILE;
    return uvec2(group_index() / across, group_index() % across) * TILE;
}
uint local_row() { return gl_LocalInvocationID.x / TILE; }
uint local_column() { return gl_LocalInvocationID.x % TILE; }

// Element of a (M,K) b (N,K)^T at the place above. All invocations of a workgroup must call it.
float product(Reals a, Reals b, uvec2 place, uint M, uint N, uint K, uint lda, uint ldb, bool a_k_major,
              bool b_k_major) {
    const uint y = local_row(), x = local_column();
    // Neighbouring invocations read neighbouring addresses, whichever way the operand lies.
    const uint a_r = a_k_major ? x : y, a_k = a_k_major ? y : x, b_r = b_k_major ? x : y, b_k = b_k_major ? y : x;
    float sum = 0;
    for (uint k = 0; k < K; k += TILE) {
        tile_a[a_r * (TILE + 1) + a_k] = fetch(a, place.x + a_r, k + a_k, M, K, lda, a_k_major);
        tile_b[b_r * (TILE + 1) + b_k] = fetch(b, place.y + b_r, k + b_k, N, K, ldb, b_k_major);
        barrier();
        for (uint i = 0; i < TILE; i++) sum += tile_a[y * (TILE + 1) + i] * tile_b[x * (TILE + 1) + i];
        barrier();
    }
    return sum;
}
