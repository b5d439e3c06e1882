// docs/experiments.md has the measurements.
#include "llmc/options/recipe.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/error.h"
#include "llmc/base/lines.h"
#include "llmc/data/weighted_path.h"
#include "llmc/files/model_source.h"
#include "llmc/launchpad/launchpad.h"
#include "llmc/options/optimizer_defaults.h"
#include "llmc/options/train_options.h"
#include "llmc/text/bpe_trainer.h"
#include "llmc/text/tokenizer.h"

static const int bytes_vocab = 257;

void take_tokenizer(Options& o, const TextRecipe& r) {
    if (finetunes(o)) return;
    o.sources.choose(o.tokenizer,
                     r.vocab_size == bytes_vocab ? "bytes" : format_string("bpe:%d", r.vocab_size));
}

// 0: free. Stories have bytes, whose entropy is known.
static int vocab_size_of(const Options& o) {
    const bool names_vocab = o.is_given(o.model) && o.model.find("vocab=") != std::string::npos;
    if (o.tokenizer.empty()) return names_vocab || o.is_stories() ? bytes_vocab : 0;
    if (o.tokenizer == "bytes") return bytes_vocab;
    if (const auto trained = parse_bpe(o.tokenizer)) return trained->vocab_size;
    return open_tokenizer(o.tokenizer).vocab_size();
}

// How much of the texts of a mixture counts: a source with a large share of the steps is repeated more often
// than all texts are on average. The repeats are those of one text of 1 / (sum of share^2 / size). 1: one
// source.
static double worth_of_mixture(const Options& o, const TextTokens& tokens) {
    const std::vector<double> shares = shares_of(o.text);
    double sum = 0;
    for (size_t i = 0; i < shares.size(); i++)
        sum += shares[i] * shares[i] / double(std::max<uint64_t>(tokens.of_sources.at(i), 1));
    return sum > 0 ? 1 / sum / double(std::max<uint64_t>(tokens.train_tokens, 1)) : 1;
}

void check_model_of_text(const Options& o) {
    if (!o.is_given(o.model)) return;
    ModelSource model = find_model(o.model);
    const ModelConfig config = read_shape(model);
    if (model.names_positions() && o.is_given(o.sequence)) check_sequence(o, config);
    if (finetunes(o) && parse_bpe(o.tokenizer))
        fail("--tokenizer %s makes a new tokenizer, and the model of -e has its own: leave it out",
             o.tokenizer.c_str());
    if (finetunes(o) && !o.tokenizer.empty())
        check_data_fits(info_of(open_tokenizer(o.tokenizer)), joined(o.text, ", "), model, config);
    if (finetunes(o) || o.model.find("vocab=") == std::string::npos) return;
    if (const int tokens = vocab_size_of(o); tokens > config.vocab_size)
        fail("-e %s has a vocabulary of %d, and the tokenizer%s has %d tokens: leave out vocab=",
             o.model.c_str(), config.vocab_size, o.tokenizer.empty() ? " bytes" : (" " + o.tokenizer).c_str(),
             tokens);
}

