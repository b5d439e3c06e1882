// Multiplies fragments that stay in registers, 4 by 4 of them in each subgroup: the peak that products on matrix cores
// are compared with.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matrix.glsl"

layout(push_constant, scalar) uniform Push { PeakFmaArgs args; };

void main() {
    FragmentA a[4];
    FragmentB b[4];
    FragmentSum sums[16];
    [[unroll]] for (uint i = 0; i < 4; i++) {
        a[i] = FragmentA(REAL(float(gl_GlobalInvocationID.x % 4) * 0.001 + float(i)));
        b[i] = FragmentB(REAL(float(gl_GlobalInvocationID.x % 8) * 0.002 + float(i)));
    }
    [[unroll]] for (uint i = 0; i < 16; i++) sums[i] = FragmentSum(0.0);
    for (uint round = 0; round < args.rounds; round++)
        [[unroll]] for (uint i = 0; i < 16; i++) sums[i] = coopMatMulAdd(a[i / 4], b[i % 4], sums[i]);
    float total = 0;
    [[unroll]] for (uint i = 0; i < 16; i++)
        for (int c = 0; c < sums[i].length(); c++) total += sums[i][c];
    float_row(args.outp, global_index(), 1).x[0] = total;  // so that nothing is left out
}
