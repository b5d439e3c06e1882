// A small model for tests of generating text.
#pragma once
#include "llmc/model/gpt2.h"
#include "llmc/model/initialize.h"
#include "tests/layer_test.h"

// A model of random weights that all matter: initialize_parameters() leaves biases 0.
template <class Real>
std::unique_ptr<GPT2<Real>> make_model(const ModelConfig& config, LaunchPad* pad) {
    auto g = std::make_unique<GPT2<Real>>(config, pad);
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) {
        const bool gain = i == LN1W || i == LN2W || i == LNFW;
        std::vector<float> values =
            random_values<Real>(parameter_size(config, i), 100 + i, gain ? 0.3f : 0.2f);
        if (gain)
            for (float& v : values) v += 1;
        parameter_writer (*g)(i, 0, values.data(), values.size());
    }
    return g;
}

// Sizes that fill no tile.
static const ModelConfig odd = {37, 53, 64, 3, 3, 48};
