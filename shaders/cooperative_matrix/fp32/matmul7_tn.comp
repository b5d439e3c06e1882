// dweight = dout^T inp, or += with EPILOGUE_ADD, in fp32. K is the number of rows. See matmul7.glsl.
#version 460
#include "util.glsl"
#include "cooperative_matrix.glsl"
const bool A_M_MAJOR = true, B_N_MAJOR = true;
#include "matmul7.glsl"
