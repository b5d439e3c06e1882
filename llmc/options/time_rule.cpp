#include "llmc/options/time_rule.h"

#include <algorithm>
#include <cmath>

#include "llmc/text/bpe_trainer.h"

// The candidates, smallest first. A small model learns more from many steps of short sequences.
static const ModelShape shapes[] = {{3, 2, 96, 128, 2048},       {4, 2, 128, 128, 2048},
                                    {4, 3, 192, 256, 4096},      {6, 4, 256, 256, 4096},
                                    {6, 6, 384, 1024, 8192},     {8, 8, 512, 1024, 8192},
                                    {10, 10, 640, 1024, 8192},   {12, 12, 768, 1024, 16384},
                                    {16, 16, 1024, 1024, 16384}, {24, 16, 1024, 1024, 32768}};

double TextRecipe::seconds() const { return steps * step_seconds; }

static bool is_small(int channels) { return channels <= 128; }

static const uint64_t short_text = 2000000;  // bytes

// 2,048 tokens for 2 MB, 4,096 for 25 MB, 16,384 for 1 GB, and no more than the model can use: 4,096 with 384
// channels, 8,192 with 768 (about Tao 2024). A small model reads a text few times, and learns more of it from
// 4,096, which was measured up to 128 channels. Of a shorter text, a large model learns more from bytes,
// which it reads often; one of up to 192 channels does below 300 kB.
int choose_vocab_size(uint64_t text_bytes, int channels) {
    if (text_bytes < short_text && (text_bytes < 300000 || channels > 192)) return 257;
    if (text_bytes < short_text) return text_bytes < 600000 ? 512 : 2048;
    if (is_small(channels)) return 4096;
    const double for_text = 4096 * std::pow(double(text_bytes) / 25e6, 0.4);
    const double for_model = 4096 * std::pow(channels / 384.0, 0.6);
    const double best = std::clamp(std::min(for_text, for_model), 1024.0, 32768.0);
    return 1 << int(std::lround(std::log2(best)));
}

static const double forward_share = 0.35;  // of a step's time, which a validation on as many tokens takes

static double block_parameters(const ModelShape& s) { return 12.0 * s.layers * s.channels * s.channels; }

// Operations of a step, up to a factor.
static double work_of(const TextRecipe& r) {
    const ModelShape& s = r.shape;
    return (r.parameters + double(s.layers) * s.channels * s.sequence) * s.tokens_per_step;
}

static double tokens_of(const RuleInputs& in, int vocab_size) {
    if (in.train_tokens > 0) return double(in.train_tokens);
    return std::max(1.0, double(in.text_bytes) / bytes_per_token(vocab_size));
}

static double val_tokens_of(const RuleInputs& in, int vocab_size) {
    if (in.val_tokens > 0) return double(in.val_tokens);
    return std::max(1.0, double(in.val_bytes) / bytes_per_token(vocab_size));
}

// A model learns nothing new from a text that it has read so often; the larger the model, the sooner: 21
// passes for 20 kB, 54 for 120 kB with the smallest, 34 for 1.1 MB with 11 M parameters.
static double most_epochs(double tokens, double parameters) {
    return 90 * std::pow(tokens / parameters, 0.42);
}

// Repeated text counts less: some passes are as good as new text, many add nothing (after Muennighoff 2023,
// eq. 5, whose constant is 15; the same runs fit 6). Of a short text in a BPE, 5: tinyshakespeare has 1.949
// bits with 4 x 192 after 28 passes, 1.922 with 6 x 384 on bytes after 7.
static double worth_of_tokens(double seen, double unique, double repeats) {
    if (seen <= unique) return seen;
    return unique * (1 + repeats * (1 - std::exp(-(seen / unique - 1) / repeats)));
}

// Fitted to 15 runs on 39 MB of documentation, with a mean error of 0.015.
static double expected_bits(double parameters, double bytes_seen) {
    const double law =
        0.62 + 0.51 * std::pow(parameters / 1e6, -0.26) + 1.75 * std::pow(bytes_seen / 2.6e6, -0.5);
    const double untrained = 4.6;  // bits of a letter whose neighbours are unknown
    return 1 / std::hypot(1 / law, 1 / untrained);
}

