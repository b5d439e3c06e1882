// Opening a trained model: see trained_model.h.
#include "llmc/trained_model.h"

#include <omp.h>

#include <cstdio>
#include <filesystem>

void add_model_options(CLI::App& app, ModelOptions& options) {
    app.add_option(
           "-e,--model", options.model,
           "model: an llm.c checkpoint (.bin), Hugging Face's model.safetensors, or a descriptor (d12): "
           "random weights, to measure")
        ->required();
    app.add_option("--tokenizer", options.tokenizer,
                   "gpt2_tokenizer.bin or 'bytes' (default: bytes for a vocabulary of 257, else "
                   "gpt2_tokenizer.bin in this folder, the model's or data/starter)");
    app.add_option("--device", options.device,
                   "auto, cpu, gpu, a number of train_gpt2 --list-devices, or part of a name")
        ->capture_default_str();
    app.add_option("--precision", options.precision,
                   "what weights and activations are kept in: fp32, bf16 or fp16")
        ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
        ->capture_default_str();
}

ModelConfig find_config(const ModelOptions& options) {
    return is_model_file(options.model) ? read_model_file_header(options.model)
                                        : parse_descriptor(options.model);
}

static std::string find_tokenizer_file(const ModelOptions& options, const ModelConfig& config) {
    if (!options.tokenizer.empty()) return options.tokenizer;
    if (config.vocab_size == 257) return "bytes";
    const std::string usual = usual_tokenizer({std::filesystem::path(options.model).parent_path()});
    if (!usual.empty()) return usual;
    fail(
        "no tokenizer for %s: give gpt2_tokenizer.bin with --tokenizer (prepare_data --make-tokenizer makes "
        "it)",
        options.model.c_str());
}

Tokenizer find_tokenizer(const ModelOptions& options, const ModelConfig& config) {
    const std::string path = find_tokenizer_file(options, config);
    Tokenizer tokenizer = open_tokenizer(path);
    if (tokenizer.vocab_size() != config.vocab_size)
        fail(
            "the tokenizer %s has %d tokens, the model %s %d: give with --tokenizer the one that its data "
            "was made "
            "with",
            path.c_str(), tokenizer.vocab_size(), options.model.c_str(), config.vocab_size);
    return tokenizer;
}

std::unique_ptr<LaunchPad> open_device(const ModelOptions& options) {
    const DeviceChoice choice = choose_device(options.device);
    if (!choice.device) {
        fprintf(stderr, "device: CPU, %d threads (%s)\n", omp_get_max_threads(), choice.reason.c_str());
        return nullptr;
    }
    LaunchPadOptions launchpad;
    launchpad.device = std::to_string(choice.device->index);
    auto pad = std::make_unique<LaunchPad>(launchpad);
    fprintf(stderr, "device: %s, %s memory (%s)\n", pad->device().name.c_str(),
            memory_mode_name(pad->memory_mode()), choice.reason.c_str());
    return pad;
}
