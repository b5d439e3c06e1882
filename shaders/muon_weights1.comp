// Muon: weight = (1 - learning rate * weight decay) weight - learning rate * rate_factor X, with master
// weights and rounding as in adamw_update. One invocation per pack.
#version 460
#include "muon.glsl"

layout(push_constant, scalar) uniform Push { MuonWeightsArgs args; };

void main() {
    const uint64_t i = global_index(), first = i * WIDTH;
    float scale;
    if (first >= args.n || !gradient_scale(args.norm_and_scale, scale)) return;
    const MuonStep s = args.step.x[0];
    const bool has_master = uint64_t(args.master) != 0;
    Reals params = real_row(args.params, i, WIDTH);
    Floats master = float_row(args.master, i, WIDTH);
    const vec4 weight = has_master ? load_floats(master, 0) : load_pack(params, 0);
    const vec4 x = load_x(x_row(uint64_t(args.x), first), 0);
    const float keep = 1 - s.learning_rate * args.weight_decay, rate = s.learning_rate * args.rate_factor;
    const vec4 now = keep * weight - rate * x;
    if (has_master) store_floats(master, 0, now);
    if (WIDTH == 4)
        store_random4(params, now, s.seed, args.first + first);
    else
        store_random(params, 0, now.x, s.seed, args.first + first);
}