static int halved_until(int value, int least, const std::function<bool(int)>& fits) {
    while (value > least && !fits(value)) value /= 2;
    return value;
}

// B and T: as given, or so that training and validation data hold a batch.
static void fit_batch(const RuleInputs& in, TextRecipe& r) {
    ModelShape& s = r.shape;
    const double tokens = tokens_of(in, r.vocab_size);
    const double most = std::min(tokens, val_tokens_of(in, r.vocab_size)) - 1;
    s.sequence = in.sequence ? in.sequence
                 : in.first_sequence
                     ? in.first_sequence
                     // a short text teaches little about what is far apart
                     : halved_until(s.sequence, 16, [&](int T) { return 3.5 * T <= std::sqrt(tokens); });
    if (in.most_sequence && !in.sequence) s.sequence = std::min(s.sequence, in.most_sequence);
    const auto batch_fits = [&](int B) {
        const int64_t micro = int64_t(B) * s.sequence * in.processes;
        return double(micro) <= most && (!in.tokens_per_step || in.tokens_per_step % micro == 0);
    };
    // so that a pass over a short text has 16 steps
    int of_step = halved_until(s.tokens_per_step, 256, [&](int n) { return 16 * n <= tokens; });
    if (in.tokens_per_step) of_step = in.tokens_per_step;
    const int wanted = std::max(1, of_step / (s.sequence * in.processes));
    r.batch = in.batch ? in.batch : halved_until(std::min(wanted, 1 << 12), 1, batch_fits);
    const double longest = in.tokens_per_step ? std::min(most, double(in.tokens_per_step)) : most;
    if (!in.sequence)
        s.sequence = halved_until(
            s.sequence, 1, [&](int T) { return double(int64_t(r.batch) * T * in.processes) <= longest; });
    s.tokens_per_step = in.tokens_per_step ? in.tokens_per_step : r.batch * s.sequence * in.processes;
}

// Steps that fit in the time, with validations and checkpoints that take at most a tenth of it. One
// validation comes before the first step. A device that is slow for the model validates on a part of the
// text.
static void choose_length(const RuleInputs& in, TextRecipe& r) {
    if (!std::isfinite(r.step_seconds)) r.step_seconds = 0;  // it does not fit in memory
    const double tokens = tokens_of(in, r.vocab_size), per_epoch = tokens / r.shape.tokens_per_step;
    const double forward = forward_share * r.step_seconds;
    const double seconds = in.steps > 0 && r.step_seconds > 0 ? in.steps * r.step_seconds : in.seconds;
    const double micro_batch = double(r.batch) * r.shape.sequence * in.processes;
    // of each source, the last batch is not full
    const double batches = val_tokens_of(in, r.vocab_size) / micro_batch + in.sources - 1;
    const double of_batch = forward * micro_batch / r.shape.tokens_per_step;
    const double most = of_batch > 0 ? std::max(double(in.sources), seconds / 30 / of_batch) : batches;
    r.val_batches = most < batches ? int(most) : -1;
    const double validation = of_batch * std::min(most, batches);
    // each may be the best so far, whose parameters and moments are written, at the rate of a slow disk
    const double pause = validation + 12 * r.parameters / 2e8;
    r.validations = int(std::clamp((0.1 * seconds - validation) / pause, 2.0, 16.0));
    double steps = per_epoch * most_epochs(tokens, r.parameters);
    if (r.step_seconds > 0)
        steps = std::min(steps, (in.seconds - (r.validations + 1) * validation) / r.step_seconds);
    if (in.epochs > 0) steps = in.epochs * std::floor(per_epoch);
    if (in.steps >= 0) steps = in.steps;
    r.steps = int(std::clamp(steps, in.steps == 0 ? 0.0 : 1.0, 1e9));
    r.epochs = r.steps / std::max(per_epoch, 1e-9);
}

