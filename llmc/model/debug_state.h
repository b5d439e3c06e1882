// Reference data that test_gpt2 checks a model against: llm.c's debug state, which is one batch with its
// logits, loss and gradients, and a text file with the losses of some training steps. dev/make_reference.py
// writes both.
#pragma once
#include <string>
#include <vector>

#include "llmc/model/model_config.h"

struct DebugState {
    int B = 0, T = 0;
    std::vector<int> inputs, targets;  // (B,T)
    std::vector<float> logits;         // (B,T,V), without padding
    float loss = 0;
    std::vector<float> grads;  // all parameters in model order
};

// Error if the file is not a debug state of version 2 made with this model.
DebugState read_debug_state(const std::string& path, const ModelConfig& config);

// Reads the last numbers of lines "step float32-loss float64-loss", with steps from 0 on. '#' begins a
// comment. Error if there is any other line, or no line at all.
std::vector<double> read_losses(const std::string& path);
