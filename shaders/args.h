// Argument blocks of the kernels, read by C++ (llmc/*.cpp) and by GLSL (shaders/*.comp), at most 128 bytes each.
// Both sides lay them out alike: 8-byte device addresses first, then 4-byte numbers.
//
// Reals holds the storage type of parameters, activations and gradients: every kernel is built for each, with
// REAL_FP32, REAL_BF16 or REAL_FP16 defined. Floats is fp32 always: statistics, losses, optimizer state. Shapes stand
// beside each address; B T C V Vp NH as in llm.c.
#ifndef ARGS_H
#define ARGS_H

// What the optimizer reads from memory, since it changes from step to step: see llmc/adamw.h.
struct AdamWStep {
    float learning_rate, beta1, beta2, beta1_correction, beta2_correction, eps;
    uint32_t seed;  // of the random bits that round 16-bit parameters
};

#ifdef __cplusplus
#include <cstdint>
using Reals = uint64_t;
using Floats = uint64_t;
using Ints = uint64_t;
using AdamWSteps = uint64_t;
#else
#ifdef REAL_FP32
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Reals { float x[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Reals4 { vec4 x[]; };
#else
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Reals { uint16_t x[]; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Reals4 { uvec2 x[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Reals8 { uvec4 x[]; };
#endif
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Floats { float x[]; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer Floats4 { vec4 x[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Ints { int x[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer AdamWSteps { AdamWStep x[]; };
#endif

struct PeakCopyArgs {
    Floats outp, inp;  // (4 N)
    int N;
};

struct MatrixLayoutArgs {
    Floats sums, factors;  // (invocations of a subgroup, components): elements' numbers, row by row
    int components;
};

// Factors of peak_matrix.
const int POWERS_OF_TWO = 0, SCATTERED_FACTORS = 1, UNIFORM_FACTORS = 2;

struct PeakFmaArgs {
    Floats outp;  // one value per invocation
    int rounds;
};

// Of the chain that dev/report/chain.h describes: rounds of a product and five pointwise operations.
struct ChainArgs {
    Floats next, state;   // (BATCH, n): after the round and before it
    Floats x;             // (BATCH, n): between the kernels of a round
    Floats weight;        // (n, n)
    Floats inputs;        // (CHAIN_PERIOD, n)
    Floats gain, leak;    // (n)
    int n;
    int round, rounds;    // the first one's number, how many
};
const int CHAIN_PERIOD = 10;  // rounds after which the inputs come again
const int CHAIN_ADD = 0;      // x += input
const int CHAIN_TANH = 1;     // x = tanh(x)
const int CHAIN_SCALE = 2;    // x *= gain
const int CHAIN_MIX = 3;      // x += leak * (state - x)
const int CHAIN_SQUASH = 4;   // x /= 1 + |x|

struct LayernormForwardArgs {
    Reals outp;           // (N, C)
    Floats mean, rstd;    // (N)
    Reals inp;            // (N, C)
    Reals weight, bias;   // (C)
    int N, C;
};

struct MatmulForwardArgs {
    Reals outp;       // (N, OC)
    Reals inp;        // (N, C)
    Reals weight;     // (OC, C)
    Reals bias;       // (OC) or null
    int N, C, OC;
};

struct MatmulDinpArgs {
    Reals dinp;          // (N, C)
    Reals dout, weight;  // (N, OC), (OC, C)
    int N, C, OC;
};

struct MatmulDweightArgs {
    Reals dweight;    // (OC, C)
    Floats partials;  // (splits, OC, C), written instead where splits > 1
    Reals dout, inp;  // (N, OC), (N, C)
    int N, C, OC;
    int splits;       // of the rows; slice_rows in each, the last one may have fewer
    int slice_rows;
    int accumulate;   // 1: dweight is added to; 0: overwritten
};

// Of the products on matrix cores (matmul5.glsl): outp (M, N) = a b over K, in the layouts that the kernel's file says.
struct MatmulMatrixArgs {
    Reals outp;       // (M, N)
    Reals a, b;
    Reals bias;       // (N) where EPILOGUE says so
    Reals other;      // (M, N): what EPILOGUE says
    Floats partials;  // (slices, M, N)
    int slices;       // of K; slice_k in each, the last one may have fewer
    int slice_k;
};
struct MatmulFinishArgs {
    Reals outp, bias, other;  // as above
    Floats partials;          // (slices, n)
    uint64_t n;               // M N
    int slices;
};
const int EPILOGUE_NONE = 0;        // outp = a b
const int EPILOGUE_BIAS = 1;        // outp = a b + bias
const int EPILOGUE_GELU = 2;        // other = a b + bias, outp = GELU(other)
const int EPILOGUE_GELU_SLOPE = 3;  // outp = a b * GELU'(other)
const int EPILOGUE_ADD = 4;         // outp += a b
const int EPILOGUE_PARTIAL = 5;     // partials[slice] = a b over that slice

struct TransposeArgs {
    Reals outp, inp;  // (columns, rows), (rows, columns)
    int rows, columns;
};

struct MatmulDbiasArgs {
    Reals dbias;      // (OC), added to
    Floats partials;  // (splits, OC), written instead where splits > 1
    Reals dout;       // (N, OC)
    int N, OC;
    int splits, slice_rows;  // as above
};

struct MatmulSumArgs {
    Reals outp;       // (n)
    Floats partials;  // (splits, n)
    int n, splits;
    int accumulate;   // as above
};

struct AttentionForwardArgs {
    Reals outp;       // (B, T, C)
    Floats lse;       // (B, NH, T)
    Reals qkv;        // (B, T, 3 C)
    int B, T, C, NH;
};

struct CachedAttentionForwardArgs {
    Reals outp;       // (N, C)
    Reals qkv;        // (first + N, 3 C)
    int first, N, C, NH;
};

struct AttentionBackwardArgs {
    Reals dqkv;       // (B, T, 3 C)
    Floats delta;     // (B, NH, T)
    Reals dout, outp; // (B, T, C)
    Floats lse;       // (B, NH, T)
    Reals qkv;        // (B, T, 3 C)
    int B, T, C, NH;
};

struct FusedClassifierArgs {
    Reals logits;         // (N, Vp), becomes its gradient
    Floats losses;        // (N)
    Ints targets;         // (N)
    float dloss;
    int N, V, Vp;
    int write_gradients;  // 0: leave the logits
};

struct SumLossesArgs {
    Floats total;   // (1), added to
    Floats losses;  // (n)
    int n;
    float scale;
};

struct GlobalNormArgs {
    Floats partials;  // (groups): sum of squares of each piece
    Reals grads;      // (n)
    uint64_t n;
};

struct GlobalNormFinishArgs {
    Floats norm_and_scale;  // (2)
    Floats partials;        // (n)
    Floats loss;            // (1), or 0
    int n;
    float max_norm, unscale;
};

struct AdamWArgs {
    Reals params;           // (n)
    Floats master;          // (n), or 0
    Floats m, v;            // (n)
    Reals grads;            // (n)
    AdamWSteps step;        // (1)
    Floats norm_and_scale;  // (2), or 0
    uint64_t n, first;      // elements, and the number in their tensor of the first one
    float weight_decay;
};

struct EncoderForwardArgs {
    Reals outp;      // (N, C)
    Ints inp;        // (N)
    Reals wte, wpe;  // (Vp, C), (T, C)
    int N, T, C;     // N = B T
};

struct EncoderForwardUpdatedArgs {
    Reals outp;             // (N, C)
    Ints inp;               // (N)
    Reals wte, wpe;         // (Vp, C), (T, C)
    Floats master, m, v;    // (Vp, C); master may be 0
    Reals grads;            // (Vp, C)
    AdamWSteps step;        // (1)
    Floats norm_and_scale;  // (2), or 0
    int N, T, C;            // N = B T
    float weight_decay;
};

struct EncoderBackwardArgs {
    Reals dwte, dwpe;  // (Vp, C), (T, C)
    Reals dout;        // (B, T, C)
    Ints buckets;      // as build_encoder_buckets() of llmc/encoder.h lays them out
    int B, T, C;
    int lists;  // the grid holds this many buckets at once and walks through the rest
};
const int LONG_BUCKET = 32;  // positions; encoder_backward2 gives a longer bucket to whole workgroups

struct LayernormBackwardArgs {
    Reals dinp, dweight, dbias;  // (N, C), (C), (C)
    Floats scratch;              // (teams, 2, C)
    Reals added;                 // (N, C), to be part of dinp; may be dinp; 0: nothing
    Reals dout, inp, weight;     // (N, C), (N, C), (C)
    Floats partials;             // (slices, N, C), read in place of dout where there are several
    Floats mean, rstd;           // (N)
    int N, C;
    int teams;  // workgroups that share the rows
};

struct GeluForwardArgs {
    Reals outp, inp;  // (n)
    uint64_t n;
};

struct GeluBackwardArgs {
    Reals dinp, inp, dout;  // (n)
    uint64_t n;
};

struct ResidualForwardArgs {
    Reals outp, inp1, inp2;  // (n)
    uint64_t n;
};

struct FusedResidualLayernormForwardArgs {
    Reals residual, normed;  // (N, C)
    Floats mean, rstd;       // (N)
    Reals inp1, inp2;        // (N, C)
    Floats partials;         // (slices, N, C), read in place of inp2 where there are several
    Reals product_bias;      // (C), then added; or 0
    Reals weight, bias;      // (C)
    int N, C;
};

#endif
