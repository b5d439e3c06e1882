// GPT-2's initial weights: the weights of llm.c and PyTorch for the same seed.
#pragma once
#include <cstdint>

#include "llmc/model/model_config.h"

// Matrices and embeddings are N(0, 0.02), the two projections into the residual stream N(0, 0.02 / sqrt(2
// L)), LayerNorm weights 1, biases and the padding rows of wte 0. One generator draws them in the order in
// which PyTorch creates the modules: wte (V rows), wpe, then qkvw, attprojw, fcw, fcprojw of each layer.
// Every element of every tensor is passed to `write` once.
void initialize_parameters(const ModelConfig& config, uint64_t seed, const WriteTensor& write);
