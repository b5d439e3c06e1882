// The forward pass of a linear layer, out = inp weight^T, in fp32. See matmul7.glsl.
#version 460
#include "util.glsl"
#include "cooperative_matrix.glsl"
const bool A_M_MAJOR = false, B_N_MAJOR = false;
#include "matmul7.glsl"
