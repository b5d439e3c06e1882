// Generates text with a trained GPT-2 and prints it token by token.
//
//     generate -e gpt2_124M.bin "Once upon a time"
//     generate -e model.safetensors --file prompt.txt -n 200 --temperature 0.8 --top-k 40 --seed 7
//     echo "To be" | generate -e model.bin -
//
// Standard output gets only the text; device and speed go to standard error. The same seed gives the same
// text on the same device.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>

#include "llmc/base/clock.h"
#include "llmc/base/file.h"
#include "llmc/data/text_stream.h"
#include "llmc/launchpad/open_device.h"
#include "llmc/model/decoder.h"
#include "llmc/program/command_line.h"
#include "llmc/program/start_program.h"
#include "llmc/run/sampler.h"
#include "llmc/run/trained_model.h"

struct GenerateOptions {
    ModelOptions model;
    std::string prompt, prompt_file;
    int tokens = 128;
    SamplerOptions sampler;
    uint64_t seed = 42;
    bool no_echo = false, ignore_end = false;
};

// A newline at the end comes from an editor or echo and is not part of the prompt.
static std::string without_line_end(std::string text) {
    if (text.ends_with('\n')) text.pop_back();
    if (text.ends_with('\r')) text.pop_back();
    return text;
}

static std::string read_prompt(const GenerateOptions& options) {
    if (!options.prompt_file.empty() && !options.prompt.empty())
        fail("--file and a prompt on the command line are both given: leave one out");
    if (!options.prompt_file.empty()) return without_line_end(read_whole_file(options.prompt_file, 1 << 30));
    if (options.prompt != "-") return options.prompt;
    return without_line_end({std::istreambuf_iterator<char>(std::cin), {}});
}

// The prompt's tokens after an end-of-text token, which starts every document in the training data.
static std::vector<int> prompt_tokens(Tokenizer& tokenizer, const std::string& prompt) {
    std::vector<uint16_t> encoded = {uint16_t(tokenizer.end_of_text)};
    tokenizer.encode(prompt, encoded);
    return std::vector<int>(encoded.begin(), encoded.end());
}

template <class Real>
static void generate(const GenerateOptions& options, const ModelConfig& config, Tokenizer& tokenizer,
                     const std::string& prompt) {
    const auto pad = open_device(options.model.device, {}, stderr);
    const auto g = load_model<Real>(options.model, config, pad.get());
    Decoder<Real> decoder(*g, config.max_seq_len);
    TextStream text;
    if (!options.no_echo) text.write(prompt);
    const std::vector<int> tokens = prompt_tokens(tokenizer, prompt);
    const double start = now();
    decoder.append(tokens.data(), int(tokens.size()));
    std::vector<float> logits(config.vocab_size);
    decoder.read_logits(logits.data());
    const double first_token = now();
    uint64_t coins = 1295 + options.seed;  // with the default seed 1337, llm.c's
    if (coins == 0) coins = 1;             // the generator cannot leave the state 0
    int count = 0;
    for (; count < options.tokens; count++) {
        const int token = sample_token(logits.data(), config.vocab_size, random_f32(coins), options.sampler);
        if (token == tokenizer.end_of_text && !options.ignore_end) break;
        text.write(token == tokenizer.end_of_text ? "\n\n" : tokenizer.decode(token));
        decoder.append(&token, 1);
        decoder.read_logits(logits.data());
    }
    text.finish();
    text.write("\n");
    const double reading = first_token - start, writing = now() - first_token;
    fprintf(stderr, "%zu tokens read in %.2f s, %d written in %.2f s: %.1f tokens/s\n", tokens.size(),
            reading, count, writing, count / std::max(writing, 1e-9));
}

static void add_options(CLI::App& app, GenerateOptions& o) {
    add_model_options(app, o.model);
    app.add_option("PROMPT", o.prompt,
                   "text to continue; -: read it from standard input, without a newline at its end");
    app.add_option("--file", o.prompt_file, "read the prompt from this file, without a newline at its end");
    app.add_option("-n,--tokens", o.tokens, "most tokens to generate")
        ->check(CLI::Range(0, 1 << 30))
        ->capture_default_str();
    app.add_option("--temperature", o.sampler.temperature,
                   "divides the logits; 0: always the likeliest token")
        ->check(CLI::Range(0.0f, 1e3f))
        ->capture_default_str();
    app.add_option("--top-k", o.sampler.top_k, "sample from the k likeliest tokens (0: all)")
        ->check(CLI::Range(0, 1 << 30))
        ->capture_default_str();
    app.add_option("--top-p", o.sampler.top_p,
                   "sample from the smallest set of likeliest tokens whose probabilities add up to p")
        ->check(CLI::Range(0.0f, 1.0f))
        ->capture_default_str();
    app.add_option("--seed", o.seed, "the same seed gives the same text on the same device")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    app.add_flag("--no-echo", o.no_echo, "do not print the prompt");
    app.add_flag("--ignore-end", o.ignore_end, "continue with a new document after end-of-text");
}

int main(int argc, char** argv) {
    start_program(argv);
    GenerateOptions options;
    CommandLine line("generate", "Generates text with a trained GPT-2, on the CPU or on any Vulkan device.");
    add_options(*line.app, options);
    return line.run(argc, argv, [&] {
        const ModelConfig config = find_config(options.model);
        std::optional<Tokenizer> tokenizer = find_model_tokenizer(options.model, config);
        if (!tokenizer)
            fail(
                "no tokenizer of %d tokens for %s: name one with --tokenizer (prepare_data "
                "--make-tokenizer makes gpt2_tokenizer.bin)",
                config.vocab_size, options.model.model.c_str());
        const std::string prompt = read_prompt(options);
        with_precision(options.model.precision,
                       [&]<class Real>(Real) { generate<Real>(options, config, *tokenizer, prompt); });
    });
}
