#include "llmc/run/text_choice.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/lines.h"
#include "llmc/base/precision.h"
#include "llmc/base/utf8.h"
#include "llmc/data/hellaswag.h"
#include "llmc/options/recipe.h"
#include "llmc/run/fit.h"
#include "llmc/run/step_time.h"
#include "llmc/run/text_tokens.h"

// A dry run of --text plans without the tokens, which are not prepared.
static void plan_without_tokens(Options& o, const TextTokens& tokens) {
    const uint64_t per_step =
        o.total_batch > 0 ? uint64_t(o.total_batch) : uint64_t(o.global_batch()) * o.sequence;
    if (o.epochs > 0 && per_step > 0)
        o.max_steps = int(std::clamp(o.epochs * double(tokens.train_tokens / per_step), 1.0, 1e9));
    o.expected_tokens = tokens.of_sources;
    o.train_data = o.val_data = {};
}

// Error, before tokens are prepared, if a text is too short for a batch. Its tokens may be estimated, and a
// mixture fills a batch with several passes.
static void refuse_long_batch(const Options& o, const TextTokens& tokens) {
    const uint64_t batch = uint64_t(o.global_batch()) * o.sequence;
    if (const uint64_t fewest = std::min(tokens.train_tokens, tokens.val_tokens);
        tokens.of_sources.size() == 1 && !o.is_divided && !o.of_text.is_chat && batch > fewest + fewest / 8)
        fail("%s, and a batch of %d x %d has %llu: use shorter sequences (-t) or more text",
             o.expected_data.c_str(), o.global_batch(), o.sequence, (unsigned long long)batch);
}

static Options with_model(Options o, const TextRecipe& recipe) {
    if (!o.is_given(o.batch) || !o.batch) o.batch = recipe.batch;  // unlike processes may have their own
    o.sequence = recipe.shape.sequence;
    o.sources.choose(o.dropout, recipe.dropout);
    take_optimizer(o);
    return o;
}

// Dry runs of all candidates: one process then checks all kernels that timing and the run may take.
template <class Real>
static void foresee_kernels(Options o, LaunchPad* pad, Communicator& job,
                            const std::vector<TextRecipe>& candidates) {
    o.sources.choose(o.sample_every, 1);
    for (TextRecipe recipe : candidates) {
        recipe.dropout = 0.1f;
        const Options with = with_model(o, recipe);
        memory_check<Real>(with, config_of(recipe), pad, job).need(shape_of(with));
    }
}

// The time of a step of a new model, in all processes at once; infinite if it does not fit in memory. A
// candidate's GEMMs are not tuned, which takes seconds, and it has no dropout but a given one, since the
// passes over the text follow from its time.
template <class Real>
static double time_step(const Options& options, LaunchPad* pad, Communicator& job, TextRecipe recipe,
                        bool is_candidate) {
    if (is_candidate) recipe.dropout = 0;
    Options o = with_model(options, recipe);
    const ModelConfig config = config_of(recipe);
    int64_t too_large = !memory_check<Real>(o, config, pad, job).fits_here(shape_of(o));
    job.all_reduce_max(&too_large, 1);
    if (too_large) return std::numeric_limits<double>::infinity();
    o.total_batch = recipe.shape.tokens_per_step;
    Division division;
    if (o.is_divided) {
        division = find_division<Real>(o, config, {}, pad, job, !is_candidate);
        share_cores(o, members_of(division), job);
    } else {
        // At least one: a given -d may be less than a batch, or no multiple of it, which check_batch()
        // refuses.
        const int micro_steps = std::max(1, o.total_batch / (o.batch * o.sequence * o.num_processes));
        division.resize(size_t(job.size), {"", micro_steps * o.batch, o.batch});
    }
    const double seconds = division_seconds<Real>(o, config, pad, division, job, !is_candidate);
    if (o.is_divided) share_cores(o, std::vector<bool>(division.size(), true), job);
    print_line(stdout, "measured: %s%s: %s per step", describe_shape(recipe).c_str(),
               is_candidate ? "" : ", as they will be trained",
               seconds < 10 ? format_string("%.4g ms", 1e3 * seconds).c_str() : duration(seconds).c_str());
    return seconds;
}

// Operations per second, for plans that measure nothing.
static double assumed_rate(const Options& o, const LaunchPad* pad) {
    const bool is_gpu = o.plans_device() || (pad && pad->device().is_gpu());
    return is_gpu ? 1e13 : 3e10 * omp_get_max_threads();
}

