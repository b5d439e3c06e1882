// docs/experiments.md has the measurements.
#include "llmc/options/recipe.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/error.h"
#include "llmc/files/model_source.h"
#include "llmc/options/train_options.h"

// What the number of tokens decides.
struct Recipe {
    std::string model, optimizer;
    int batch, sequence, steps, warmup;
    double learning_rate, final_fraction, dropout;
};

static int64_t tokens_of_batch(const Options& o, const Recipe& r) {
    return int64_t(r.batch) * r.sequence * o.num_processes;
}

// Takes -b and -t if they are given. Otherwise halves them until the training and the validation data each
// hold a batch, which reads one token more than it advances by, and until -d is a multiple of B*T.
static void fit_batch(const Options& o, const TextTokens& tokens, Recipe& r) {
    const int64_t most = int64_t(std::min(tokens.train_tokens, tokens.val_tokens)) - 1;
    const bool batch_is_free = !o.gives("batch-size") || o.batch == 0;
    const bool sequence_is_free = !o.gives("sequence-length");
    if (!batch_is_free) r.batch = o.batch;
    if (!sequence_is_free) r.sequence = o.sequence;
    const auto divides = [&] { return o.total_batch <= 0 || o.total_batch % tokens_of_batch(o, r) == 0; };
    while (batch_is_free && r.batch > 1 && (tokens_of_batch(o, r) > most || !divides())) r.batch /= 2;
    while (sequence_is_free && r.sequence > 1 && tokens_of_batch(o, r) > most) r.sequence /= 2;
}

// Steps of a run of so many epochs, at most `most`; -x and --epochs take precedence.
static int count_steps(const Options& o, const Recipe& r, uint64_t tokens, double epochs, int most) {
    if (o.gives("max-steps") && o.max_steps > 0) return o.max_steps;
    const double per_step = o.total_batch > 0 ? o.total_batch : double(tokens_of_batch(o, r));
    const bool chosen = o.epochs <= 0;
    const double steps = (chosen ? epochs : o.epochs) * double(tokens) / per_step;
    return int(std::clamp(steps, 1.0, chosen ? double(most) : 1e9));
}

// The shorter the text, the more of the activations are dropped: 0.3 for 20 kB, 0.2 for 120 kB, 0 from 1 MB.
static double choose_dropout(uint64_t tokens) {
    const double rate = 0.2 * std::log10(1e6 / double(tokens));
    return std::round(100 * std::clamp(rate, 0.0, 0.3)) / 100;
}

// How often a text is read until the validation loss rises: 15 times for 20 kB, which teaches little more
// than words; 36 times for 120 kB, where the loss stays at a plateau for the first ten.
static double choose_epochs(uint64_t tokens) { return 15 * std::pow(double(tokens) / 16000, 0.45); }

// A small new model.
static Recipe for_new_model(const Options& o, const TextTokens& data) {
    const uint64_t tokens = data.train_tokens;
    Recipe r = {.model = "custom:layers=3,heads=2,channels=96,max_seq_len=256",
                .optimizer = "muon",
                .batch = 8,
                .sequence = 256,
                .learning_rate = default_muon_learning_rate(96),
                .final_fraction = 0.05};
    if (o.gives("model")) {
        const ModelConfig config = read_shape(find_model(o.model));
        r.sequence = std::min(r.sequence, config.max_seq_len);
        r.learning_rate = default_muon_learning_rate(config.channels);
    }
    fit_batch(o, data, r);
    r.steps = count_steps(o, r, tokens, choose_epochs(tokens), 3000);
    r.warmup = std::min(100, r.steps / 10);
    r.dropout = choose_dropout(tokens);
    return r;
}

// A model that is trained already.
static Recipe for_finetuning(const Options& o, const TextTokens& data) {
    Recipe r = {.model = o.model,
                .optimizer = "adamw",
                .batch = 4,
                .sequence = std::min(1024, read_shape(find_model(o.model)).max_seq_len),
                .learning_rate = 3e-5,
                .final_fraction = 0.1};
    fit_batch(o, data, r);
    r.steps = count_steps(o, r, data.train_tokens, 3, 1000);
    r.warmup = r.steps / 20;
    return r;
}

// A text as a value: whichever quotes it does not contain.
static std::string quoted(const std::string& text) {
    const char quote = text.find('\'') == std::string::npos ? '\'' : '"';
    if (text.find(quote) != std::string::npos)
        fail("%s: a path with both kinds of quotes cannot be used", text.c_str());
    return quote + text + quote;
}

std::string choose_options(const Options& o, const TextTokens& tokens) {
    const bool finetunes = o.gives("model") && names_model_file(o.model);
    const Recipe r = finetunes ? for_finetuning(o, tokens) : for_new_model(o, tokens);
    std::string lines = "train-data = " + quoted(tokens.train) + "\nval-data = " + quoted(tokens.val) + "\n" +
                        "model = " + quoted(r.model) + "\n";
    lines += format_string("optimizer = '%s'\nbatch-size = %d\nsequence-length = %d\n", r.optimizer.c_str(),
                           r.batch, r.sequence);
    if (o.batch == 0 && !o.gives("total-batch-size"))  // -b auto keeps the tokens of a step
        lines += format_string("total-batch-size = %lld\n", (long long)tokens_of_batch(o, r));
    if (o.epochs <= 0) lines += format_string("max-steps = %d\n", r.steps);
    lines += format_string("learning-rate = %.3g\nwarmup-steps = %d\nfinal-lr-fraction = %g\ndropout = %g\n",
                           r.learning_rate, r.warmup, r.final_fraction, r.dropout);
    const int val_every = std::clamp((r.steps + 15) / 16, 1, 250);
    const bool validates = !o.gives("val-every") || o.val_every > 0;
    return lines + format_string(
                       "val-every = %d\nval-batches = -1\npatience = %d\nsample-every = %d\n"
                       "sample-tokens = 600\n",
                       val_every, validates ? 5 : 0, std::max(1, r.steps));
}
