// Encoder: one workgroup computes one position with 16-byte accesses. This avoids the 64-bit divisions that
// each invocation of version 1 needs to find its row.
#version 460
#include "packs.glsl"

layout(push_constant, scalar) uniform Push { EncoderForwardArgs args; };

void main() {
    const uint row = group_index(), C = args.C;
    if (row >= args.num_rows) return;
    Reals token = real_row(args.wte, uint64_t(args.inp.x[row]), C);
    Reals position = real_row(args.wpe, row % args.T, C);
    Reals outp = real_row(args.outp, row, C);
    for (uint i = gl_LocalInvocationID.x; i < C / WIDTH; i += BLOCK)
        store_wide(outp, i, load_wide(token, i) + load_wide(position, i));
}
