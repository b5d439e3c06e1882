// Multiplies fragments in registers, DOWN by ACROSS of them per subgroup: the peak that cooperative-matrix
// GEMMs are compared with. An iteration has 16 multiplications, regardless of the number of accumulators.
//
// Operand values matter on devices whose clock falls with power. Powers of two, equal in all invocations,
// draw the least power and show the peak of the device. Scattered values show a bound for GEMMs of real data.
// Uniform values are equal in all components of an invocation; the compiler then keeps them in one register,
// which costs a quarter on an H200. Fragments differ from each other, since the compiler would merge equal
// accumulators.
#version 460
#include "util.glsl"
#include "cooperative_matrix.glsl"

layout(constant_id = 5) const uint DOWN = 4;
layout(constant_id = 6) const uint ACROSS = 4;
layout(constant_id = 7) const int OPERANDS = POWERS_OF_TWO;  // see args.h

layout(push_constant, scalar) uniform Push { PeakFmaArgs args; };

// 1, but the compiler must assume a different value in each component of each invocation. Without this,
// Mesa's software device merged equal values and reported 27 times its speed.
float one(int component) {
    return int(gl_LocalInvocationID.x) - component < args.iterations * 1024 ? 1.0 : 0.0;
}

REAL operand(uint fragment, int component) {
    if (OPERANDS == SCATTERED_OPERANDS)  // from -0.5 to 0.5; all bits vary
        return REAL(
            fract(0.6180340 * float(gl_GlobalInvocationID.x % 4096 + 37 * component + 101 * fragment)) - 0.5);
    return REAL(one(component) / float(1u << fragment));
}

void main() {
    FragmentA a[DOWN];
    FragmentB b[ACROSS];
    FragmentSum accumulators[DOWN * ACROSS];
    [[unroll]] for (uint i = 0; i < DOWN; i++) {
        a[i] = FragmentA(REAL(float(gl_GlobalInvocationID.x % 4) * 0.001 + float(i)));
        if (OPERANDS == UNIFORM_OPERANDS) continue;
        for (int c = 0; c < a[i].length(); c++) a[i][c] = operand(i, c);
    }
    [[unroll]] for (uint i = 0; i < ACROSS; i++) {
        b[i] = FragmentB(REAL(float(gl_GlobalInvocationID.x % 8) * 0.002 + float(i)));
        if (OPERANDS == UNIFORM_OPERANDS) continue;
        for (int c = 0; c < b[i].length(); c++) b[i][c] = operand(DOWN + i, c);
    }
    [[unroll]] for (uint i = 0; i < DOWN * ACROSS; i++) accumulators[i] = FragmentSum(0.0);
    for (int iteration = 0; iteration < args.iterations; iteration++)
        [[unroll]] for (uint i = 0; i < 16; i++) {
            const uint s = i % (DOWN * ACROSS);
            accumulators[s] = coopMatMulAdd(a[s / ACROSS], b[s % ACROSS], accumulators[s]);
        }
    float total = 0;
    [[unroll]] for (uint i = 0; i < DOWN * ACROSS; i++)
        for (int c = 0; c < accumulators[i].length(); c++) total += accumulators[i][c];
    float_row(args.outp, global_index(), 1).x[0] = total;  // so that the compiler removes nothing
}
