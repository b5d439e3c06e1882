// Probes fragments. One subgroup loads matrices whose elements are their own indices, as an accumulator and
// as operand A, and stores the components of each invocation. It also converts args.value to the operands'
// type, with both signs, as a fragment and as a single component.
#version 460
#include "util.glsl"
#include "cooperative_matrix.glsl"

layout(push_constant, scalar) uniform Push { MatrixLayoutArgs args; };

const uint SIZE = FN > FK ? FM * FN : FM * FK;
shared float accumulator_indices[SIZE];
shared uint operand_indices[SIZE / 2];  // packed in pairs

void main() {
    const uint lane = gl_LocalInvocationID.x;
    if (group_index() > 0) return;
    for (uint i = lane; i < SIZE; i += BLOCK) accumulator_indices[i] = i;
    for (uint i = lane; i < SIZE / 2; i += BLOCK) operand_indices[i] = pack(vec2(2 * i, 2 * i + 1));
    barrier();
    FragmentSum accumulator;
    FragmentA operand;
    coopMatLoad(accumulator, accumulator_indices, 0, FN, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(operand, operand_indices, 0, FK / 2, gl_CooperativeMatrixLayoutRowMajor);
    for (uint i = 0; i < args.components; i++) {
        args.accumulators.x[lane * args.components + i] = i < accumulator.length() ? accumulator[i] : -1;
        args.operands.x[lane * args.components + i] = i < operand.length() ? float(operand[i]) : -1;
    }
    for (uint i = 0; i < 2; i++) {
        const float value = i == 0 ? args.value : -args.value;
        const FragmentResult converted = FragmentResult(FragmentSum(value));
        if (lane == 0) args.converted.x[2 * i] = float(converted[0]);
        if (lane == 0) args.converted.x[2 * i + 1] = float(REAL(value));
    }
}
