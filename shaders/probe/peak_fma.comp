// Fused multiply-adds in registers: the fp32 peak that benchmarks are compared with. Each invocation
// repeats 256 operations (512 flops) `iterations` times. With 64 operations, the three instructions of the
// loop itself would be 5 %.
#version 460
#include "util.glsl"

layout(push_constant, scalar) uniform Push { PeakFmaArgs args; };

void main() {
    float a[16];
    const float x = 1.0 + 1e-7 * float(gl_LocalInvocationID.x), y = 1e-7;
    [[unroll]] for (uint i = 0; i < 16; i++) a[i] = float(i);
    for (int iteration = 0; iteration < args.iterations; iteration++)
        [[unroll]] for (uint k = 0; k < 16; k++)
            [[unroll]] for (uint i = 0; i < 16; i++) a[i] = fma(a[i], x, y);
    float sum = 0;
    [[unroll]] for (uint i = 0; i < 16; i++) sum += a[i];
    float_row(args.outp, global_index(), 1).x[0] = sum;
}
