// dweight = dout^T inp on cooperative matrices, or += with EPILOGUE_ADD. K is the number of rows here: with
// few tiles, the kernel uses split-K. See matmul5.glsl.
#version 460
#include "util.glsl"
#include "cooperative_matrix.glsl"
const bool A_M_MAJOR = true, B_N_MAJOR = true;
#include "matmul5.glsl"