// Dropout and decay grow with the passes over the text and with the parameters for each of its tokens. Words
// are rarer than letters, and need more decay.
static void choose_regularization(const RuleInputs& in, TextRecipe& r) {
    const double tokens = tokens_of(in, r.vocab_size);
    double dropout = 0.055 * std::log2(std::max(r.epochs, 0.1) / 4) +
                     0.027 * std::log2(block_parameters(r.shape) / tokens);
    if (r.epochs <= 1) dropout = 0;
    if (is_small(r.shape.channels)) dropout /= 2;
    dropout = std::clamp(dropout, 0.0, 0.5);
    r.dropout = float(std::round(100 * dropout) / 100);
    double decay = 0.1 + 25 * dropout * dropout;
    if (is_small(r.shape.channels) && r.vocab_size > 257)
        decay += std::clamp(0.03 * (r.epochs - 1), 0.0, 0.4);
    r.weight_decay = float(std::round(100 * std::min(3.0, decay)) / 100);
    r.rate_factor = is_small(r.shape.channels) && tokens < 2e6 ? 2 : 1;
    const bool is_short_bpe = in.text_bytes < short_text && r.vocab_size > 257;
    const double seen = worth_of_tokens(r.tokens_read(), tokens, is_short_bpe ? 5 : 6);
    const double bytes = in.train_tokens && in.text_bytes ? double(in.text_bytes) / double(in.train_tokens)
                                                          : bytes_per_token(r.vocab_size);
    r.bits_per_byte = expected_bits(r.parameters, seen * bytes);
}

static TextRecipe recipe_for(const RuleInputs& in, const ModelShape& shape) {
    TextRecipe r = {.shape = shape, .vocab_size = in.vocab_size};
    if (!r.vocab_size) r.vocab_size = choose_vocab_size(in.text_bytes, shape.channels);
    r.parameters = block_parameters(shape) + double(r.vocab_size) * shape.channels;
    fit_batch(in, r);
    return r;
}

std::vector<TextRecipe> candidates_for(const RuleInputs& in) {
    std::vector<TextRecipe> candidates;
    if (in.channels) {  // the batch is that of the nearest shape
        const ModelShape* nearest = &shapes[0];
        for (const ModelShape& s : shapes)
            if (s.channels <= in.channels) nearest = &s;
        ModelShape shape = *nearest;
        shape.layers = in.layers, shape.heads = in.heads, shape.channels = in.channels;
        return {recipe_for(in, shape)};
    }
    for (const ModelShape& shape : shapes) {
        TextRecipe r = recipe_for(in, shape);
        choose_length(in, r);
        // a model with far more parameters than the text has tokens learns it by heart
        const bool fits_text = block_parameters(shape) <= 12 * tokens_of(in, r.vocab_size);
        // in few steps, it takes many times the time for hardly more
        const bool fits_length = !in.has_length() || block_parameters(shape) <= 4 * r.tokens_read();
        if (!candidates.empty() && !(fits_text && fits_length)) break;
        candidates.push_back(r);
    }
    return candidates;
}

// How the time of a step grows with its work: the exponent between two measured candidates.
static double growth(const TextRecipe& a, const TextRecipe& b) {
    const double work = std::log(work_of(b) / work_of(a));
    return work > 0.1 ? std::clamp(std::log(b.step_seconds / a.step_seconds) / work, 0.0, 1.5) : 1;
}

// Between two measured candidates, the least that it can be. Beyond the largest, time grows as it did between
// the largest two; a device whose steps take less than 2 ms waits for their many small kernels.
static double predicted_seconds(const std::vector<TextRecipe>& all, size_t i) {
    const TextRecipe *before = nullptr, *below = &all[0];
    for (const TextRecipe& r : all) {
        const bool is_larger = &r > &all[i];
        if (r.step_seconds == 0 || (is_larger && std::isinf(r.step_seconds))) continue;
        if (is_larger) return std::max(below->step_seconds, r.step_seconds * work_of(all[i]) / work_of(r));
        before = below, below = &r;
    }
    double exponent = below->step_seconds < 2e-3 ? 0.5 : 1;
    if (before != below) exponent = std::max(0.5, growth(*before, *below));
    return below->step_seconds * std::pow(work_of(all[i]) / work_of(*below), exponent);
}

