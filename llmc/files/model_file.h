// Models from files of either format: llm.c's checkpoints (*.bin) and Hugging Face's (*.safetensors).
#pragma once
#include <string>

#include "llmc/model/model_config.h"

// Whether the name is a file's: it ends in .bin, .safetensors or .safetensors.index.json. Otherwise it is a
// descriptor.
bool is_model_file(const std::string& name);

// Error if the file is PyTorch's, such as pytorch_model.bin or ckpt.pt, or GGUF. The message says what to do.
void refuse_other_format(const std::string& path);

// Call read_model_header() and read_model(), or read_hugging_face_header() and read_hugging_face().
// read_model_file() throws Error, naming the tensor, if a value is NaN or infinite.
ModelConfig read_model_file_header(const std::string& path);
void read_model_file(const std::string& path, const WriteTensor& write);

// Values of a tensor as WriteTensor receives them.
struct TensorPart {
    int tensor;
    size_t offset;
    const float* values;
    size_t count;
};

// The first value that is NaN or infinite, as in "tensor wte has the value nan at element 5"; empty if there
// is none. `values_are` says what the values are of the tensor, such as "moment m of".
std::string find_not_finite(const TensorPart& part, const ModelConfig& config,
                            const char* values_are = "tensor");

// Throws Error, naming the file and the tensor, if a value is NaN or infinite.
void check_finite(const TensorPart& part, const std::string& path, const ModelConfig& config,
                  const char* values_are = "tensor");
