// The layers of the model by name, for options that single one out. adamw is the optimizer, whichever it is.
#pragma once
#include <optional>
#include <string>

enum class Layer {
    encoder,
    layernorm,
    matmul,
    attention,
    dropout,
    residual,
    gelu,
    classifier,
    global_norm,
    adamw
};

inline const char* const LAYER_NAMES[] = {"encoder",  "layernorm", "matmul",     "attention",   "dropout",
                                          "residual", "gelu",      "classifier", "global_norm", "adamw"};

// None if no layer has this name.
inline std::optional<Layer> layer_from_name(const std::string& name) {
    int i = 0;
    for (const char* known : LAYER_NAMES) {
        if (name == known) return Layer(i);
        i++;
    }
    return std::nullopt;
}

// "encoder, layernorm, ..."
inline std::string layer_names() {
    std::string names;
    for (const char* name : LAYER_NAMES) names += (names.empty() ? "" : ", ") + std::string(name);
    return names;
}