static RuleInputs inputs_of(const Options& o, const TextTokens& tokens, const LaunchPad* pad) {
    const double worth = worth_of_mixture(o, tokens);
    const bool are_known = tokens.are_counted || finetunes(o);
    RuleInputs in = {.text_bytes = uint64_t(worth * double(tokens.bytes)),
                     .train_tokens = are_known ? uint64_t(worth * double(tokens.train_tokens)) : 0,
                     .val_tokens = are_known ? tokens.val_tokens : 0,
                     .val_bytes = tokens.val_bytes,
                     .seconds = 60.0 * o.minutes,
                     .processes = o.num_processes,
                     .sources = std::max(1, int(shares_of(o.text).size()))};
    const auto if_given = [&](const auto& value) { return o.is_given(value) ? value : 0; };
    in.batch = if_given(o.batch);
    if (o.is_divided) in.batch = o.batch_of_all;
    if (in.batch && o.is_divided) in.processes = 1;  // which draws the sequences of all
    in.sequence = if_given(o.sequence);
    in.tokens_per_step = std::max(0, if_given(o.total_batch));
    if (o.is_given(o.max_steps)) in.steps = o.max_steps;
    in.epochs = if_given(o.epochs) / worth;                                                   // of all texts
    if (o.is_given(o.max_steps) && o.max_steps < 0 && in.epochs == 0) in.epochs = 1 / worth;  // -x -1
    if (o.is_given(o.model)) {
        ModelSource model = find_model(o.model);
        const ModelConfig config = read_shape(model);
        in.vocab_size = config.vocab_size;
        in.layers = config.num_layers, in.heads = config.num_heads, in.channels = config.channels;
        if (model.names_positions()) in.most_sequence = trained_positions(model, config);
    }
    if (!finetunes(o)) in.vocab_size = vocab_size_of(o);
    if (o.of_text.is_chat)
        in.sequence = std::min(o.of_text.pack_tokens, in.most_sequence ? in.most_sequence : 1 << 20);
    // make train on a CPU is the same everywhere: the first plot that a new user sees is README's
    const bool is_first_run =
        o.is_stories() && !(pad && pad->device().is_gpu()) && !in.channels && !o.is_given(o.minutes);
    if (!is_first_run) return in;
    in.layers = 3, in.heads = 2, in.channels = 96;
    if (!in.sequence) in.sequence = 256;
    if (!in.batch && !in.tokens_per_step) in.batch = 8;
    if (!in.has_length()) in.steps = 3000;
    return in;
}

// Three passes, at most 1,000 steps, or as many as the time allows, without other regularization than the
// low rate.
static TextRecipe for_finetuning(const Options& o, RuleInputs in, const StepSeconds& measure) {
    in.first_sequence = std::min(1024, in.most_sequence);
    const int T = in.sequence ? in.sequence : in.first_sequence;
    if (!in.batch && !in.tokens_per_step) in.tokens_per_step = 4 * T * in.processes;
    if (!o.is_given(o.minutes) && !in.has_length()) {
        const int B = in.batch ? in.batch : 4;
        const int per_step = in.tokens_per_step ? in.tokens_per_step : B * T * in.processes;
        in.steps = int(std::clamp(3.0 * double(in.train_tokens) / per_step, 1.0, 1000.0));
    }
    TextRecipe r = choose_for_time(in, measure);
    r.dropout = r.weight_decay = 0;
    return r;
}

std::vector<TextRecipe> candidates_of(const Options& o, const TextTokens& tokens, const LaunchPad* pad) {
    return candidates_for(inputs_of(o, tokens, pad));
}

TextRecipe choose_recipe(const Options& o, const TextTokens& tokens, const LaunchPad* pad,
                         const StepSeconds& measure) {
    const RuleInputs in = inputs_of(o, tokens, pad);
    return finetunes(o) ? for_finetuning(o, in, measure) : choose_for_time(in, measure);
}

TextRecipe recount(const Options& o, const TextTokens& tokens, const LaunchPad* pad,
                   const TextRecipe& recipe) {
    const RuleInputs in = inputs_of(o, tokens, pad);
    if (finetunes(o)) return for_finetuning(o, in, [&](const TextRecipe&) { return recipe.step_seconds; });
    return adapt(in, recipe);
}

ModelConfig config_of(const TextRecipe& r) {
    ModelConfig config = {.max_seq_len = r.shape.sequence,
                          .num_layers = r.shape.layers,
                          .num_heads = r.shape.heads,
                          .channels = r.shape.channels};
    set_vocab_size(config, r.vocab_size);
    return config;
}

void take_optimizer(Options& o) {
    o.sources.choose(o.optimizer, finetunes(o) ? OptimizerKind::adamw : OptimizerKind::muon);
}

