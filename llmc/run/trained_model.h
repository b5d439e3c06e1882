// What the programs that run a trained model share: its file, tokenizer, device and precision.
#pragma once
#include <memory>
#include <string>

#include "llmc/base/precision.h"
#include "llmc/files/model_source.h"
#include "llmc/options/command_line.h"
#include "llmc/run/model_checkpoint.h"

struct ModelOptions {
    std::string model, tokenizer, device = "auto", precision = "fp32";
};

// Declares -e, --tokenizer, --device and --precision.
inline void add_model_options(CommandLine& line, ModelOptions& options) {
    line.add(
            "-e,--model layers n-layer n-head n-embd init-from checkpoint model-name model-path "
            "model-name-or-path",
            options.model,
            "model: a run's folder (its best checkpoint; FOLDER:last: its newest), an llm.c checkpoint "
            "(.bin), a Hugging Face folder or model.safetensors, or a descriptor such as d12 for random "
            "weights, to measure speed")
        .is(PathKind::model)
        .required();
    line.add("--tokenizer", options.tokenizer,
             "gpt2_tokenizer.bin or 'bytes' (default: the model's, as the files next to it say; else bytes "
             "for a vocabulary of 257, else gpt2_tokenizer.bin in this folder, the model's folder or "
             "data/starter)")
        .is(PathKind::tokenizer);
    line.add_device(options.device);
    line.add("--precision dtype fp16 bf16 amp", options.precision,
             "storage type of weights and activations: fp32, bf16 or fp16")
        .one_of(precision_names());
}

// A trained model that was found and verified, and its tokenizer; none if it is not to be found.
struct TrainedModel {
    ModelSource source;
    ModelConfig config = {};
    std::optional<Tokenizer> tokenizer = {};

    int positions() const { return trained_positions(source, config); }
};

inline TrainedModel open_model(const ModelOptions& options) {
    TrainedModel model = {.source = find_model(options.model)};
    model.config = read_shape(model.source);
    model.tokenizer =
        tokenizer_for(options.tokenizer, model.source, model.config.vocab_size, model.source.tokenizer);
    return model;
}

// The model with its parameters, without memory for activations. `use` counts what it will take besides, as
// in check_model_fits().
template <class Real>
std::unique_ptr<GPT2<Real>> load_model(TrainedModel& model, LaunchPad* pad,
                                       const std::function<void(GPT2<Real>&)>& use) {
    check_model_fits<Real>(model.source.name, model.config, pad, use);
    auto g = std::make_unique<GPT2<Real>>(model.config, pad);
    read_same_model(model.source, model.config, [&] {
        if (!model.source.chosen.empty()) print_line(stderr, "%s", model.source.chosen.c_str());
        load_parameters(*g, model.source.path, 42);
    });
    g->config.max_seq_len = model.positions();  // the other rows of wpe are not used
    return g;
}
