// Kernel arguments, shared by C++ and GLSL and passed as push constants: at most 128 bytes each. The layout
// is the same on both sides, because 8-byte device addresses come first and 4-byte values last.
//
// Reals is an array of the storage type of parameters, activations and gradients. Every kernel is built for
// each storage type, with REAL_FP32, REAL_BF16 or REAL_FP16 defined. Floats is always fp32: statistics,
// losses, optimizer state. The comment of an address gives its shape, with B T C V Vp NH as in llm.c; N and
// num_rows are numbers of rows, B T during training.
#ifndef ARGS_H
#define ARGS_H

// Read by the optimizer from memory, since it changes from step to step: see llmc/layers/adamw.h.
struct AdamWStep {
    float learning_rate, beta1, beta2, beta1_correction, beta2_correction, eps;
    uint32_t seed;  // of the stochastic rounding of 16-bit parameters
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
    Floats accumulators, operands;  // (invocations of a subgroup, components): row-major element indices in the
                                    // accumulator and in operand A
    int components;
};

// Operand values of peak_matrix.
const int POWERS_OF_TWO = 0, SCATTERED_FACTORS = 1, UNIFORM_FACTORS = 2;

struct PeakFmaArgs {
    Floats outp;  // one value per invocation
    int rounds;
};

// The kernel chain of dev/report/chain.h: rounds of one matmul and five pointwise operations.
struct ChainArgs {
    Floats next, state;   // (BATCH, n): after and before the round
    Floats x;             // (BATCH, n): passed between the kernels of a round
    Floats weight;        // (n, n)
    Floats inputs;        // (CHAIN_PERIOD, n)
    Floats gain, leak;    // (n)
    int n;
    int round, rounds;    // index of the first round, number of rounds
};
const int CHAIN_PERIOD = 10;  // rounds after which the inputs repeat
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
    Floats partials;  // (splits, OC, C): written instead of dweight if splits > 1
    Reals dout, inp;  // (N, OC), (N, C)
    int N, C, OC;
    int splits;       // of the rows
    int slice_rows;   // rows per split; the last split may have fewer
    int accumulate;   // 1: add to dweight; 0: overwrite it
};

// Cooperative-matrix GEMMs (matmul5.glsl): outp (M, N) = a b, summed over K. The operand layouts are those of
// the kernel's name.
struct MatmulMatrixArgs {
    Reals outp;       // (M, N)
    Reals a, b;
    Reals bias;       // (N), used by some epilogues
    Reals other;      // (M, N): see the epilogue
    Floats partials;  // (slices, M, N): split-K partial sums
    int slices;       // splits of K
    int slice_k;      // of K per split; the last split may have less
};
// Reduces split-K partial sums and applies the epilogue.
struct MatmulFinishArgs {
    Reals outp, bias, other;  // as above
    Floats partials;          // (slices, n)
    uint64_t n;               // M N
    int slices;               // splits of K
};
const int EPILOGUE_NONE = 0;        // outp = a b
const int EPILOGUE_BIAS = 1;        // outp = a b + bias
const int EPILOGUE_GELU = 2;        // other = a b + bias, outp = GELU(other)
const int EPILOGUE_GELU_SLOPE = 3;  // outp = a b * GELU'(other)
const int EPILOGUE_ADD = 4;         // outp += a b
const int EPILOGUE_PARTIAL = 5;     // partials[split] = a b, summed over that split of K

struct TransposeArgs {
    Reals outp, inp;  // (columns, rows), (rows, columns)
    int rows, columns;
};

struct MatmulDbiasArgs {
    Reals dbias;      // (OC) +=
    Floats partials;  // (splits, OC): written instead of dbias if splits > 1
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
    Reals outp;       // (num_rows, C)
    Reals qkv;        // (first + num_rows, 3 C)
    int first, num_rows, C, NH;
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
    Reals logits;         // (num_rows, Vp), overwritten by their gradients
    Floats losses;        // (num_rows)
    Ints targets;         // (num_rows)
    float dloss;
    int num_rows, V, Vp;
    int write_gradients;  // 0: keep the logits
};

struct SumLossesArgs {
    Floats total;   // (1) +=
    Floats losses;  // (n)
    int n;
    float scale;
};

struct GlobalNormArgs {
    Floats partials;  // (chunks): sum of squares of each chunk
    Reals grads;      // (n)
    uint64_t n;
};

struct GlobalNormFinishArgs {
    Floats norm_and_scale;  // (2)
    Floats partials;        // (n)
    Floats loss;            // (1), or null
    int n;
    float max_norm, unscale;
};

struct AdamWArgs {
    Reals params;           // (n)
    Floats master;          // (n), or null
    Floats m, v;            // (n)
    Reals grads;            // (n)
    AdamWSteps step;        // (1)
    Floats norm_and_scale;  // (2), or null
    uint64_t n, first;      // number of elements, index of the first one in its tensor
    float weight_decay;
};

struct EncoderForwardArgs {
    Reals outp;      // (num_rows, C)
    Ints inp;        // (num_rows)
    Reals wte, wpe;  // (Vp, C), (T, C)
    int num_rows, T, C;
};

struct EncoderForwardUpdatedArgs {
    Reals outp;             // (num_rows, C)
    Ints inp;               // (num_rows)
    Reals wte, wpe;         // (Vp, C), (T, C)
    Floats master, m, v;    // (Vp, C); master may be null
    Reals grads;            // (Vp, C)
    AdamWSteps step;        // (1)
    Floats norm_and_scale;  // (2), or null
    int num_rows, T, C;
    float weight_decay;
};

struct EncoderBackwardArgs {
    Reals dwte, dwpe;  // (Vp, C), (T, C)
    Reals dout;        // (B, T, C)
    Ints buckets;      // laid out by build_encoder_buckets() of llmc/layers/encoder.h
    int B, T, C;
    int grid_buckets;  // buckets that the grid covers at once: the stride of its loop over all of them
};
const int LONG_BUCKET = 32;  // positions; encoder_backward2 assigns whole workgroups to longer buckets

struct LayernormBackwardArgs {
    Reals dinp, dweight, dbias;  // (N, C), (C), (C)
    Floats scratch;              // (teams, 2, C)
    Reals added;                 // (N, C): added to dinp, and may be dinp itself; or null
    Reals dout, inp, weight;     // (N, C), (N, C), (C)
    Floats partials;             // (splits, N, C): split-K partial sums, read instead of dout if splits > 1
    Floats mean, rstd;           // (N)
    int N, C;
    int teams;  // number of workgroups, which share the rows
};

struct GeluForwardArgs {
    Reals outp, inp;  // (n)
    uint64_t n;
};

struct GeluBackwardArgs {
    Reals dinp, inp, dout;  // (n)
    uint64_t n;
};

struct GradientSumArgs {
    Reals outp;           // (n)
    Reals inp;            // (count, stride), of which the first n of each row are read, except row own_index
    Reals own;            // (n) takes the place of that row
    uint64_t n, stride;
    int count, own_index;
};

struct ResidualForwardArgs {
    Reals outp, inp1, inp2;  // (n)
    uint64_t n;
};

struct FusedResidualLayernormForwardArgs {
    Reals residual, normed;  // (N, C)
    Floats mean, rstd;       // (N)
    Reals inp1, inp2;        // (N, C)
    Floats partials;         // (splits, N, C): split-K partial sums, read instead of inp2 if splits > 1
    Reals product_bias;      // (C): added to the reduced partials; or null
    Reals weight, bias;      // (C)
    int N, C;
};

#endif
