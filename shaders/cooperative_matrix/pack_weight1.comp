// Packs a weight as operand B (K, N) of matmul6.comp: see packed_weight.glsl. One subgroup packs one fragment
// after the other. N_MAJOR: the weight is (K, N), contiguous along N; otherwise (N, K), contiguous along K. K
// and N are multiples of FK and FN.
#version 460
#include "util.glsl"
#include "cooperative_matrix.glsl"
#include "packed_weight.glsl"

layout(constant_id = 5) const bool N_MAJOR = false;
layout(constant_id = 6) const uint LANES = 32;  // invocations per subgroup

layout(push_constant, scalar) uniform Push { PackWeightArgs args; };

void main() {
    const uint K = args.K, N = args.N, k_fragments = K / FK, count = N / FN * k_fragments;
    const uint i = group_index() * (BLOCK / LANES) + gl_SubgroupID;
    if (i >= count) return;
    const uint n = i / k_fragments * FN, k = i % k_fragments * FK;
    const uint64_t first = N_MAJOR ? uint64_t(k) * N + n : uint64_t(n) * K + k;  // element
    Reals8 from = Reals8(uint64_t(args.inp) + first * REAL_BYTES);
    FragmentB f;
    if (N_MAJOR)
        coopMatLoad(f, from.x, 0, N / 8, gl_CooperativeMatrixLayoutRowMajor);
    else
        coopMatLoad(f, from.x, 0, K / 8, gl_CooperativeMatrixLayoutColumnMajor);
    Reals8(uint64_t(args.outp)).x[i * LANES + gl_SubgroupInvocationID] = pack_fragment(f);
}
