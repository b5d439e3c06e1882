// Softmax and cross-entropy, plain port: one invocation takes one row of V logits, in three passes over it.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"

layout(push_constant, scalar) uniform Push { FusedClassifierArgs args; };

void main() {
    const uint64_t row = global_index();
    if (row >= uint64_t(args.N)) return;
    const uint V = args.V, target = int_row(args.targets, row, 1).x[0];
    Reals logits = real_row(args.logits, row, args.Vp);
    float largest = load(logits, 0);
    for (uint c = 1; c < V; c++) largest = max(largest, load(logits, c));
    float sum = 0;
    for (uint c = 0; c < V; c++) sum += exp(load(logits, c) - largest);
    float_row(args.losses, row, 1).x[0] = log(sum) + largest - load(logits, target);
    if (args.write_gradients == 0) return;
    const float factor = args.dloss / sum;
    for (uint c = 0; c < V; c++) {
        const float gradient = exp(load(logits, c) - largest) * factor;
        store(logits, c, c == target ? gradient - args.dloss : gradient);
    }
    for (uint c = V; c < args.Vp; c++) store(logits, c, 0);
}
