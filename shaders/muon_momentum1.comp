// Muon: updates the momentum of a matrix, and sums the squares of the Nesterov momentum. One workgroup takes
// a chunk of MUON_CHUNK elements.
#version 460
#include "muon.glsl"
#include "block_sum.glsl"

layout(push_constant, scalar) uniform Push { MuonMomentumArgs args; };

void main() {
    const uint chunk = group_index();
    const uint64_t first = uint64_t(chunk) * MUON_CHUNK;
    float scale;
    if (first >= args.n || !gradient_scale(args.norm_and_scale, scale)) return;
    const float momentum = args.step.x[0].momentum;
    const uint packs = uint(min(args.n - first, uint64_t(MUON_CHUNK))) / WIDTH;
    Floats m = float_row(args.m, chunk, MUON_CHUNK);
    Reals grads = real_row(args.grads, chunk, MUON_CHUNK);
    float sum = 0;
    for (uint i = gl_LocalInvocationID.x; i < packs; i += BLOCK) {
        const vec4 g = load_pack(grads, i) * scale;
        const vec4 now = average(momentum, load_floats(m, i), g), u = average(momentum, now, g);
        store_floats(m, i, now);
        sum += pack_sum(u * u);
    }
    sum = block_sum(sum);
    if (gl_LocalInvocationID.x == 0) args.partials.x[chunk] = sum;
}
