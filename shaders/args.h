// Kernel arguments, shared by C++ and GLSL and passed as push constants: at most 128 bytes each. The layout
// is the same on both sides, because 8-byte device addresses come first and 4-byte values last.
//
// Reals is an array of the storage type of parameters, activations and gradients. Every kernel is built for
// each storage type, with REAL_FP32, REAL_BF16 or REAL_FP16 defined. Floats is always fp32: statistics,
// losses, optimizer state. The comment of an address gives its shape, with B T C V Vp NH as in llm.c;
// num_rows is B T during training.
#ifndef ARGS_H
#define ARGS_H

// Read by the optimizer from memory, since it changes from step to step: see llmc/layers/adamw.h.
struct AdamWStep {
    float learning_rate, beta1, beta2, beta1_correction, beta2_correction, eps;
    uint32_t seed;  // of the stochastic rounding of 16-bit parameters
};
struct MuonStep {  // the same: see llmc/layers/muon.h
    float learning_rate, momentum;
    uint32_t seed;
};

#ifdef __cplusplus
#include <cstdint>
using Reals = uint64_t;
using Floats = uint64_t;
using Ints = uint64_t;
using Longs = uint64_t;
using AdamWSteps = uint64_t;
using MuonSteps = uint64_t;
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
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Longs { uint64_t x[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer AdamWSteps { AdamWStep x[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer MuonSteps { MuonStep x[]; };
#endif

struct PeakCopyArgs {
    Floats outp, inp;  // (4 n)
    int n;
};

struct SubgroupSizeArgs {
    Floats size;
};

struct MatrixLayoutArgs {
    Floats accumulators, operands;  // (invocations of a subgroup, components): row-major element indices
                                    // in the accumulator and in operand A
    Floats converted;  // (3, 2, 3): each value and its negative, as a fragment, a component and in a pair
    int components;
    float values[3];
};

// How a device converts fp32 to the type of operands, as far as it is known.
const int CONVERTS_SOMEHOW = 0, CONVERTS_TRUNCATING = 1, CONVERTS_TO_NEAREST = 2;

// Operand values of peak_matrix.
const int POWERS_OF_TWO = 0, SCATTERED_OPERANDS = 1, UNIFORM_OPERANDS = 2;

struct PeakFmaArgs {
    Floats outp;  // one value per invocation
    int iterations;
};

// rstd = 1 / sqrt(variance + this)
const float LAYERNORM_EPSILON = 1e-5f;

struct LayernormForwardArgs {
    Reals outp;          // (num_rows, C)
    Floats mean, rstd;   // (num_rows)
    Reals inp;           // (num_rows, C)
    Reals added, sum;    // (num_rows, C): sum = inp + added takes the place of inp; or null
    Reals weight, bias;  // (C)
    int num_rows, C;
};

// GEMMs without cooperative matrices: outp (M, N) = a b + bias, summed over K. Specialization constants say
// how the operands are laid out.
struct MatmulArgs {
    Reals outp;       // (M, N)
    Floats partials;  // (splits, M, N): written instead of outp if splits > 1
    Reals a, b;
    Reals bias;  // (N) or null
    int M, N, K;
    int splits;       // of K
    int k_per_split;  // the last split may have less
    int accumulate;   // 1: add to outp; 0: overwrite it
};

// Cooperative-matrix GEMMs (matmul5.glsl): outp (M, N) = a b, summed over K. The kernel's name says how
// the operands are laid out.
struct MatmulMatrixArgs {
    Reals outp;  // (M, N)
    Reals a, b;
    Reals bias;         // (N), used by some epilogues
    Reals other;        // (M, N): see the epilogue
    Floats partials;    // (splits, M, N): split-K partial sums
    int splits;         // splits of K; of a batch, its GEMMs
    int k_per_split;    // the last split may have less
    float alpha, beta;  // of EPILOGUE_COMBINE
};
// Reduces split-K partial sums and applies the epilogue.
struct MatmulReduceArgs {
    Reals outp, bias, other;  // as above
    Floats partials;          // (splits, n)
    uint64_t n;               // M N
    int splits;               // splits of K
};
const int EPILOGUE_NONE = 0;        // outp = a b
const int EPILOGUE_BIAS = 1;        // outp = a b + bias
const int EPILOGUE_GELU = 2;        // other = a b + bias, outp = GELU(other)
const int EPILOGUE_GELU_SLOPE = 3;  // outp = a b * GELU'(other)
const int EPILOGUE_ADD = 4;         // outp += a b
const int EPILOGUE_PARTIAL = 5;     // partials[split] = a b, summed over that split of K
const int EPILOGUE_COMBINE = 6;     // outp = alpha a b + beta other

// Packs a weight as operand B (K, N) of a GEMM: packed_weight.glsl.
struct PackWeightArgs {
    Reals outp, inp;
    int K, N;
};

struct MatmulDbiasArgs {
    Reals dbias;      // (OC) +=
    Floats partials;  // (splits, OC): written instead of dbias if splits > 1
    Reals dout;       // (num_rows, OC)
    int num_rows, OC;
    int splits, rows_per_split;  // of the rows; the last split may have fewer
};

struct MatmulSumArgs {
    Reals outp;       // (n)
    Floats partials;  // (splits, n)
    int n, splits;
    int accumulate;  // as above
};

struct AttentionForwardArgs {
    Reals outp;  // (B, T, C)
    Floats lse;  // (B, NH, T)
    Reals qkv;   // (B, T, 3 C)
    int B, T, C, NH;
};

// Generating text: one new row of each of B texts, at the position that memory names.
struct DecodeLinearArgs {
    Reals outp;            // row positions[b] of text b
    Floats stream;         // (B, C) normalized instead of inp, or (B, OC) added to: see the kernel
    Reals inp;             // (B, C) or null
    Reals gain, shift;     // (C) of the LayerNorm, or null
    Reals weight, bias;    // (OC, C), (OC) or null
    Ints positions;        // (B), or null: row 0
    uint64_t text_stride;  // elements from one text of outp to the next
    int num_texts, OC;
    uint32_t groups;  // workgroups of a text, which take turns at the rows
};
const int DECODE_STORE = 0;  // outp = result
const int DECODE_GELU = 1;   // outp = GELU(result)
const int DECODE_ADD = 2;    // stream += result

struct DecodeAttentionArgs {
    Reals outp;      // (B, C)
    Reals cache;     // (B, T, 3 C)
    Ints positions;  // (B): of the newest row
    int num_texts, T, C, NH;
};

struct SampleTokenArgs {
    Reals logits;         // (B, Vp)
    Ints tokens;          // (B, T + 1)
    Ints positions;       // (B): of the newest row, advanced by one
    Ints seen;            // (B, ceil(V / 32)) bits of the tokens in a text, or null: no penalty
    Ints weights;         // (B, V) scratch
    Longs random_states;  // (B) states of the random numbers
    Floats stream;        // (B, C): receives the new token's embedding
    Reals wte, wpe;       // (Vp, C), (T, C)
    int num_texts, V, Vp, C, T;
    float scale;  // log2(e) / temperature; 0: the likeliest token
    float penalty, reciprocal;
    uint32_t top_k, top_p, min_weight;  // see llmc/layers/sampling_numbers.h
};

struct AttentionBackwardArgs {
    Reals dqkv;        // (B, T, 3 C)
    Floats delta;      // (B, NH, T)
    Reals dout, outp;  // (B, T, C)
    Floats lse;        // (B, NH, T)
    Reals qkv;         // (B, T, 3 C)
    int B, T, C, NH;
};

struct FusedClassifierArgs {
    Reals logits;   // (num_rows, Vp), overwritten by their gradients
    Floats losses;  // (num_rows)
    Ints targets;   // (num_rows)
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
    Floats loss, weight;    // (1), or null
    int n;
    float max_norm, unscale;
};

// Of a training step; kernels write the fields one by one.
struct StepStats {
    float loss;            // mean over the step's tokens
    float gradient_norm;   // before clipping
    float gradient_scale;  // factor that clips and unscales the gradients; 0: the update is skipped
    float unused;          // to 16 bytes
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

// Muon: a matrix of n elements. X is what is orthogonalized, of the type MUON_TYPE.
struct MuonMomentumArgs {
    Floats x;               // (n), which muon_normalize1 writes
    Floats m;               // (n), which muon_momentum1 updates
    Floats partials;        // (ceil(n / MUON_CHUNK)): sums of squares
    Reals grads;            // (n)
    MuonSteps step;         // (1)
    Floats norm_and_scale;  // (2), or null
    uint64_t n;
    float min_norm;
};
struct MuonPolynomialArgs {
    Floats square, gram;  // (n, n)
    int n;
    float a, b, c;
};
struct MuonWeightsArgs {
    Reals params;           // (n)
    Floats master;          // (n), or null
    Floats x;               // (n)
    MuonSteps step;         // (1)
    Floats norm_and_scale;  // (2), or null
    uint64_t n, first;      // number of elements, index of the first one in its tensor
    float weight_decay, rate_factor;
};
const int MUON_CHUNK = 4096;  // elements that a workgroup takes
const int MUON_FP32 = 0, MUON_BF16 = 1, MUON_FP16 = 2;

struct EncoderForwardArgs {
    Reals outp;      // (num_rows, C)
    Ints inp;        // (num_rows)
    Reals wte, wpe;  // (Vp, C), (T, C)
    int num_rows, T, C;
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
    Reals dinp, dweight, dbias;  // (num_rows, C), (C), (C)
    Floats scratch;              // (workgroups, 2, C)
    Reals added;                 // (num_rows, C): added to dinp, and may be dinp itself; or null
    Reals dout, inp, weight;     // (num_rows, C), (num_rows, C), (C)
    Floats mean, rstd;           // (num_rows)
    int num_rows, C;
    int workgroups;  // which share the rows
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
    Reals outp;  // (n)
    Reals copy;  // (n): also written; or null
    Reals inp;   // (count, stride), of which the first n of each row are read, except row own_index
    Reals own;   // (n) takes the place of that row
    uint64_t n, stride;
    int count, own_index;
    uint32_t groups;  // workgroups, which take turns at the elements
};

struct DropoutArgs {
    Reals outp, inp;  // (n)
    Ints key;         // (2)
    uint64_t n;
    uint32_t site, threshold;
    float scale;
};

#endif
