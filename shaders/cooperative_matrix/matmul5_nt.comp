// out = inp weight^T on cooperative matrices, optionally with bias and GELU: see matmul5.glsl.
#version 460
#include "util.glsl"
#include "cooperative_matrix.glsl"
const bool A_M_MAJOR = false, B_N_MAJOR = false;
#include "matmul5.glsl"
