// GPT-2 models in Hugging Face's format: model.safetensors with config.json beside it. Linear weights are
// stored as (in, out) there and as (out, in) here. The vocabulary is not padded. The language-model head
// shares the token embedding's weights.
#pragma once
#include <string>

#include "llmc/files/stored_type.h"
#include "llmc/model/model_config.h"

// Reads the model's shape from its tensors, and the number of heads from config.json in the same folder, of
// which n_head is enough. `path` is model.safetensors, or the index of a model in several files. Tensor names
// may begin with "transformer.". Error if a tensor is missing, unknown, or of another shape or type, or if
// config.json asks for something that GPT-2 does not do (another activation, untied embeddings, ...).
ModelConfig read_hugging_face_header(const std::string& path);

// Checks the files as above, then passes all tensors to `write` as floats.
void read_hugging_face(const std::string& path, const WriteTensor& write);

// What config.json next to the model says of the documents of its training, as --split-documents does; "":
// nothing. Other programs ignore it.
std::string split_of_hugging_face(const std::string& path);

// Writes dir/model.safetensors, dir/generation_config.json and last dir/config.json. The JSON files name the
// token that ends a text (-1: the last one), and what `roles` say, the tokenizer's (text/tokenizer_roles.h);
// `split`: what split_of_hugging_face() returns. The type is any but q8_0. Creates dir.
void write_hugging_face(const std::string& dir, const ModelConfig& config, const ReadTensor& read,
                        StoredType type = StoredType::fp32, int end_of_text = -1,
                        const std::string& roles = "", const std::string& split = "");
