// Tells where a device keeps the components of fragments: one subgroup loads matrices whose elements are their own
// numbers, as sums and as first factors, and writes down what each invocation got.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matrix.glsl"

layout(push_constant, scalar) uniform Push { MatrixLayoutArgs args; };

const uint MOST = FN > FK ? FM * FN : FM * FK;
shared float sum_numbers[MOST];
shared uint factor_numbers[MOST / 2];  // pairs

void main() {
    const uint lane = gl_LocalInvocationID.x;
    if (group_index() > 0) return;
    for (uint i = lane; i < MOST; i += BLOCK) sum_numbers[i] = i;
    for (uint i = lane; i < MOST / 2; i += BLOCK) factor_numbers[i] = pack(vec2(2 * i, 2 * i + 1));
    barrier();
    FragmentSum sum;
    FragmentA factor;
    coopMatLoad(sum, sum_numbers, 0, FN, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(factor, factor_numbers, 0, FK / 2, gl_CooperativeMatrixLayoutRowMajor);
    for (uint i = 0; i < args.components; i++) {
        args.sums.x[lane * args.components + i] = i < sum.length() ? sum[i] : -1;
        args.factors.x[lane * args.components + i] = i < factor.length() ? float(factor[i]) : -1;
    }
}
