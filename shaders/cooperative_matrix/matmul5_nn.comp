// dinp = dout weight on cooperative matrices, optionally times the slope of GELU; also out = inp weight^T
// with transposed weights: see matmul5.glsl.
#version 460
#include "util.glsl"
#include "cooperative_matrix.glsl"
const bool A_M_MAJOR = false, B_N_MAJOR = true;
#include "matmul5.glsl"