// What the first process chooses for a text, in all processes, which time its models together. Of each shape,
// one model is timed.
static TextRecipe agreed_recipe(const Options& o, const TextTokens& tokens, LaunchPad* pad,
                                std::map<std::string, double>& times, Communicator& job) {
    struct Next {
        TextRecipe recipe = {};
        enum { candidate, chosen, final } kind = candidate;
    };
    int64_t is_tuned = pad && pad->device().is_gpu();
    job.all_reduce_max(&is_tuned, 1);
    Next next;
    const auto time_in_all = [&](const Next& of_first) {
        next = of_first;
        job.broadcast(&next, sizeof next, 0);
        if (next.kind == Next::final) return 0.0;
        return with_precision(stored_type_name(o.precision), [&]<class Real>(Real) {
            return time_step<Real>(o, pad, job, next.recipe, next.kind == Next::candidate);
        });
    };
    while (job.rank > 0 && next.kind != Next::final) time_in_all({});
    if (job.rank > 0) return next.recipe;
    TextRecipe recipe = choose_recipe(o, tokens, pad, [&](const TextRecipe& candidate) {
        double& seconds = times[describe_shape(candidate)];
        if (o.plans_memory_only())  // of a device that need not be there
            seconds = 6 * candidate.parameters * candidate.shape.tokens_per_step / assumed_rate(o, pad);
        if (seconds == 0) seconds = time_in_all({candidate});
        return seconds;
    });
    const bool is_timed = recipe.step_seconds > 0 && std::isfinite(recipe.step_seconds);
    if (!o.plans_only() && is_timed && (is_tuned || recipe.dropout > 0)) {
        recipe.step_seconds = time_in_all({recipe, Next::chosen});
        recipe = recount(o, tokens, pad, recipe);
    }
    time_in_all({recipe, Next::final});
    return recipe;
}

// Error, before tokens are prepared, if HellaSwag's file is missing or not for so many tokens.
static void check_hellaswag(const Options& o, int vocab_size) {
    if (o.runs_hellaswag()) read_hellaswag(o.hellaswag_file, vocab_size);
}

// The options with those that are chosen for the tokens of --text.
static Options chosen_for(const TextTokens& tokens, const TextRecipe& recipe, Options o) {
    take_recipe(o, tokens, recipe);
    complete_options(o);
    return o;
}

// What other times would bring.
static void print_choices(Options o, const TextTokens& tokens, LaunchPad* pad,
                          std::map<std::string, double>& times, Communicator& job) {
    for (const double minutes : {1.0, 10.0, 60.0}) {
        o.minutes = minutes;
        const TextRecipe recipe = agreed_recipe(o, tokens, pad, times, job);
        print_line(stdout, "--minutes %g: %s", minutes, describe(o, tokens, recipe).c_str());
    }
}

// The options for the expected number of tokens, which `tokens` becomes. Error if they do not suit them.
static Options planned_for(Options o, const TextRecipe& recipe, const std::vector<PreparationOptions>& texts,
                           TextTokens& tokens) {
    check_hellaswag(o, recipe.vocab_size);
    take_tokenizer(o, recipe);
    tokens = plan_tokens(o, texts);
    o = chosen_for(tokens, recipe, o);
    o.expected_data = format_string(
        "about %llu training tokens, %llu validation tokens, of %s", (unsigned long long)tokens.train_tokens,
        (unsigned long long)tokens.val_tokens, printable(joined(o.text, ", ")).c_str());
    const bool is_exact = o.tokenizer == "bytes" && o.of_text.field.empty();
    if (is_exact || o.plans_only()) refuse_long_batch(o, tokens);
    return o;
}

void prepare_and_choose(Options& o, LaunchPad* pad, Communicator& job) {
    std::vector<PreparationOptions> texts;
    TextTokens tokens;
    int64_t has_bf16 = pad && pad->limits().bf16_fragment;
    job.all_reduce_max(&has_bf16, 1);
    if (has_bf16) o.sources.choose(o.precision, StoredType::bf16);
    job.agree([&] {
        check_model_of_text(o);
        // the vocabulary is checked again when it is known
        check_hellaswag(o, std::numeric_limits<uint16_t>::max());
        texts = find_texts(o);
        tokens = plan_tokens(o, texts);
    });
    if (pad && !o.plans_memory_only())
        with_precision(stored_type_name(o.precision), [&]<class Real>(Real) {
            foresee_kernels<Real>(o, pad, job, candidates_of(o, tokens, pad));
        });
    std::map<std::string, double> times;
    TextRecipe recipe = agreed_recipe(o, tokens, pad, times, job);
    Options planned;
    job.agree([&] {
        planned = planned_for(o, recipe, texts, tokens);
        o.of_text.pack_tokens = planned.sequence;
    });
    if (o.plans_only()) {
        const bool is_free = !finetunes(o) && !o.is_given(o.max_steps) && !o.is_given(o.epochs);
        if (is_free && recipe.step_seconds > 0 && !o.plans_memory_only())
            print_choices(o, tokens, pad, times, job);
        o = planned;
        if (recipe.step_seconds > 0 && o.plans_memory_only())
            o.notes.push_back(
                format_string("no time is measured: the choice is for a device of %.3g operations per second",
                              assumed_rate(o, pad)));
        return plan_without_tokens(o, tokens);
    }
    take_tokenizer(o, recipe);
    int64_t are_staged = 0;
    job.agree([&] {
        if (job.rank == 0) are_staged = prepare_text(o, texts);
    });
    job.broadcast(&are_staged, sizeof are_staged, 0);
    job.agree([&] {
        tokens = find_tokens(o, are_staged, tokens);
        if (job.rank == 0) recipe = recount(o, tokens, pad, recipe);
    });
    job.broadcast(&recipe, sizeof recipe, 0);  // unlike processes may count otherwise
    job.agree([&] {
        o = chosen_for(tokens, recipe, o);
        o.notes.push_back(describe(o, tokens, recipe));
    });
}
