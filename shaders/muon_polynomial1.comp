// Muon: square (n, n) = a I + b gram + c square. One invocation per element.
#version 460
#include "util.glsl"

layout(push_constant, scalar) uniform Push { MuonPolynomialArgs args; };

void main() {
    const uint64_t i = global_index();
    const uint n = args.n;
    if (i >= uint64_t(n) * n) return;
    Floats square = float_row(args.square, i, 1), gram = float_row(args.gram, i, 1);
    square.x[0] = (i / n == i % n ? args.a : 0) + args.b * gram.x[0] + args.c * square.x[0];
}
