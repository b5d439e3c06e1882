// What programs that run a trained model have in common: its file, its tokenizer, the device, the precision.
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "llmc/gpt2.h"
#include "llmc/initialize.h"
#include "llmc/model_file.h"
#include "llmc/tokenizer.h"

struct ModelOptions {
    std::string model, tokenizer, device = "auto", precision = "fp32";
};

// -e, --tokenizer, --device and --precision.
void add_model_options(CLI::App& app, ModelOptions& options);

// The shape of options.model; a descriptor stands for a new model of random weights, to measure with.
ModelConfig find_config(const ModelOptions& options);

// options.tokenizer; else plain bytes for a vocabulary of 257, or the usual_tokenizer(), also looked for in the
// model's folder. Error where there is none, or where it does not belong to the model.
Tokenizer find_tokenizer(const ModelOptions& options, const ModelConfig& config);

// Null: the CPU. Says on standard error which device it is and why.
std::unique_ptr<LaunchPad> open_device(const ModelOptions& options);

// The parameters, from the file; no memory for activations yet.
template <class Real>
std::unique_ptr<GPT2<Real>> load_model(const ModelOptions& options, const ModelConfig& config,
                                       LaunchPad* pad) {
    auto g = std::make_unique<GPT2<Real>>(config, pad, false);
    if (is_model_file(options.model))
        read_model_file(options.model, parameter_writer(*g));
    else
        initialize_parameters(config, 42, parameter_writer(*g));
    return g;
}

// Calls work with a value of the storage type that options.precision names.
template <class Work>
void with_precision(const ModelOptions& options, Work work) {
    if (options.precision == "bf16") return work(bf16());
    if (options.precision == "fp16") return work(fp16());
    work(float());
}
