// A linear layer of the newest row of a few texts, as in generating them: result = weight x + bias. The time
// is spent on reading the weight, so each subgroup loads ROWS of its rows at once, before it waits for x.
// With NORM, x is the LayerNorm of the residual stream, which each workgroup computes for itself: that costs
// less than a dispatch of its own. The arithmetic of a text does not depend on how many there are.
#version 460
#include "packs.glsl"
#include "gelu.glsl"

layout(constant_id = 2) const uint PACKS = 3;     // of a row, per invocation, that are loaded at once
layout(constant_id = 3) const uint ROWS = 1;      // of the weight, per subgroup
layout(constant_id = 4) const uint TEXTS = 1;     // per workgroup
layout(constant_id = 5) const uint EPILOGUE = 0;  // DECODE_STORE, ...
layout(constant_id = 6) const bool NORM = false;
layout(constant_id = 7) const uint C = 768;
layout(constant_id = 8) const bool TAKES_TURNS = false;  // there are fewer workgroups than blocks of rows
layout(push_constant, scalar) uniform Push { DecodeLinearArgs args; };

const uint ROW_PACKS = C / WIDTH;
const bool IS_RAW = WIDTH * REAL_BYTES == 16;

shared vec4 normed[NORM ? TEXTS * ROW_PACKS * FOURS : 1];

// Packs of 16 bytes stay packed until they are used; others become floats at once.
uvec4 fetch(Reals p, uint i) {
    if (IS_RAW) return load_raw(p, i);
    return floatBitsToUint(load_pack(p, i));
}
vec4 unpacked(uvec4 u, uint four) { return IS_RAW ? unpack_raw(u, four) : uintBitsToFloat(u); }

// One column of a pack of the residual stream.
vec4 load_stream(Floats p, uint i) {
    if (WIDTH >= 4) return Floats4(uint64_t(p)).x[i];
    return vec4(p.x[i], 0, 0, 0);
}

// Each subgroup normalizes a text's row, and stores it to `slot` of shared memory, if there is one. All of a
// workgroup run this together, since subgroup operations need that after loops of different lengths.
void normalize(uint slot, uint which) {
    Floats row = float_row(args.stream, which, C);
    float sum = 0, squares = 0;
    for (uint i = gl_SubgroupInvocationID; i < ROW_PACKS * FOURS; i += gl_SubgroupSize)
        sum += pack_sum(load_stream(row, i));
    const float mean = subgroupAdd(sum) / C;
    for (uint i = gl_SubgroupInvocationID; i < ROW_PACKS * FOURS; i += gl_SubgroupSize) {
        const vec4 d = load_stream(row, i) - mean;
        squares += pack_sum(d * d);
    }
    const float rstd = 1.0 / sqrt(subgroupAdd(squares) / C + LAYERNORM_EPSILON);
    if (slot >= TEXTS) return;
    for (uint i = gl_SubgroupInvocationID; i < ROW_PACKS; i += gl_SubgroupSize) {
        const mat2x4 gain = load_wide(args.gain, i), shift = load_wide(args.shift, i);
        [[unroll]] for (uint four = 0; four < FOURS; four++) {
            // adjacent invocations access adjacent vectors
            normed[(slot * FOURS + four) * ROW_PACKS + i] =
                (load_stream(row, i * FOURS + four) - mean) * rstd * gain[four] + shift[four];
        }
    }
}

void finish(uint row, uint which, float result) {
    if (row >= args.OC || which >= args.num_texts) return;
    if (uint64_t(args.bias) != 0) result += load(args.bias, row);
    if (EPILOGUE == DECODE_ADD) {
        args.stream.x[which * args.OC + row] += result;
        return;
    }
    const uint64_t at =
        uint64_t(args.positions) == 0 ? 0 : uint64_t(args.positions.x[which]) * uint(args.OC);
    store(real_row(args.outp, which * args.text_stride + at, 1), row,
          EPILOGUE == DECODE_GELU ? gelu(result) : result);
}

// Computes ROWS rows of the result, from first_row on, for the texts from first_text on. has_norm: whether
// their rows have been normalized.
void compute_rows(uint first_row, uint first_text, bool has_norm) {
    const uint me = gl_SubgroupInvocationID, last_text = args.num_texts - 1, step = PACKS * gl_SubgroupSize;
    uvec4 w[ROWS][PACKS];
    float sums[ROWS][TEXTS];
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        [[unroll]] for (uint t = 0; t < TEXTS; t++) sums[r][t] = 0;
    for (uint start = 0; start < ROW_PACKS; start += step) {
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            Reals row = real_row(args.weight, min(first_row + r, uint(args.OC) - 1), C);
            [[unroll]] for (uint k = 0; k < PACKS; k++) {
                const uint i = start + k * gl_SubgroupSize + me;
                w[r][k] = i < ROW_PACKS ? fetch(row, i) : uvec4(0);
            }
        }
        if (NORM && !has_norm && start == 0) {
            for (uint t = 0; t < TEXTS; t += gl_NumSubgroups)
                normalize(t + gl_SubgroupID, min(first_text + t + gl_SubgroupID, last_text));
            barrier();
        }
        [[unroll]] for (uint t = 0; t < TEXTS; t++) {
            Reals inp = real_row(args.inp, min(first_text + t, last_text), C);
            [[unroll]] for (uint k = 0; k < PACKS; k++) {
                const uint i = min(start + k * gl_SubgroupSize + me, ROW_PACKS - 1);
                uvec4 raw = uvec4(0);
                if (!NORM) raw = fetch(inp, i);
                [[unroll]] for (uint four = 0; four < FOURS; four++) {
                    vec4 x = unpacked(raw, four);
                    if (NORM) x = normed[(t * FOURS + four) * ROW_PACKS + i];
                    [[unroll]] for (uint r = 0; r < ROWS; r++) sums[r][t] += dot(x, unpacked(w[r][k], four));
                }
            }
        }
    }
    // Each invocation finishes one of the subgroup's ROWS * TEXTS results.
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        [[unroll]] for (uint t = 0; t < TEXTS; t++) sums[r][t] = subgroupAdd(sums[r][t]);
    for (uint base = 0; base < ROWS * TEXTS; base += gl_SubgroupSize) {
        float mine = 0;
        [[unroll]] for (uint r = 0; r < ROWS; r++)
            [[unroll]] for (uint t = 0; t < TEXTS; t++)
                if (r * TEXTS + t == base + me) mine = sums[r][t];
        const uint which = base + me;
        if (which < ROWS * TEXTS) finish(first_row + which / TEXTS, first_text + which % TEXTS, mine);
    }
}

// With TAKES_TURNS, a workgroup computes every args.groups-th block of rows and normalizes only once.
void main() {
    const uint rows = gl_NumSubgroups * ROWS, begin = gl_WorkGroupID.x * rows;
    const uint first_text = gl_WorkGroupID.y * TEXTS;
    compute_rows(begin + gl_SubgroupID * ROWS, first_text, false);
    if (!TAKES_TURNS) return;
    const uint advance = args.groups * rows;
    for (uint first = begin + advance; first < args.OC; first += advance)
        compute_rows(first + gl_SubgroupID * ROWS, first_text, true);
}
