// docs/experiments.md has the measurements.
#include "llmc/options/recipe.h"

#include <algorithm>
#include <cmath>

#include "llmc/files/model_source.h"
#include "llmc/options/train_options.h"

// What the number of tokens decides.
struct Recipe {
    std::string model;
    OptimizerKind optimizer;
    int batch, sequence, steps, warmup;
    float learning_rate, final_fraction, dropout;
};

static int64_t tokens_of_batch(const Options& o, const Recipe& r) {
    return int64_t(r.batch) * r.sequence * o.num_processes;
}

// Takes -b and -t if they are given. Otherwise halves them until the training and the validation data each
// hold a batch, which reads one token more than it advances by, and until -d is a multiple of B*T.
static void fit_batch(const Options& o, const TextTokens& tokens, Recipe& r) {
    const int64_t most = int64_t(std::min(tokens.train_tokens, tokens.val_tokens)) - 1;
    const bool batch_is_free = !o.is_given(o.batch) || o.batch == 0;
    const bool sequence_is_free = !o.is_given(o.sequence);
    if (!batch_is_free) r.batch = o.batch;
    if (!sequence_is_free) r.sequence = o.sequence;
    const auto divides = [&] { return o.total_batch <= 0 || o.total_batch % tokens_of_batch(o, r) == 0; };
    while (batch_is_free && r.batch > 1 && (tokens_of_batch(o, r) > most || !divides())) r.batch /= 2;
    while (sequence_is_free && r.sequence > 1 && tokens_of_batch(o, r) > most) r.sequence /= 2;
}

// Steps of a run of so many epochs, at most `most`; -x and --epochs take precedence.
static int count_steps(const Options& o, const Recipe& r, uint64_t tokens, double epochs, int most) {
    if (o.is_given(o.max_steps) && o.max_steps > 0) return o.max_steps;
    const double per_step = o.total_batch > 0 ? o.total_batch : double(tokens_of_batch(o, r));
    const bool chosen = o.epochs <= 0;
    const double steps = (chosen ? epochs : o.epochs) * double(tokens) / per_step;
    return int(std::clamp(steps, 1.0, chosen ? double(most) : 1e9));
}

// The shorter the text, the more of the activations are dropped: 0.3 for 20 kB, 0.2 for 120 kB, 0 from 1 MB.
static float choose_dropout(uint64_t tokens) {
    const double rate = 0.2 * std::log10(1e6 / double(tokens));
    return float(std::round(100 * std::clamp(rate, 0.0, 0.3)) / 100);
}

// How often a text is read until the validation loss rises: 15 times for 20 kB, which teaches little more
// than words; 36 times for 120 kB, where the loss stays at a plateau for the first ten.
static double choose_epochs(uint64_t tokens) { return 15 * std::pow(double(tokens) / 16000, 0.45); }

// A small new model.
static Recipe for_new_model(const Options& o, const TextTokens& data) {
    const uint64_t tokens = data.train_tokens;
    Recipe r = {.model = "custom:layers=3,heads=2,channels=96,max_seq_len=256",
                .optimizer = OptimizerKind::muon,
                .batch = 8,
                .sequence = 256,
                .learning_rate = default_muon_learning_rate(96),
                .final_fraction = 0.05f};
    if (o.is_given(o.model)) {
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
                .optimizer = OptimizerKind::adamw,
                .batch = 4,
                .sequence = std::min(1024, read_shape(find_model(o.model)).max_seq_len),
                .learning_rate = 3e-5f,
                .final_fraction = 0.1f};
    fit_batch(o, data, r);
    r.steps = count_steps(o, r, data.train_tokens, 3, 1000);
    r.warmup = r.steps / 20;
    return r;
}

void choose_options(Options& o, const TextTokens& tokens, LaunchPad*) {
    const bool finetunes = o.is_given(o.model) && names_model_file(o.model);
    const Recipe r = finetunes ? for_finetuning(o, tokens) : for_new_model(o, tokens);
    const bool validates = !o.is_given(o.val_every) || o.val_every > 0;
    Sources& s = o.sources;
    s.choose(o.train_data, tokens.train);
    s.choose(o.val_data, tokens.val);
    s.choose(o.model, r.model);
    s.choose(o.optimizer, r.optimizer);
    if (o.batch == 0)
        s.choose(o.total_batch, int(tokens_of_batch(o, r)));  // -b auto keeps the tokens of a step
    s.choose(o.batch, r.batch);
    s.choose(o.sequence, r.sequence);
    if (o.epochs <= 0) s.choose(o.max_steps, r.steps);
    s.choose(o.learning_rate, r.learning_rate);
    s.choose(o.warmup, r.warmup);
    s.choose(o.final_fraction, r.final_fraction);
    s.choose(o.dropout, r.dropout);
    s.choose(o.val_every, std::clamp((r.steps + 15) / 16, 1, 250));
    s.choose(o.val_batches, -1);
    s.choose(o.patience, validates ? 5 : 0);
    s.choose(o.sample_every, std::max(1, r.steps));
    s.choose(o.sample_tokens, 600);
}
