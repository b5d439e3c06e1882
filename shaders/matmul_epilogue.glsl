// Accumulators and epilogues of GEMMs on cooperative matrices, after matmul_tile.glsl: bias, GELU, its slope,
// addition to the result or to another matrix, or split-K partial sums. The including file defines
// OPERANDS_SIZE, the chunks of shared memory that its main loop needs.

layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Chunks { uvec4 x[]; };

// Each subgroup stages its results in a strip of shared memory, FM rows at a time, so that it accesses
// global memory in chunks of 16 bytes. A row of the strip holds SUBGROUP_N elements of the storage type, or
// of fp32 for split-K partial sums. With K_GROUPS, each k_group writes every K_GROUPS-th strip.
const uint CHUNK_ELEMENTS = EPILOGUE == EPILOGUE_PARTIAL ? 4 : 16 / REAL_BYTES;
const uint ROW_CHUNKS = SUBGROUP_N / CHUNK_ELEMENTS, STRIP_STRIDE = ROW_CHUNKS + 1;
// The strip of a symmetric result is also stored transposed, as SUBGROUP_N rows of FM elements.
const uint COPY_CHUNKS = FM / CHUNK_ELEMENTS, COPY_STRIDE = COPY_CHUNKS + 1;
const uint COPY_SIZE = SYMMETRIC ? SUBGROUP_N * COPY_STRIDE : 0;
const uint STRIP_SIZE = FM * STRIP_STRIDE > COPY_SIZE ? FM * STRIP_STRIDE : COPY_SIZE;
const uint STRIPS_SIZE = SUBGROUPS * K_GROUPS * STRIP_SIZE;
const uint STRIPS = FRAGMENTS_M / K_GROUPS;            // per subgroup
const uint STRIP_ACCESSES = FM * ROW_CHUNKS / LANES;   // chunks of a strip per invocation
const uint RESULT_ACCESSES = STRIP_ACCESSES * STRIPS;  // of all strips

// To be added up, k_groups exchange half of their accumulators in fp32, fragment by fragment.
const uint FRAGMENT_CHUNKS = FM * FN / 4;
const uint EXCHANGE_SIZE = K_GROUPS / 2 * SUBGROUPS * FRAGMENTS * FRAGMENT_CHUNKS;
const uint OPERANDS_OR_STRIPS_SIZE = STRIPS_SIZE > OPERANDS_SIZE ? STRIPS_SIZE : OPERANDS_SIZE;

shared uvec4 smem[EXCHANGE_SIZE > OPERANDS_OR_STRIPS_SIZE ? EXCHANGE_SIZE : OPERANDS_OR_STRIPS_SIZE];

shared vec4 bias[TILE_N / 4];  // of the tile's columns

FragmentSum accumulators[FRAGMENTS];

bool has_bias() { return EPILOGUE == EPILOGUE_BIAS || EPILOGUE == EPILOGUE_GELU; }

// Loads the bias, if the epilogue adds one, to shared memory. A barrier must follow.
void load_bias(Position p) {
    if (!has_bias()) return;
    for (uint i = gl_LocalInvocationID.x; i < TILE_N / 4; i += BLOCK) {
        const uint n = p.n + 4 * i;
        bias[i] = !GUARDED || n < N ? load4(args.bias, n / 4) : vec4(0);
    }
}

// Sets each row of the accumulators to the bias, in k_group 0, or to zero. Loading a fragment with a row
// stride of 0 broadcasts it to all rows.
void initialize_accumulators(Position p) {
    [[unroll]] for (uint i = 0; i < FRAGMENTS; i++) accumulators[i] = FragmentSum(0.0);
    if (has_bias() && p.k_group == 0)
        [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++) {
            coopMatLoad(accumulators[j], bias, p.subgroup_n / 4 + j * FN / 4, 0,
                        gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint i = 1; i < FRAGMENTS_M; i++)
                accumulators[i * FRAGMENTS_N + j] = accumulators[j];
        }
}

// --- epilogue: results, one strip of FM rows at a time ---

uint strip_start() { return gl_SubgroupID * STRIP_SIZE; }
uint strip_index(uint access) {
    const uint e = access * LANES + gl_SubgroupInvocationID;
    return strip_start() + e / ROW_CHUNKS * STRIP_STRIDE + e % ROW_CHUNKS;
}
// Row and chunk of the result for this invocation's access to its subgroup's strip i.
uvec2 result_position(Position p, uint i, uint access) {
    const uint e = access * LANES + gl_SubgroupInvocationID;
    return uvec2(p.m + p.subgroup_m + (i * K_GROUPS + p.k_group) * FM + e / ROW_CHUNKS,
                 (p.n + p.subgroup_n) / CHUNK_ELEMENTS + e % ROW_CHUNKS);
}
// Index of this chunk in outp and other.
uint result_index(Position p, uvec2 at) {
    return ((BATCHED ? p.gemm * M : 0) + at.x) * (N / CHUNK_ELEMENTS) + at.y;
}
bool in_result(uvec2 at) { return !GUARDED || (at.x < M && at.y < N / CHUNK_ELEMENTS); }

// GELU of a chunk of elements.
vec4 gelu4(vec4 v) {
    [[unroll]] for (uint i = 0; i < 4; i++) v[i] = fast_gelu(v[i]);
    return v;
}
uvec4 gelu_chunk(uvec4 chunk) {
#ifdef REAL_FP32
    return floatBitsToUint(gelu4(uintBitsToFloat(chunk)));
#else
    return uvec4(round4(gelu4(vec4(unpack(chunk.x), unpack(chunk.y)))),
                 round4(gelu4(vec4(unpack(chunk.z), unpack(chunk.w)))));
#endif
}

