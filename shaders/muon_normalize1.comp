// Muon: X = the Nesterov momentum of a matrix, divided by its norm. Each workgroup adds up all sums of
// squares that muon_momentum1 wrote, in the same order, and takes a chunk of MUON_CHUNK elements. X is zero
// if the update is to be skipped.
#version 460
#include "muon.glsl"
#include "block_sum.glsl"

layout(push_constant, scalar) uniform Push { MuonMomentumArgs args; };

void main() {
    const uint chunk = group_index();
    const uint64_t first = uint64_t(chunk) * MUON_CHUNK;
    if (first >= args.n) return;
    float scale;
    const bool skip = !gradient_scale(args.norm_and_scale, scale);
    const uint num_partials = uint((args.n + MUON_CHUNK - 1) / MUON_CHUNK);
    float sum = 0;
    if (!skip)
        for (uint i = gl_LocalInvocationID.x; i < num_partials; i += BLOCK) sum += args.partials.x[i];
    const float factor = 1 / max(sqrt(block_sum(sum)), args.min_norm);
    const float momentum = args.step.x[0].momentum;
    const uint packs = uint(min(args.n - first, uint64_t(MUON_CHUNK))) / WIDTH;
    Floats m = float_row(args.m, chunk, MUON_CHUNK);
    Reals grads = real_row(args.grads, chunk, MUON_CHUNK);
    for (uint i = gl_LocalInvocationID.x; i < packs; i += BLOCK) {
        vec4 x = vec4(0);
        if (!skip) x = factor * average(momentum, load_floats(m, i), load_pack(grads, i) * scale);
        store_x(x_row(uint64_t(args.x), first), i, x);
    }
}
