// Writes text with a trained GPT-2, token by token, printed as it comes.
//
//     generate -e gpt2_124M.bin "Once upon a time"
//     generate -e model.safetensors --file prompt.txt -n 200 --temperature 0.8 --top-k 40 --seed 7
//     echo "To be" | generate -e model.bin -
//
// Standard output gets the text and nothing else; device and speed are said on standard error. The same seed
// gives the same text on the same device.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>

#include "data/command_line.h"
#include "llmc/decoder.h"
#include "llmc/file.h"
#include "llmc/openmp_waiting.h"
#include "llmc/sampler.h"
#include "llmc/text_stream.h"
#include "llmc/trained_model.h"

struct Options {
    ModelOptions model;
    std::string prompt, prompt_file;
    int tokens = 128;
    SamplerOptions sampler;
    uint64_t seed = 42;
    bool no_echo = false, ignore_end = false;
};

// The end of a file's last line is the editor's or echo's, not the prompt's.
static std::string without_line_end(std::string text) {
    if (text.ends_with('\n')) text.pop_back();
    if (text.ends_with('\r')) text.pop_back();
    return text;
}

static std::string read_prompt(const Options& options) {
    if (!options.prompt_file.empty() && !options.prompt.empty())
        fail("--file and a prompt on the command line are both given: leave one out");
    if (!options.prompt_file.empty()) return without_line_end(read_whole_file(options.prompt_file, 1 << 30));
    if (options.prompt != "-") return options.prompt;
    return without_line_end({std::istreambuf_iterator<char>(std::cin), {}});
}

// The prompt's tokens after end-of-text, with which every document that a model is trained on begins.
static std::vector<int> prompt_tokens(Tokenizer& tokenizer, const std::string& prompt) {
    std::vector<uint16_t> encoded = {uint16_t(tokenizer.end_of_text)};
    tokenizer.encode(prompt, encoded);
    return std::vector<int>(encoded.begin(), encoded.end());
}

template <class Real>
static void generate(const Options& options, const ModelConfig& config, Tokenizer& tokenizer,
                     const std::string& prompt) {
    using Clock = std::chrono::steady_clock;
    const auto pad = open_device(options.model);
    const auto g = load_model<Real>(options.model, config, pad.get());
    Decoder<Real> decoder(*g, config.max_seq_len);
    TextStream text;
    if (!options.no_echo) text.write(prompt);
    const std::vector<int> tokens = prompt_tokens(tokenizer, prompt);
    const auto start = Clock::now();
    decoder.append(tokens.data(), int(tokens.size()));
    std::vector<float> logits(config.vocab_size);
    decoder.read_logits(logits.data());
    const auto begun = Clock::now();
    uint64_t coins = 1295 + options.seed;  // with the default seed 1337, llm.c's
    if (coins == 0) coins = 1;             // which the generator could not leave
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
    const std::chrono::duration<double> reading = begun - start, writing = Clock::now() - begun;
    fprintf(stderr, "%zu tokens read in %.2f s, %d written in %.2f s: %.1f tokens/s\n", tokens.size(),
            reading.count(), count, writing.count(), count / std::max(writing.count(), 1e-9));
}

static void add_options(CLI::App& app, Options& o) {
    add_model_options(app, o.model);
    app.add_option("PROMPT", o.prompt,
                   "what the text begins with; -: read it from standard input, without the last line's end");
    app.add_option("--file", o.prompt_file, "read the prompt from this file, likewise");
    app.add_option("-n,--tokens", o.tokens, "most tokens to write")
        ->check(CLI::Range(0, 1 << 30))
        ->capture_default_str();
    app.add_option("--temperature", o.sampler.temperature,
                   "logits are divided by it: below 1 likelier tokens, 0 always the likeliest")
        ->check(CLI::Range(0.0f, 1e3f))
        ->capture_default_str();
    app.add_option("--top-k", o.sampler.top_k, "draw among the k likeliest tokens (0: all)")
        ->check(CLI::Range(0, 1 << 30))
        ->capture_default_str();
    app.add_option("--top-p", o.sampler.top_p,
                   "draw among the fewest likeliest tokens whose probabilities add up to p")
        ->check(CLI::Range(0.0f, 1.0f))
        ->capture_default_str();
    app.add_option("--seed", o.seed, "the same seed gives the same text on the same device")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    app.add_flag("--no-echo", o.no_echo, "do not print the prompt");
    app.add_flag("--ignore-end", o.ignore_end, "go on with a new document where the model ends one");
}

int main(int argc, char** argv) {
    wait_briefly(argv);
    Options options;
    CLI::App app("Writes text with a trained GPT-2, on the CPU or on any Vulkan device.", "generate");
    add_options(app, options);
    return run_command_line(app, argc, argv, [&] {
        const ModelConfig config = find_config(options.model);
        Tokenizer tokenizer = find_tokenizer(options.model, config);
        const std::string prompt = read_prompt(options);
        with_precision(options.model,
                       [&]<class Real>(Real) { generate<Real>(options, config, tokenizer, prompt); });
    });
}
