// Probes fragments. One subgroup loads matrices whose elements are their own indices, as an accumulator and
// as operand A, and stores the components of each invocation. It also converts args.values to the operands'
// type, with both signs: as a fragment, as a single component and, to fp16, in a pair.
#version 460
#include "util.glsl"
#include "cooperative_matrix.glsl"

layout(push_constant, scalar) uniform Push { MatrixLayoutArgs args; };

// Vectors, because fragments load from multiples of 16 bytes.
const uint SIZE = FN > FK ? FM * FN : FM * FK;
shared vec4 accumulator_indices[SIZE / 4];
shared uvec4 operand_indices[SIZE / 8];

void main() {
    const uint lane = gl_SubgroupInvocationID;  // which need not be the invocation's number in the workgroup
    if (group_index() > 0) return;
    for (uint i = gl_LocalInvocationID.x; i < SIZE / 8; i += BLOCK) {
        const vec4 first = 8 * i + vec4(0, 1, 2, 3), second = first + 4;
        accumulator_indices[2 * i] = first;
        accumulator_indices[2 * i + 1] = second;
        operand_indices[i] = uvec4(pack(first.xy), pack(first.zw), pack(second.xy), pack(second.zw));
    }
    barrier();
    FragmentSum accumulator;
    FragmentA operand;
    coopMatLoad(accumulator, accumulator_indices, 0, FN / 4, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(operand, operand_indices, 0, FK / 8, gl_CooperativeMatrixLayoutRowMajor);
    for (uint i = 0; i < args.components; i++) {
        args.accumulators.x[lane * args.components + i] = i < accumulator.length() ? accumulator[i] : -1;
        args.operands.x[lane * args.components + i] = i < operand.length() ? float(operand[i]) : -1;
    }
    for (uint i = 0; i < 6; i++) {
        const float value = i % 2 == 0 ? args.values[i / 2] : -args.values[i / 2];
        const FragmentResult converted = FragmentResult(FragmentSum(value));
        if (lane != 0) continue;
        args.converted.x[3 * i] = float(converted[0]);
        args.converted.x[3 * i + 1] = float(REAL(value));
        args.converted.x[3 * i + 2] = unpackHalf2x16(packHalf2x16(vec2(value, 0.5 * value))).x;
    }
}
