// The forward pass of a linear layer, out = inp weight^T, in fp32. See matmul7.glsl.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "util.glsl"
#include "cooperative_matrix.glsl"
const bool A_M_MAJOR = false, B_N_MAJOR = false;
#include "matmul7.glsl"
