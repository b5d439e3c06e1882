// What the programs that run a trained model share: its file, tokenizer, device and precision. Included by
// the one file of each such program that declares options, since the parser's header takes long to compile.
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "llmc/base/precision.h"
#include "llmc/data/find_tokenizer.h"
#include "llmc/run/model_checkpoint.h"

struct ModelOptions {
    std::string model, tokenizer, device = "auto", precision = "fp32";
};

// Declares -e, --tokenizer, --device and --precision.
inline void add_model_options(CLI::App& app, ModelOptions& options) {
    app.add_option(
           "-e,--model", options.model,
           "model: an llm.c checkpoint (.bin), a Hugging Face model.safetensors, or a descriptor such as d12 "
           "for random weights, to measure speed")
        ->required();
    app.add_option(
        "--tokenizer", options.tokenizer,
        "gpt2_tokenizer.bin or 'bytes' (default: bytes for a vocabulary of 257, else gpt2_tokenizer.bin in "
        "this folder, the model's folder or data/starter)");
    app.add_option("--device", options.device,
                   "auto, cpu, gpu, a number from train_gpt2 --list-devices, or part of a name")
        ->capture_default_str();
    app.add_option("--precision", options.precision,
                   "storage type of weights and activations: fp32, bf16 or fp16")
        ->check(CLI::IsMember(precision_names()))
        ->capture_default_str();
}

// The shape of options.model.
inline ModelConfig find_config(const ModelOptions& options) {
    return is_model_file(options.model) ? read_model_file_header(options.model)
                                        : parse_descriptor(options.model);
}

// The tokenizer of options.tokenizer, else plain bytes for a vocabulary of 257, else gpt2_tokenizer.bin as
// find_tokenizer() finds it. None if there is no such file or it does not fit the model. Throws Error if a
// named tokenizer does not.
inline std::optional<Tokenizer> find_model_tokenizer(const ModelOptions& options, const ModelConfig& config) {
    const bool bytes = options.tokenizer.empty() && config.vocab_size == 257;
    std::optional<Tokenizer> tokenizer = find_tokenizer(bytes ? "bytes" : options.tokenizer, {options.model});
    match_tokenizer(tokenizer, options.tokenizer, config.vocab_size, options.model);
    return tokenizer;
}

// The model with its parameters, without memory for activations.
template <class Real>
std::unique_ptr<GPT2<Real>> load_model(const ModelOptions& options, const ModelConfig& config,
                                       LaunchPad* pad) {
    auto g = std::make_unique<GPT2<Real>>(config, pad, false);
    load_parameters(*g, options.model, 42);
    return g;
}
