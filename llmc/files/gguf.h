// GPT-2 models with their tokenizer in a GGUF file, which llama.cpp, Ollama and LM Studio read. The format,
// version 3, is described in https://github.com/ggml-org/ggml/blob/master/docs/gguf.md: the metadata, then a
// list of tensors, then their values, each tensor at a multiple of 32 bytes. Names of metadata and tensors
// are llama.cpp's for the architecture "gpt2". Linear weights are (out, in), as in memory here.
#pragma once
#include <string>

#include "llmc/files/stored_type.h"
#include "llmc/model/model_config.h"
#include "llmc/text/tokenizer.h"

struct GgufModel {
    const ModelConfig& config;
    const ReadTensor& read;
    Tokenizer&
        tokenizer;     // if its vocabulary is smaller than the model's, the other rows of wte are left out
    std::string name;  // that programs show
};

// Writes the file. Matrices have the type; LayerNorm, biases and positions are fp32, as llama.cpp expects
// them. Matrices whose rows are no multiple of 32 values are fp16 instead of q8_0. Returns how many those
// are. Error if the tokenizer treats spaces in a way that llama.cpp does not.
int write_gguf(const std::string& path, const GgufModel& model, StoredType type);

// Whether the file begins as one that write_gguf() wrote.
bool is_gpt2_gguf(const std::string& path);
