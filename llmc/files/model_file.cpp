#include "llmc/files/model_file.h"

#include <cmath>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/utf8.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/hugging_face.h"

static bool is_safetensors(const std::string& name) {
    const std::string folded = fold_case(name);
    return folded.ends_with(".safetensors") || folded.ends_with(".safetensors.index.json");
}

// PyTorch's files are zip archives or, of old versions, pickles: both can hold code.
void refuse_other_format(const std::string& path) {
    const std::string bytes = first_bytes(path, 4);
    if (bytes.starts_with("PK\3\4") || bytes.starts_with("\x80\2"))
        fail(
            "%s is a file of PyTorch: convert it to model.safetensors; docs/files.md says how (PyTorch's "
            "files)",
            path.c_str());
    if (bytes == "GGUF")
        fail(
            "%s is a GGUF file, which the programs write and do not read: name the model that it was made of",
            path.c_str());
}

bool is_model_file(const std::string& name) {
    return fold_case(name).ends_with(".bin") || is_safetensors(name);
}

ModelConfig read_model_file_header(const std::string& path) {
    if (is_safetensors(path)) return read_hugging_face_header(path);
    refuse_other_format(path);
    return read_model_header(path);
}

std::string find_not_finite(const TensorPart& part, const ModelConfig& config, const char* values_are) {
    size_t i = 0;
    while (i < part.count && std::isfinite(part.values[i])) i++;
    if (i == part.count) return "";
    const ParameterInfo& tensor = parameter_info[part.tensor];
    const size_t element = part.offset + i, layer_size = parameter_layer_size(config, part.tensor);
    const std::string layer =
        tensor.per_layer ? format_string(" of layer %zu", element / layer_size) : std::string();
    return format_string("%s %s%s has the value %f at element %zu", values_are, tensor.name, layer.c_str(),
                         double(part.values[i]), element % layer_size);
}

void check_finite(const TensorPart& part, const std::string& path, const ModelConfig& config,
                  const char* values_are) {
    const std::string found = find_not_finite(part, config, values_are);
    if (!found.empty())
        fail("%s: %s: the model has diverged, or the file is damaged; use an earlier one", path.c_str(),
             found.c_str());
}

void read_model_file(const std::string& path, const WriteTensor& write) {
    const ModelConfig config = read_model_file_header(path);
    const WriteTensor checked = [&](int tensor, size_t offset, const float* values, size_t count) {
        check_finite({tensor, offset, values, count}, path, config);
        write(tensor, offset, values, count);
    };
    is_safetensors(path) ? read_hugging_face(path, checked) : read_model(path, checked);
}
