// Chooses the reader by the name of the file: see model_file.h.
#include "llmc/files/model_file.h"

#include "llmc/files/checkpoint.h"
#include "llmc/files/hugging_face.h"

static bool is_safetensors(const std::string& name) { return name.ends_with(".safetensors"); }

bool is_model_file(const std::string& name) { return name.ends_with(".bin") || is_safetensors(name); }

ModelConfig read_model_file_header(const std::string& path) {
    return is_safetensors(path) ? read_hugging_face_header(path) : read_model_header(path);
}

void read_model_file(const std::string& path, const WriteTensor& write) {
    is_safetensors(path) ? read_hugging_face(path, write) : read_model(path, write);
}
