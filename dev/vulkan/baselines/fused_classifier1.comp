// Softmax and cross-entropy, plain port: one invocation makes three passes over one row of V logits. The
// loops are unrolled by 8, because Mesa's software devices silently end an invocation's loops after 65,535
// iterations in total.
#version 460
#include "util.glsl"

layout(push_constant, scalar) uniform Push { FusedClassifierArgs args; };

const uint UNROLL = 8;

void main() {
    const uint64_t row = global_index();
    if (row >= uint64_t(args.num_rows)) return;
    const uint V = args.V, target = int_row(args.targets, row, 1).x[0];
    Reals logits = real_row(args.logits, row, args.Vp);
    const bool counts = target < V;
    float largest = load(logits, 0);
    for (uint first = 0; first < V; first += UNROLL)
        [[unroll]] for (uint i = 0; i < UNROLL; i++)
            if (first + i < V) largest = max(largest, load(logits, first + i));
    float sum = 0;
    for (uint first = 0; first < V; first += UNROLL)
        [[unroll]] for (uint i = 0; i < UNROLL; i++)
            if (first + i < V) sum += exp(load(logits, first + i) - largest);
    float_row(args.losses, row, 1).x[0] = counts ? log(sum) + largest - load(logits, target) : 0;
    if (args.write_gradients == 0) return;
    const float factor = counts ? args.dloss / sum : 0;
    for (uint first = 0; first < args.Vp; first += UNROLL)
        [[unroll]] for (uint i = 0; i < UNROLL; i++) {
            const uint c = first + i;
            const float gradient = c < V ? exp(load(logits, c) - largest) * factor : 0;
            if (c < args.Vp) store(logits, c, counts && c == target ? gradient - args.dloss : gradient);
        }
}
