// Attention backward pass, first kernel: delta = sum of dout * out over the channels of a head. Every version
// runs it. A workgroup computes HEADS elements of delta, whose channels are contiguous in memory. Adjacent
// invocations load adjacent packs and store partial sums to shared memory; one invocation per element adds
// them up.
#version 460
#include "packs.glsl"

layout(constant_id = 2) const uint HS = 64;
layout(constant_id = 3) const uint HEADS = 64;
layout(push_constant, scalar) uniform Push { AttentionBackwardArgs args; };

const uint LANES = HS / WIDTH;  // packs per head
const uint STRIDE = LANES + 1;  // of a head in shared memory; the padding avoids bank conflicts
const uint PACKS = (HEADS * LANES + BLOCK - 1) / BLOCK;  // per invocation

shared float partial[HEADS * STRIDE];

void main() {
    const uint T = args.T, NH = args.NH, id = gl_LocalInvocationID.x;
    const uint64_t first = uint64_t(group_index()) * HEADS, all = uint64_t(args.B) * T * NH;  // of (B, T, NH)
    if (first >= all) return;
    const uint heads = uint(min(all - first, uint64_t(HEADS)));
    Reals dout = real_row(args.dout, first, HS), outp = real_row(args.outp, first, HS);
    mat2x4 a[PACKS], b[PACKS];  // all loads are in flight before the first is used
    [[unroll]] for (uint k = 0; k < PACKS; k++) {
        const uint pack = min(k * BLOCK + id, heads * LANES - 1);
        a[k] = load_wide(dout, pack);
        b[k] = load_wide(outp, pack);
    }
    [[unroll]] for (uint k = 0; k < PACKS; k++) {
        const uint pack = k * BLOCK + id;
        if (pack < heads * LANES)
            partial[pack / LANES * STRIDE + pack % LANES] = wide_sum(matrixCompMult(a[k], b[k]));
    }
    barrier();
    for (uint head = id; head < heads; head += BLOCK) {
        float sum = 0;
        for (uint lane = 0; lane < LANES; lane++) sum += partial[head * STRIDE + lane];
        // (first + head) / NH and its remainder: compilers turn a division of 64 bits into long code.
        const uint rest = group_index() % NH * HEADS + head;
        const uint row = group_index() / NH * HEADS + rest / NH;  // of (B, T)
        float_row(args.delta, (uint64_t(row / T) * NH + rest % NH) * T + row % T, 1).x[0] = sum;
    }
}
