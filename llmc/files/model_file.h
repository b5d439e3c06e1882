// Models from files of either format: llm.c's checkpoints (*.bin) and Hugging Face's (*.safetensors).
#pragma once
#include <string>

#include "llmc/model/model_config.h"

// Whether the name is that of a file: it ends in .bin or .safetensors. Otherwise it is a descriptor.
bool is_model_file(const std::string& name);

// Call read_model_header() and read_model(), or read_hugging_face_header() and read_hugging_face().
ModelConfig read_model_file_header(const std::string& path);
void read_model_file(const std::string& path, const WriteTensor& write);
