#include "llmc/files/model_tensors.h"

#include <algorithm>

static std::vector<uint64_t> shape_of(const ModelConfig& config, int tensor) {
    const ParameterInfo& info = parameter_info[tensor];
    const uint64_t rows = tensor == WTE ? config.vocab_size : info.rows.in(config);
    if (!info.is_matrix()) return {info.columns.in(config)};
    return {rows, info.columns.in(config)};
}

std::vector<ModelTensor> list_tensors(const ModelConfig& config, const char* const* names,
                                      const std::string& layer_prefix) {
    std::vector<ModelTensor> all;
    const auto add = [&](int tensor, int layer, const std::string& prefix) {
        const std::vector<uint64_t> shape = shape_of(config, tensor);
        all.push_back({.tensor = tensor,
                       .name = prefix + names[tensor],
                       .shape = shape,
                       .offset = layer * parameter_layer_size(config, tensor),
                       .elements = shape[0] * (shape.size() > 1 ? shape[1] : 1)});
    };
    for (int tensor : {WTE, WPE}) add(tensor, 0, "");
    for (int layer = 0; layer < config.num_layers; layer++)
        for (int tensor = LN1W; tensor <= FCPROJB; tensor++)
            add(tensor, layer, layer_prefix + std::to_string(layer) + ".");
    for (int tensor : {LNFW, LNFB}) add(tensor, 0, "");
    return all;
}

// In blocks that fit in cache.
std::vector<float> transpose(const std::vector<float>& from, size_t rows, size_t columns) {
    std::vector<float> to(from.size());
    const size_t block = 32;
#pragma omp parallel for
    for (size_t r0 = 0; r0 < rows; r0 += block)
        for (size_t c0 = 0; c0 < columns; c0 += block)
            for (size_t r = r0; r < std::min(rows, r0 + block); r++)
                for (size_t c = c0; c < std::min(columns, c0 + block); c++)
                    to[c * rows + r] = from[r * columns + c];
    return to;
}

// In chunks, or as a whole if it is transposed.
void write_tensor(FileWriter& file, const ReadTensor& read, const ModelTensor& t, StoredType type,
                  bool transposes_linear) {
    const WriteBytes write = [&](const void* bytes, size_t count) { file.write(bytes, count); };
    const bool whole = transposes_linear && t.is_linear();
    std::vector<float> values(whole ? t.elements : std::min(t.elements, tensor_chunk));
    for (size_t at = 0; at < t.elements; at += values.size()) {
        values.resize(std::min(values.size(), t.elements - at));
        for (size_t i = 0; i < values.size(); i += tensor_chunk)
            read(t.tensor, t.offset + at + i, values.data() + i, std::min(tensor_chunk, values.size() - i));
        if (whole) values = transpose(values, t.shape[0], t.shape[1]);
        write_values(write, type, values.data(), values.size(), t.name);
    }
}
