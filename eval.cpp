// Evaluates a trained GPT-2 without training it: loss, perplexity and bits per byte on token shards, and
// HellaSwag.
//
//     eval -e model.bin -i 'data/fineweb_val_*.bin'
//     eval -e model.safetensors --hellaswag hellaswag_val.bin --device gpu --precision bf16 -b 32
//
// Every token of the shards but each shard's first is predicted once, from those before it in its stretch of
// T tokens; the last, short stretch of a shard counts as well.
#include <cmath>
#include <cstdio>
#include <optional>

#include "data/command_line.h"
#include "llmc/dataloader.h"
#include "llmc/evaluate.h"
#include "llmc/openmp_waiting.h"
#include "llmc/token_file.h"
#include "llmc/trained_model.h"

struct Options {
    ModelOptions model;
    std::string data, hellaswag;
    int batch = 4, sequence = 0, most_batches = -1;
};

// What shards were predicted with: sums over tokens.
struct Score {
    double nats = 0;
    uint64_t tokens = 0, bytes = 0;  // bytes of text; end-of-text has none
};

// Stretches of T tokens of the shards, B at a time.
struct Stretches {
    const std::vector<TokenShard>& shards;
    int B, T, vocab_size;
    size_t shard = 0;
    uint64_t at = 0;  // first token of the next stretch

    // Fills inputs and targets (B,T), and how many positions of each row hold a token (B); false: none are
    // left.
    bool next(std::vector<int>& inputs, std::vector<int>& targets, std::vector<int>& counts) {
        std::fill(inputs.begin(), inputs.end(), 0);
        std::fill(targets.begin(), targets.end(), 0);
        std::fill(counts.begin(), counts.end(), 0);
        for (int row = 0; row < B; row++) {
            while (shard < shards.size() && at + 1 >= shards[shard].tokens) shard++, at = 0;
            if (shard == shards.size()) return row > 0;
            counts[row] = int(std::min<uint64_t>(T, shards[shard].tokens - 1 - at));
            std::vector<uint16_t> tokens(counts[row] + 1);
            read_tokens(shards[shard], at, tokens.size(), tokens.data());
            check_tokens(shards[shard], at, tokens, vocab_size);
            std::copy_n(tokens.begin(), counts[row], inputs.begin() + size_t(row) * T);
            std::copy_n(tokens.begin() + 1, counts[row], targets.begin() + size_t(row) * T);
            at += counts[row];
        }
        return true;
    }
};

template <class Real>
static Score score_shards(GPT2<Real>& g, const std::vector<TokenShard>& shards, int most_batches,
                          const std::optional<Tokenizer>& tokenizer) {
    const int B = g.B, T = g.T;
    std::vector<int> inputs(size_t(B) * T), targets(inputs.size()), counts(B);
    std::vector<float> losses(inputs.size());
    Stretches stretches = {shards, B, T, g.config.vocab_size};
    Score score;
    for (int batch = 0; batch != most_batches && stretches.next(inputs, targets, counts); batch++) {
        gpt2_set_batch(g, inputs.data(), targets.data(), B * T, false);
        gpt2_forward(g, B, T);
        gpt2_head(g, B, T, 1, Gradients::none);
        g.memory.download(losses.data(), g.losses, losses.size());
        for (int row = 0; row < B; row++)
            for (int t = 0; t < counts[row]; t++) {
                const size_t i = size_t(row) * T + t;
                score.nats += losses[i];
                score.tokens++;
                if (tokenizer && targets[i] != tokenizer->end_of_text)
                    score.bytes += tokenizer->decode(targets[i]).size();
            }
    }
    return score;
}

static void print_score(const Score& score) {
    const double loss = score.nats / double(score.tokens);
    printf("tokens %llu | loss %f nats | perplexity %.4f | ", (unsigned long long)score.tokens, loss,
           std::exp(loss));
    if (score.bytes)
        printf("%f bits per byte\n", score.nats / std::log(2) / double(score.bytes));
    else
        printf("bits per byte: not known without the tokenizer (--tokenizer)\n");
}

// The tokenizer counts bytes; it may be missing where nobody asked for it.
static std::optional<Tokenizer> try_tokenizer(const ModelOptions& options, const ModelConfig& config) {
    try {
        return find_tokenizer(options, config);
    } catch (const Error&) {
        if (!options.tokenizer.empty()) throw;
        return std::nullopt;
    }
}

template <class Real>
static void evaluate(const Options& options, const ModelConfig& config) {
    const std::optional<Tokenizer> tokenizer = try_tokenizer(options.model, config);
    std::vector<TokenShard> shards;
    if (!options.data.empty()) shards = open_token_shards(options.data);
    uint64_t tokens = 0;
    for (const TokenShard& shard : shards) tokens = std::max(tokens, shard.tokens);
    if (!options.data.empty() && tokens < 2)
        fail("'%s' has no shard of two tokens: there is nothing to predict", options.data.c_str());
    std::vector<HellaSwagExample> examples;
    if (!options.hellaswag.empty()) examples = read_hellaswag(options.hellaswag, config.vocab_size);

    const auto pad = open_device(options.model);
    const auto g = load_model<Real>(options.model, config, pad.get());
    gpt2_allocate(*g, options.batch, options.sequence, false);
    if (!shards.empty()) print_score(score_shards(*g, shards, options.most_batches, tokenizer));
    if (examples.empty()) return;
    print_hellaswag(hellaswag_right(*g, examples), examples.size());
}

static void add_options(CLI::App& app, Options& o) {
    add_model_options(app, o.model);
    app.add_option("-i,--data", o.data, "token shards: a file or a quoted glob pattern");
    app.add_option("--hellaswag", o.hellaswag, "HellaSwag's file, as prepare_data hellaswag makes it");
    app.add_option("-b,--batch-size", o.batch, "sequences at a time (B)")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    app.add_option("-t,--sequence-length", o.sequence, "tokens of a sequence (T; 0: the model's max_seq_len)")
        ->check(CLI::Range(0, 1 << 20))
        ->capture_default_str();
    app.add_option("-m,--max-batches", o.most_batches, "batches of the shards at most (-1: all)")
        ->check(CLI::Range(-1, 1 << 30))
        ->capture_default_str();
}

int main(int argc, char** argv) {
    wait_briefly(argv);
    Options options;
    CLI::App app("Evaluates a trained GPT-2 on token shards and on HellaSwag.", "eval");
    add_options(app, options);
    return run_command_line(app, argc, argv, [&] {
        if (options.data.empty() && options.hellaswag.empty())
            fail("nothing to evaluate on: give token shards with -i, or --hellaswag FILE");
        const ModelConfig config = find_config(options.model);
        if (options.sequence == 0) options.sequence = config.max_seq_len;
        if (options.sequence > config.max_seq_len)
            fail("-t %d is more than the model's max_seq_len %d", options.sequence, config.max_seq_len);
        if (int64_t(options.batch) * options.sequence > 1 << 30)
            fail("-b %d times -t %d is more than 2^30 tokens", options.batch, options.sequence);
        if (options.most_batches == 0) fail("-m 0: at least one batch is needed");
        with_precision(options.model, [&]<class Real>(Real) { evaluate<Real>(options, config); });
    });
}
