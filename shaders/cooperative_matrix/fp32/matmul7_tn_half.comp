// matmul7_tn with pieces in fp16, for tests on devices without bf16 (LaunchPadOptions::fp16_pieces).
#version 460
#extension GL_GOOGLE_include_directive : require
#define PIECES_FP16
#include "util.glsl"
#include "cooperative_matrix.glsl"
const bool A_M_MAJOR = true, B_N_MAJOR = true;
#include "matmul7.glsl"