// Writes strip i of the accumulators to outp, rounded to the storage type. With EPILOGUE_GELU, writes it to
// `other`, and GELU of the rounded values to outp. Recomputing GELU from `other` (gelu_forward2.comp) is
// bit-identical in fp16. bf16 differs in ties, which this epilogue rounds away from zero, and fp32 in the
// formula.
void store_strip(Position p, uint i) {
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
        coopMatStore(round_fragment(accumulators[i * FRAGMENTS_N + j]), smem,
                     strip_start() + j * FN / CHUNK_ELEMENTS, STRIP_STRIDE,
                     gl_CooperativeMatrixLayoutRowMajor);
    subgroupBarrier();
    [[unroll]] for (uint access = 0; access < STRIP_ACCESSES; access++) {
        const uvec2 at = result_position(p, i, access);
        const uint index = result_index(p, at);
        const uvec4 results = smem[strip_index(access)];
        if (!in_result(at)) continue;
        if (EPILOGUE == EPILOGUE_GELU) Chunks(uint64_t(args.other)).x[index] = results;
        Chunks(uint64_t(args.outp)).x[index] = EPILOGUE == EPILOGUE_GELU ? gelu_chunk(results) : results;
    }
    subgroupBarrier();
}

// Writes strip i, transposed, to the tiles of a symmetric result that are above the diagonal.
void copy_strip(Position p, uint i) {
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
        coopMatStore(round_fragment(accumulators[i * FRAGMENTS_N + j]), smem,
                     strip_start() + j * FN * COPY_STRIDE, COPY_STRIDE,
                     gl_CooperativeMatrixLayoutColumnMajor);
    subgroupBarrier();
    const uint first_column = p.m + p.subgroup_m + (i * K_GROUPS + p.k_group) * FM;
    [[unroll]] for (uint access = 0; access < STRIP_ACCESSES; access++) {
        const uint e = access * LANES + gl_SubgroupInvocationID;
        const uint row = e / COPY_CHUNKS, chunk = e % COPY_CHUNKS;
        const uvec2 at = uvec2(p.n + p.subgroup_n + row, first_column / CHUNK_ELEMENTS + chunk);
        const uint column = at.y * CHUNK_ELEMENTS;
        const uvec4 results = smem[strip_start() + row * COPY_STRIDE + chunk];
        if (in_result(at) && above_diagonal(at.x / TILE_M * TILE_M, column / TILE_N * TILE_N))
            Chunks(uint64_t(args.outp)).x[result_index(p, at)] = results;
    }
    subgroupBarrier();
}

// Writes strip i to the split's partial sums, in fp32.
void store_partial_strip(Position p, uint i) {
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++)
        coopMatStore(accumulators[i * FRAGMENTS_N + j], smem, strip_start() + j * FN / 4, STRIP_STRIDE,
                     gl_CooperativeMatrixLayoutRowMajor);
    subgroupBarrier();
    [[unroll]] for (uint access = 0; access < STRIP_ACCESSES; access++) {
        const uvec2 at = result_position(p, i, access);
        if (in_result(at))
            Floats4(uint64_t(args.partials)).x[(p.split * M + at.x) * (N / 4) + at.y] =
                uintBitsToFloat(smem[strip_index(access)]);
    }
    subgroupBarrier();
}

// Combines strip i of the accumulators with values that were loaded from global memory.
void combine_strip(uvec4 values[RESULT_ACCESSES], uint i) {
    [[unroll]] for (uint access = 0; access < STRIP_ACCESSES; access++)
        smem[strip_index(access)] = values[i * STRIP_ACCESSES + access];
    subgroupBarrier();
    [[unroll]] for (uint j = 0; j < FRAGMENTS_N; j++) {
        FragmentResult stored;
        coopMatLoad(stored, smem, strip_start() + j * FN / CHUNK_ELEMENTS, STRIP_STRIDE,
                    gl_CooperativeMatrixLayoutRowMajor);
        FragmentSum other = FragmentSum(stored);
        if (EPILOGUE == EPILOGUE_ADD)
            accumulators[i * FRAGMENTS_N + j] += other;
        else if (EPILOGUE == EPILOGUE_COMBINE)
            accumulators[i * FRAGMENTS_N + j] =
                args.alpha * accumulators[i * FRAGMENTS_N + j] + args.beta * other;
        else
            for (int e = 0; e < other.length(); e++)
                accumulators[i * FRAGMENTS_N + j][e] *= fast_gelu_slope(other[e]);
    }
    subgroupBarrier();
}

bool has_other() {
    return EPILOGUE == EPILOGUE_GELU_SLOPE || EPILOGUE == EPILOGUE_ADD || EPILOGUE == EPILOGUE_COMBINE;
}

// Applies the epilogue and writes the results.
void finish(Position p) {
    if (EPILOGUE == EPILOGUE_PARTIAL) {
        [[unroll]] for (uint i = 0; i < STRIPS; i++) store_partial_strip(p, i);
        return;
    }
    uvec4 others[RESULT_ACCESSES];  // all loads are in flight at once
    if (has_other())
        [[unroll]] for (uint i = 0; i < RESULT_ACCESSES; i++) {
            const uvec2 at = result_position(p, i / STRIP_ACCESSES, i % STRIP_ACCESSES);
            const uint64_t from = uint64_t(EPILOGUE == EPILOGUE_ADD ? args.outp : args.other);
            others[i] = in_result(at) ? Chunks(from).x[result_index(p, at)] : uvec4(0);
        }
    [[unroll]] for (uint i = 0; i < STRIPS; i++) {
        if (has_other()) combine_strip(others, i);
        store_strip(p, i);
        if (SYMMETRIC) copy_strip(p, i);
    }
}
