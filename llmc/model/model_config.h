// The shape of a GPT-2 model, its descriptors ("d12"), and its 16 parameter tensors. Their order, names and
// sizes are llm.c's, in memory and in checkpoint files.
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

    bool operator==(const ModelConfig&) const = default;
};

// A dimension of a tensor: a multiple of one of the sizes above, or 1.
struct Dimension {
    int factor = 1;
    int ModelConfig::*of = nullptr;
    size_t in(const ModelConfig& config) const { return size_t(factor) * size_t(of ? config.*of : 1); }
};

// Their shapes are in parameter_info.
enum ParameterTensor {
    WTE,  // token embedding, also the weights of the language-model head
    WPE,
    LN1W,
    LN1B,
    QKVW,
    QKVB,
    ATTPROJW,
    ATTPROJB,
    LN2W,
    LN2B,
    FCW,
    FCB,
    FCPROJW,
    FCPROJB,
    LNFW,
    LNFB,
    NUM_PARAMETER_TENSORS
};

struct ParameterInfo {
    const char* name;                           // llm.c's short name
    bool per_layer;                             // the first dimension is L, before these
    Dimension rows, columns;                    // linear weights are (out, in); a vector has one row
    bool is_matrix() const { return rows.of; }  // embeddings and matrices decay, as in llm.c
};
extern const ParameterInfo parameter_info[NUM_PARAMETER_TENSORS];

// Receives tensor values (when loading or initializing) or supplies them (when saving), in chunks of at most
// 16 MiB, so either side may be memory that the host cannot access. offset and count are in elements.
using WriteTensor = std::function<void(int tensor, size_t offset, const float* values, size_t count)>;
using ReadTensor = std::function<void(int tensor, size_t offset, float* values, size_t count)>;
constexpr size_t tensor_chunk = size_t(4) << 20;  // elements
// Passes the values of a tensor from `offset` on to `write`, in chunks.
void write_in_chunks(const WriteTensor& write, int tensor, size_t offset, const float* values, size_t count);

// Parses a descriptor: llm.c's dN or gpt2:dN (max_seq_len 1024) and gpt3:cN (2048), both with GPT-2's
// vocabulary of 50257, or custom:layers=4,heads=4,channels=128[,max_seq_len=256][,vocab=257], which has
// GPT-2's otherwise. Error on anything else; the message lists what is accepted.
ModelConfig parse_descriptor(const std::string& text);

// Sets V, and Vp to the next multiple of 128 (llm.c's padding).
void set_vocab_size(ModelConfig& config, int vocab_size);

// Error, beginning with `where`, unless the trainer can run the shape: all sizes are positive and within
// bounds that keep products of sizes below 2^63, channels is a multiple of heads, a head has at most 128
// channels, and Vp >= V.
void validate(const ModelConfig& config, const std::string& where);

// Number of elements of a tensor, of one layer's part of it (the whole tensor if it is not per layer), and of
// all tensors.
size_t parameter_size(const ModelConfig& config, int tensor);
size_t parameter_layer_size(const ModelConfig& config, int tensor);
size_t num_parameters(const ModelConfig& config);