static void complete(const RuleInputs& in, TextRecipe& r) {
    choose_length(in, r);
    choose_regularization(in, r);
}

// The candidate that is best by what was measured; those that were not have predicted times.
static size_t best_of(const RuleInputs& in, const std::vector<TextRecipe>& all, TextRecipe& best_recipe) {
    size_t best = 0;
    for (size_t i = 0; i < all.size(); i++) {
        TextRecipe r = all[i];
        if (r.step_seconds == 0) r.step_seconds = predicted_seconds(all, i);
        if (!std::isfinite(r.step_seconds) && i > 0) continue;
        complete(in, r);
        const bool in_time = r.seconds() <= 1.05 * in.seconds;
        if (i > 0 && (!in_time || r.bits_per_byte >= best_recipe.bits_per_byte)) continue;
        best = i;
        best_recipe = r;
    }
    return best;
}

// Whether the time has room for 16 steps, and for three validations, in which each further source reads a
// batch: one step of a large batch teaches nothing.
static bool has_room(const RuleInputs& in, double step_seconds) {
    return (16 + 3 * forward_share * (in.sources - 1)) * step_seconds <= 0.9 * in.seconds;
}

// Halves a free batch until the time has room for its steps. seconds(): of a step of that batch. Returns
// whether it did.
static bool make_room_for_steps(const RuleInputs& in, TextRecipe& r,
                                const std::function<double(int batch)>& seconds) {
    const int before = r.batch;
    const bool is_free = !in.batch && !in.tokens_per_step && !in.has_length();
    while (is_free && r.batch % 2 == 0 && r.shape.tokens_per_step > 256 && !has_room(in, seconds(r.batch)))
        r.batch /= 2, r.shape.tokens_per_step /= 2;
    return r.batch < before;
}

// A step of a given model's usual batch may take minutes. Where one sequence keeps the device busy, the batch
// follows from it and a second one: much of its time may be the update's.
static void shrink_slow(const RuleInputs& in, TextRecipe& r, const StepSeconds& measure) {
    if (work_of(r) < 5e10 || in.batch || in.tokens_per_step) return;
    const auto time_of = [&](int batch) {
        TextRecipe few = r;
        few.batch = batch;
        few.shape.tokens_per_step = batch * r.shape.sequence * in.processes;
        return measure(few);
    };
    const double one = time_of(1);
    if (one < 0.1 || !std::isfinite(one) || r.batch < 4) return;
    double each = one;
    if (has_room(in, one)) each = std::max(time_of(2) - one, one / 16);  // at least: measurements differ
    make_room_for_steps(in, r, [&](int batch) { return one + (batch - 1) * each; });
}

TextRecipe adapt(const RuleInputs& in, TextRecipe chosen) {
    fit_batch(in, chosen);
    complete(in, chosen);
    return chosen;
}

// Measures the smallest candidate, then the best one by what was measured so far, until that one and the next
// larger one, which may take hardly longer on a GPU, are measured.
TextRecipe choose_for_time(const RuleInputs& in, const StepSeconds& measure) {
    std::vector<TextRecipe> all = candidates_for(in);
    if (all.size() == 1 && in.has_length()) return complete(in, all[0]), all[0];
    const auto time = [&](TextRecipe& r) {
        r.step_seconds = std::max(measure(r), 1e-9);  // 0: not measured
        const double before = r.step_seconds, each = before / r.batch;
        // other programs may disturb the next measurement
        if (std::isfinite(before) && make_room_for_steps(in, r, [&](int batch) { return batch * each; }))
            r.step_seconds = std::clamp(measure(r), 1e-9, before);
    };
    if (in.channels) shrink_slow(in, all[0], measure);
    time(all[0]);
    while (true) {
        TextRecipe recipe;
        size_t next = best_of(in, all, recipe);
        if (all[next].step_seconds > 0) next++;
        if (next == all.size() || all[next].step_seconds > 0) return recipe;
        time(all[next]);
    }
}
