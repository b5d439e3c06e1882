// What a model is checked against (test_gpt2): llm.c's debug state, one batch with its logits, loss and
// gradients, and a text of the losses of some training steps. dev/make_reference.py writes both.
#pragma once
#include <string>
#include <vector>

#include "llmc/model_config.h"

struct DebugState {
    int B = 0, T = 0;
    std::vector<int> inputs, targets;  // (B,T)
    std::vector<float> logits;         // (B,T,V), without padding
    float loss = 0;
    std::vector<float> grads;  // all parameters in model order
};

// Throws Error where the file is not a debug state of version 2 that was made with this model.
DebugState read_debug_state(const std::string& path, const ModelConfig& config);

// The last numbers of lines "step float32-loss float64-loss", steps from 0 on; '#' begins a comment. Throws
// Error at another line, and where there is none.
std::vector<double> read_losses(const std::string& path);
