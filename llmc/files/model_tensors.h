// The tensors of a model as files of other programs have them: one for each layer, and without padding.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/files/stored_type.h"
#include "llmc/model/model_config.h"

struct ModelTensor {
    int tensor;                   // of ParameterTensor
    std::string name;             // in the file
    std::vector<uint64_t> shape;  // as in memory: the weights of a linear layer are (out, in)
    size_t offset, elements;      // of its values in the parameter tensor

    bool is_linear() const { return shape.size() == 2 && tensor != WTE && tensor != WPE; }
};

// All tensors, layer by layer. names: of the parameter tensors; those of a layer get a prefix, such as "h.3."
// for layer 3 and "h.".
std::vector<ModelTensor> list_tensors(const ModelConfig& config, const char* const* names,
                                      const std::string& layer_prefix);

// (rows, columns) as (columns, rows).
std::vector<float> transpose(const std::vector<float>& from, size_t rows, size_t columns);

// Writes the values, those of linear layers as (in, out) if asked for. Errors as of write_values().
void write_tensor(FileWriter& file, const ReadTensor& read, const ModelTensor& t, StoredType type,
                  bool transposes_linear);
