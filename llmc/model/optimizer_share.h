// ZeRO stage 1: AdamW's state (moments and master weights), divided among the processes of a job.
#pragma once
#include <algorithm>
#include <vector>

#include "llmc/base/ceil_div.h"
#include "llmc/model/model_config.h"

// A range of a tensor.
struct TensorRange {
    int tensor;
    size_t first, count;
};

struct Range {
    size_t first, count;
};

// Part `index` of n elements that are divided into `parts`: equal parts, or, if they cannot be equal, parts
// that begin at multiples of 8 elements; the last ones are smaller or empty.
inline Range part_of(size_t n, int index, int parts) {
    const size_t size = n % parts ? ceil_div(n, 8 * size_t(parts)) * 8 : n / parts;
    const size_t first = std::min(n, index * size);
    return {first, std::min(n, first + size) - first};
}

// Part `index` of `count`. Of the embeddings and of the weights of each linear layer, a process holds one
// part. It holds all other tensors, the biases and LayerNorms, completely: they are a thousandth of the
// model.
struct OptimizerShare {
    int index = 0, count = 1;

    bool divides(int tensor) const { return count > 1 && parameter_info[tensor].weight_decay; }

    // Elements of a tensor that the share holds, and the index in the share's memory of one of them.
    size_t size(const ModelConfig& c, int tensor) const {
        const size_t n = parameter_layer_size(c, tensor), all = parameter_size(c, tensor);
        return divides(tensor) ? all / n * part_of(n, index, count).count : all;
    }
    size_t position(const ModelConfig& c, int tensor, size_t element) const {
        if (!divides(tensor)) return element;
        const size_t n = parameter_layer_size(c, tensor);
        const Range part = part_of(n, index, count);
        return element / n * part.count + element % n - part.first;
    }

    // The parts of a range that the share holds.
    std::vector<TensorRange> held(const ModelConfig& c, const TensorRange& range) const;
};

// The share's part of each layer of a tensor, whether the share divides that tensor in memory or not. Files
// of optimizer states hold these.
inline std::vector<TensorRange> parts_of_layers(const ModelConfig& c, int tensor,
                                                const OptimizerShare& share) {
    const size_t all = parameter_size(c, tensor);
    const size_t n = share.count > 1 ? parameter_layer_size(c, tensor) : all;
    const Range part = part_of(n, share.index, share.count);
    std::vector<TensorRange> parts;
    for (size_t layer = 0; layer < all && part.count; layer += n)
        parts.push_back({tensor, layer + part.first, part.count});
    return parts;
}

inline std::vector<TensorRange> OptimizerShare::held(const ModelConfig& c, const TensorRange& range) const {
    if (!divides(range.tensor)) return {range};
    std::vector<TensorRange> found;
    for (const TensorRange& part : parts_of_layers(c, range.tensor, *this)) {
        const size_t first = std::max(range.first, part.first);
        const size_t end = std::min(range.first + range.count, part.first + part.count);
        if (first < end) found.push_back({range.tensor, first, end - first});
    }
    return found;
}