// AdamW's rate for 192 channels, 1.5e-3, falls with the root of the width.
static float rate_for(const Options& o, const TextRecipe& r) {
    if (finetunes(o)) return o.optimizer == OptimizerKind::muon ? 4e-4f : 3e-5f;
    const double rate = o.optimizer == OptimizerKind::muon ? muon_rate(r.shape.channels)
                                                           : 1.5e-3 * std::sqrt(192.0 / r.shape.channels);
    return strtof(format_string("%.3g", rate * r.rate_factor).c_str(), nullptr);
}

void take_recipe(Options& o, const TextTokens& tokens, const TextRecipe& r) {
    const bool tunes = finetunes(o), validates = !o.is_given(o.val_every) || o.val_every > 0;
    const ModelShape& shape = r.shape;
    Sources& s = o.sources;
    s.choose(o.train_data, tokens.train);
    s.choose(o.val_data, tokens.val);
    s.choose(o.model, format_string("custom:layers=%d,heads=%d,channels=%d", shape.layers, shape.heads,
                                    shape.channels));
    take_optimizer(o);
    const bool accumulates = shape.tokens_per_step > r.batch * shape.sequence * o.num_processes;
    const bool is_job = o.num_processes > 1;  // another number of processes resumes with the same tokens
    if (o.batch == 0 || accumulates || is_job) s.choose(o.total_batch, shape.tokens_per_step);
    s.choose(o.batch, r.batch);
    s.choose(o.sequence, shape.sequence);
    if (o.epochs <= 0) s.choose(o.max_steps, r.steps);
    s.choose(o.learning_rate, rate_for(o, r));
    s.choose(o.warmup, tunes ? r.steps / 20 : std::min(100, r.steps / 10));
    s.choose(o.scheduler, tunes ? Schedule::cosine : Schedule::linear);
    s.choose(o.final_fraction, tunes ? 0.1f : 0.0f);
    s.choose(o.weight_decay, r.weight_decay);
    s.choose(o.dropout, r.dropout);
    s.choose(o.val_every, std::max(1, (r.steps + r.validations - 1) / r.validations));
    s.choose(o.val_batches, r.val_batches);
    s.choose(o.patience, validates ? 5 : 0);
    s.choose(o.sample_every, std::max(1, r.steps));
    s.choose(o.sample_tokens, 600);
    note_chosen(o, "this text");
}

std::string describe_shape(const TextRecipe& r) {
    return format_string("%s of %d channels, %d x %d tokens", counted(r.shape.layers, "layer").c_str(),
                         r.shape.channels, r.shape.tokens_per_step / r.shape.sequence, r.shape.sequence);
}

// The rule's law is that of new text. Short texts that are read often are learnt better: 20 kB, 120 kB
// and 1.1 MB of tinyshakespeare end at 2.85, 2.32 and 2.02 with small models.
static double bits_of_text(const TextRecipe& r, double text_bytes) {
    const double of_short_text = 2.03 * std::pow(text_bytes / 1e6, -0.08);
    return r.epochs < 5 ? r.bits_per_byte : std::min(r.bits_per_byte, of_short_text);
}

std::string describe(const Options& o, const TextTokens& tokens, const TextRecipe& r) {
    std::string text = format_string("%s; %s read %.3g MB of text %.3g times", describe_shape(r).c_str(),
                                     counted(r.steps, "step").c_str(), double(tokens.bytes) / 1e6,
                                     r.epochs * worth_of_mixture(o, tokens));
    if (r.step_seconds > 0) text += format_string(" in %.3g minutes", r.seconds() / 60);
    const bool has_length = o.is_given(o.max_steps) || o.is_given(o.epochs);
    if (r.step_seconds > 0 && !has_length && r.seconds() < 0.8 * 60 * o.minutes)
        text += ", since more would not help on so short a text";
    if (!has_length && o.is_given(o.total_batch) && r.step_seconds > 60 * o.minutes)
        text += "; a step of this -d takes longer than --minutes";
    if (!finetunes(o) && tokens.is_english && r.steps > 0)
        text += format_string("; English documentation of this size gets about %.2f bits per byte",
                              bits_of_text(r, double(tokens.bytes)));
    return text;
}
