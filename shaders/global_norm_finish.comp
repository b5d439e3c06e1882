// One workgroup adds the sums of squares of all chunks, and computes the norm and the factor that clips it.
#version 460
#include "util.glsl"
#include "block_sum.glsl"

layout(push_constant, scalar) uniform Push { GlobalNormFinishArgs args; };

void main() {
    float sum = 0;
    for (uint i = gl_LocalInvocationID.x; i < args.n; i += BLOCK) sum += args.partials.x[i];
    sum = block_sum(sum);
    if (gl_LocalInvocationID.x != 0) return;
    const float weight = uint64_t(args.weight) != 0 ? args.weight.x[0] : 1.0;
    const float unscale = args.unscale * weight, norm = unscale * sqrt(sum);
    if (uint64_t(args.loss) != 0) args.loss.x[0] *= weight;
    float scale = unscale * (args.max_norm > 0 && norm > args.max_norm ? args.max_norm / norm : 1.0);
    if (!is_finite(sum) || (uint64_t(args.loss) != 0 && !is_finite(args.loss.x[0]))) scale = 0;
    args.norm_and_scale.x[0] = norm;
    args.norm_and_scale.x[1] = scale;
}
