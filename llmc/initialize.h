// GPT-2's initial weights, the same numbers as llm.c's and as PyTorch's for the same seed.
#pragma once
#include <cstdint>

#include "llmc/model_config.h"

// Matrices and embeddings N(0, 0.02), the two projections into the residual stream N(0, 0.02 / sqrt(2 L)),
// layer norm weights 1, biases and the padding rows of wte 0. Drawn from one generator in the order in which
// PyTorch creates the modules: wte (V rows), wpe, then for each layer qkvw, attprojw, fcw, fcprojw. Every
// element of every tensor is written once, through `write`.
void initialize_parameters(const ModelConfig& config, uint64_t seed, const WriteTensor& write);

// The same into host memory: tensors[i] holds parameter_size(config, i) elements.
void initialize_parameters(const ModelConfig& config, uint64_t seed,
                           float* const tensors[NUM_PARAMETER_TENSORS]);
