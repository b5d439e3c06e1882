// Multiplies fragments that stay in registers, DOWN by ACROSS of them in each subgroup: the peak that products on matrix
// cores are compared with. A round is 16 products, however few the sums are.
//
// Where the clock falls with the power that is drawn, the numbers count: powers of two, the same in all invocations, draw
// least, and are what a device does at most; scattered ones are what a product of real data may come near to. Uniform
// ones are the same in all components of an invocation, which the compiler then keeps in one register: on an H200 that
// costs a quarter. Factors differ, since equal sums would be merged into one.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matrix.glsl"

layout(constant_id = 4) const uint DOWN = 4;
layout(constant_id = 5) const uint ACROSS = 4;
layout(constant_id = 6) const int FACTORS = POWERS_OF_TWO;  // see args.h

layout(push_constant, scalar) uniform Push { PeakFmaArgs args; };

// 1, but to the compiler another number in each component of each invocation: Mesa's software device would merge what is
// equal, and came out 27 times as fast.
float one(int component) { return int(gl_LocalInvocationID.x) - component < args.rounds * 1024 ? 1.0 : 0.0; }

REAL factor(uint fragment, int component) {
    if (FACTORS == SCATTERED_FACTORS)  // from -0.5 to 0.5, all bits in use
        return REAL(fract(0.6180340 * float(gl_GlobalInvocationID.x % 4096 + 37 * component + 101 * fragment)) - 0.5);
    return REAL(one(component) / float(1u << fragment));
}

void main() {
    FragmentA a[DOWN];
    FragmentB b[ACROSS];
    FragmentSum sums[DOWN * ACROSS];
    [[unroll]] for (uint i = 0; i < DOWN; i++) {
        a[i] = FragmentA(REAL(float(gl_GlobalInvocationID.x % 4) * 0.001 + float(i)));
        if (FACTORS == UNIFORM_FACTORS) continue;
        for (int c = 0; c < a[i].length(); c++) a[i][c] = factor(i, c);
    }
    [[unroll]] for (uint i = 0; i < ACROSS; i++) {
        b[i] = FragmentB(REAL(float(gl_GlobalInvocationID.x % 8) * 0.002 + float(i)));
        if (FACTORS == UNIFORM_FACTORS) continue;
        for (int c = 0; c < b[i].length(); c++) b[i][c] = factor(DOWN + i, c);
    }
    [[unroll]] for (uint i = 0; i < DOWN * ACROSS; i++) sums[i] = FragmentSum(0.0);
    for (int round = 0; round < args.rounds; round++)
        [[unroll]] for (uint i = 0; i < 16; i++) {
            const uint s = i % (DOWN * ACROSS);
            sums[s] = coopMatMulAdd(a[s / ACROSS], b[s % ACROSS], sums[s]);
        }
    float total = 0;
    [[unroll]] for (uint i = 0; i < DOWN * ACROSS; i++)
        for (int c = 0; c < sums[i].length(); c++) total += sums[i][c];
    float_row(args.outp, global_index(), 1).x[0] = total;  // so that nothing is left out
}
