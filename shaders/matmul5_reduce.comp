// Reduces the partial sums of a split-K GEMM (matmul5.glsl) in the order of the splits and applies the
// epilogue. One invocation computes eight consecutive elements of a row.
#version 460
#include "util.glsl"
#include "gelu.glsl"

layout(constant_id = 1) const uint N = 8;
layout(constant_id = 2) const uint EPILOGUE = 0;  // EPILOGUE_... of args.h
layout(push_constant, scalar) uniform Push { MatmulReduceArgs args; };

void main() {
    const uint64_t i = global_index();  // in units of eight elements
    if (i * 8 >= args.n) return;
    mat2x4 sum = mat2x4(0);
    for (uint split = 0; split < args.splits; split++) {
        Floats4 partials = Floats4(uint64_t(args.partials) + (split * args.n + i * 8) * 4);
        sum += mat2x4(partials.x[0], partials.x[1]);
    }
    const uint at = uint(i);
    if (EPILOGUE == EPILOGUE_BIAS || EPILOGUE == EPILOGUE_GELU) sum += load8(args.bias, uint(i % (N / 8)));
    if (EPILOGUE == EPILOGUE_ADD) sum += load8(args.outp, at);
    if (EPILOGUE == EPILOGUE_GELU) {
        store8(args.other, at, sum);
        sum = load8(args.other, at);  // GELU of the rounded values, so that recomputing it is bit-identical
    }
    mat2x4 other = mat2x4(0);
    if (EPILOGUE == EPILOGUE_GELU_SLOPE) other = load8(args.other, at);
    [[unroll]] for (uint e = 0; e < 8; e++) {
        if (EPILOGUE == EPILOGUE_GELU) sum[e / 4][e % 4] = fast_gelu(sum[e / 4][e % 4]);
        if (EPILOGUE == EPILOGUE_GELU_SLOPE) sum[e / 4][e % 4] *= fast_gelu_slope(other[e / 4][e % 4]);
    }
    store8(args.outp, at, sum);
}
