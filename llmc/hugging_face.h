// GPT-2 models as Hugging Face keeps them: model.safetensors with config.json beside it. Linear weights lie
// there as (in, out), here as (out, in); the vocabulary has no padding; the head's weights are the token
// embedding's.
#pragma once
#include <string>

#include "llmc/model_config.h"

// The shape of the model, from the tensors; the number of heads from config.json in the same folder or, where
// there is none, one for each 64 channels, as in all of GPT-2's sizes. Names may begin with "transformer.".
// Error where a tensor is missing, unknown, or of another shape or type, or where config.json asks for
// anything that GPT-2 does not do (another activation, untied embeddings, ...).
ModelConfig read_hugging_face_header(const std::string& path);

// Hands all tensors to `write`, as floats; the files are checked first as above.
void read_hugging_face(const std::string& path, const WriteTensor& write);

// Writes dir/model.safetensors (fp32, or bf16 rounded to nearest) and dir/config.json; makes dir.
void write_hugging_face(const std::string& dir, const ModelConfig& config, const ReadTensor& read,
                        bool in_bf16 = false);
