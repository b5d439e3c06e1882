// out = inp weight^T on matrix cores, with bias and GELU on request: see matmul5.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matrix.glsl"
const bool A_K_MAJOR = false, B_K_MAJOR = false;
#include "matmul5.glsl"
