// dinp = dout weight on matrix cores, times the slope of GELU on request: see matmul5.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "matrix.glsl"
const bool A_K_MAJOR = false, B_K_MAJOR = true;
#include "matmul5.glsl"
