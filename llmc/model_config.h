// The shape of a GPT-2 model, the descriptors that name one ("d12"), and its 16 parameter tensors: their
// order, names and sizes are llm.c's, in memory as in its checkpoint files.
#pragma once
#include <cstddef>
#include <functional>
#include <string>

struct ModelConfig {
    int max_seq_len;        // longest sequence, maxT
    int vocab_size;         // V
    int padded_vocab_size;  // Vp >= V; rows V..Vp-1 of wte are zero
    int num_layers;         // L
    int num_heads;          // NH
    int channels;           // C, a multiple of NH
};

enum ParameterTensor {
    WTE,       // (Vp, C)  token embedding, also the weights of the last linear layer
    WPE,       // (maxT, C)
    LN1W,      // (L, C)
    LN1B,      // (L, C)
    QKVW,      // (L, 3C, C)  linear weights are (out, in)
    QKVB,      // (L, 3C)
    ATTPROJW,  // (L, C, C)
    ATTPROJB,  // (L, C)
    LN2W,      // (L, C)
    LN2B,      // (L, C)
    FCW,       // (L, 4C, C)
    FCB,       // (L, 4C)
    FCPROJW,   // (L, C, 4C)
    FCPROJB,   // (L, C)
    LNFW,      // (C)
    LNFB,      // (C)
    NUM_PARAMETER_TENSORS
};

struct ParameterInfo {
    const char* name;   // llm.c's short name
    bool per_layer;     // the first dimension is L
    bool weight_decay;  // the embeddings and the matrices, llm.c's rule
};
extern const ParameterInfo parameter_info[NUM_PARAMETER_TENSORS];

// Where tensor values go (model loading, initialization) and where they come from (saving), in pieces of at
// most 16 MiB, so that either side may be memory that the host cannot touch. offset and count are in
// elements.
using WriteTensor = std::function<void(int tensor, size_t offset, const float* values, size_t count)>;
using ReadTensor = std::function<void(int tensor, size_t offset, float* values, size_t count)>;
constexpr size_t tensor_chunk = size_t(4) << 20;  // elements

// The model that a descriptor names: llm.c's dN = gpt2:dN (max_seq_len 1024) and gpt3:cN (2048), both with
// GPT-2's vocabulary of 50257, or custom:layers=4,heads=4,channels=128,max_seq_len=256[,vocab=257]. Error on
// anything else; it lists what is accepted.
ModelConfig parse_descriptor(const std::string& text);

// Sets V, and Vp to the next multiple of 128 (llm.c's padding).
void set_vocab_size(ModelConfig& config, int vocab_size);

// Error, beginning with `where`, unless the shape is one that the trainer can run: all sizes positive and
// within bounds that keep every later product inside 63 bits, channels a multiple of heads, Vp >= V.
void validate(const ModelConfig& config, const std::string& where);

// Elements of a tensor; of one layer's part of it (the same where the tensor is not per layer); of all
// tensors.
size_t parameter_size(const ModelConfig& config, int tensor);
size_t parameter_layer_size(const ModelConfig& config, int tensor);
size_t num_parameters(const ModelConfig& config);
