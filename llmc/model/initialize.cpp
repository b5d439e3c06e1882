// GPT-2's initial weights, drawn tensor by tensor from one PyTorch-compatible generator.
#include "llmc/model/initialize.h"

#include <cmath>
#include <vector>

#include "llmc/base/random.h"

static void write_constant(const WriteTensor& write, int tensor, size_t offset, size_t count, float value) {
    const std::vector<float> values(count, value);
    write_in_chunks(write, tensor, offset, values.data(), count);
}

void initialize_parameters(const ModelConfig& config, uint64_t seed, const WriteTensor& write) {
    Random random(seed);
    std::vector<float> values;  // a whole tensor, since normal_fill()'s last values depend on its length
    auto draw = [&](int tensor, size_t offset, size_t count, float std) {
        values.resize(count);
        normal_fill(values.data(), count, 0.0f, std, random);
        write_in_chunks(write, tensor, offset, values.data(), count);
    };
    size_t drawn = size_t(config.vocab_size) * config.channels;
    draw(WTE, 0, drawn, 0.02f);
    write_constant(write, WTE, drawn, parameter_size(config, WTE) - drawn, 0.0f);
    draw(WPE, 0, parameter_size(config, WPE), 0.02f);

    float residual_std = 0.02f * (1.0f / std::sqrt(2.0f * config.num_layers));
    for (int layer = 0; layer < config.num_layers; layer++) {
        for (int tensor : {QKVW, ATTPROJW, FCW, FCPROJW}) {
            size_t count = parameter_layer_size(config, tensor);
            bool into_residual = tensor == ATTPROJW || tensor == FCPROJW;
            draw(tensor, layer * count, count, into_residual ? residual_std : 0.02f);
        }
    }
    for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++) {
        if (parameter_info[tensor].is_matrix()) continue;  // the tensors drawn above are the ones that decay
        bool is_scale = tensor == LN1W || tensor == LN2W || tensor == LNFW;
        write_constant(write, tensor, 0, parameter_size(config, tensor), is_scale ? 1.0f : 0.0f);
    }
}
