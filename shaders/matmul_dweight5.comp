// dweight = dout^T inp on matrix cores, or += as EPILOGUE says; the rows, over which it sums, may be cut into slices: see
// matmul5.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matrix.glsl"
const bool A_K_MAJOR = true, B_K_MAJOR = true;
#include "matmul5.glsl"
