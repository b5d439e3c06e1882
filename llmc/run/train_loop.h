// The training loop: steps, and between them checkpoints, validation, HellaSwag and samples.
#pragma once
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "llmc/base/signals.h"
#include "llmc/base/warning.h"
#include "llmc/data/saved_shards.h"
#include "llmc/distributed/communicator.h"
#include "llmc/model/schedulers.h"
#include "llmc/model/train_step.h"
#include "llmc/run/evaluate.h"
#include "llmc/run/model_checkpoint.h"
#include "llmc/run/progress.h"
#include "llmc/run/run_plan.h"
#include "llmc/run/run_setup.h"

// A run: fill the fields without default values, open the log, then call loop().
template <class Real>
struct Run {
    const Options& options;
    RunInputs& inputs;
    GPT2<Real>& g;
    Optimizer<Real>& optimizer;
    StepRunner<Real>& runner;
    Communicator& job;
    double peak_rate;  // as in run_plan.h
    MainLog log = {};
    StepJudge judge = inputs.start.state.judge;
    uint64_t coin_state = inputs.start.state.coin_state;
    int stopping = 0;            // the signal that ends the run before the next step; checked once per step
    bool saving = false;         // SIGUSR1 asks for a checkpoint before the next step
    std::string tokenizer = {};  // as in RunState
    int saved = inputs.start.resumed ? inputs.start.step : -1;  // step of the newest checkpoint; -1: none
    int healthy = inputs.start.state.healthy_checkpoint;        // as in RunState
    int best = inputs.start.state.best_checkpoint;              // the same
    double best_loss = inputs.start.state.best_loss;
    bool best_is_extra = inputs.start.state.best_is_extra;  // the same

    // A batch that was read while the GPU ran the step before; `position` is where it begins.
    struct Batch {
        DataPosition position;
        std::vector<int> inputs, targets;
    };
    std::optional<Batch> read_ahead = {};
    // A step that was started and not yet reported.
    struct Pending {
        int step;
        Ticket ticket;
    };
    std::optional<Pending> pending = {};
    StepJudge::Verdict verdict = {};       // on the last judged step
    std::optional<Phase> first_step = {};  // until it is reported
    Scheduler scheduler = {.schedule = parse_schedule(options.scheduler),
                           .peak = options.learning_rate,
                           .warmup_steps = options.warmup,
                           .num_steps = inputs.length.max_steps,
                           .final_fraction = options.final_fraction};
    Progress progress = {.log = log,
                         .max_steps = inputs.length.max_steps,
                         .tokens_per_step = inputs.length.tokens_per_step,
                         .flops_per_token = flops_per_token(g.config, options.sequence),
                         .peak_rate = peak_rate,
                         .precision = real_name<Real>(),
                         .memory_bytes = g.memory.bytes,
                         .log_every = options.log_every};

    // Trains up to the last step, or until a signal sets `stopping`. On a device nothing waits: the host
    // looks at a step's loss while the next step runs, unless outliers are to be skipped. An error says where
    // the run can be resumed.
    void loop();

    // --- what is due before a step ---

    // Whether something that happens every `every` steps (0: never) and at the end is due.
    bool due(int step, int every) const {
        return every && (step == inputs.length.max_steps || (step > 0 && step % every == 0));
    }
    // A checkpoint does not know of validations at its own step, which come after it: with --keep-best, a
    // resumed run repeats them, also that of what was the last step.
    bool validates(int step) const {
        const bool is_first = step == 0 || (options.keep_best && step == inputs.start.step);
        return inputs.val && options.val_every && (is_first || due(step, options.val_every));
    }
    bool runs_hellaswag(int step) const { return !inputs.examples.empty() && due(step, options.val_every); }
    bool samples(int step) const { return due(step, options.sample_every); }
    bool saves(int step) const {
        const bool is_there = inputs.start.resumed && step == inputs.start.step;
        return !options.output.empty() && !is_there &&
               (due(step, options.checkpoint_every) || stopping || saving);
    }
    bool pauses(int step) const {
        return step == inputs.length.max_steps || stopping || validates(step) || runs_hellaswag(step) ||
               samples(step) || saves(step);
    }

    // --- the parts of the loop ---

    bool advance(int step);
    void look_for_signals();
    void pause(int step);
    // Writes a checkpoint. All processes call it.
    void write(int step, const DataPosition& position);
    void save(int step, const DataPosition& position) {
        write(step, position);
        prune(step);
    }
    bool writes() const { return job.rank == 0 || optimizer.share.count > 1; }
    void prune(int newest) const {
        if (job.rank > 0) return;
        prune_checkpoints(options.output, newest, options.keep_checkpoints, options.major_checkpoint_every,
                          {healthy, best, best_is_extra});
    }
    void stop_if_diverged() const;
    std::string where_to_resume() const;
    [[noreturn]] void save_and_fail(int step, const DataPosition& position, const std::exception& error);
    float validate(int step);
    void keep_if_best(int step, float loss);
    bool skips_outliers() const { return options.skip_loss > 0 || options.skip_gradient > 0; }
    DataPosition position() const { return read_ahead ? read_ahead->position : inputs.loader->position(); }
    Batch read_batch();
    void start_step(int step);
    void show_first_step(int step, int micro_step);
    void report_pending();
};

template <class Real>
void Run<Real>::loop() {
    judge.loss_limit = options.skip_loss;
    judge.norm_limit = options.skip_gradient;
    if (skips_outliers())
        runner.accept = [&](const StepStats& stats) {
            verdict = judge.judge(stats.loss, stats.gradient_norm, stats.gradient_scale);
            return verdict.applied();
        };
    progress.restart_clock();
    try {
        for (int step = inputs.start.step; advance(step);) step++;
    } catch (const DeviceLost& lost) {
        fail("%s; %s", lost.what(), where_to_resume().c_str());
    }
    progress.print_summary(judge);
}

// Does what is due before the step, then starts it. Returns false if the run ends before it.
template <class Real>
bool Run<Real>::advance(int step) {
    look_for_signals();
    if (pauses(step)) {
        runner.gather_weights();
        report_pending();
        stop_if_diverged();
        pause(step);
        progress.restart_clock();
    }
    if (step == inputs.length.max_steps || stopping) return false;
    start_step(step);
    stop_if_diverged();
    return true;
}

template <class Real>
void Run<Real>::look_for_signals() {
    int64_t signals[] = {stop_signal(), take_save_request()};  // to any process
    job.all_reduce_max(signals, 2);
    stopping = int(signals[0]);
    saving = signals[1];
    if (saving && options.output.empty()) printf("note: SIGUSR1 saves nothing, since there is no -o\n");
}

// The next batch of this process.
template <class Real>
typename Run<Real>::Batch Run<Real>::read_batch() {
    if (options.overfit) inputs.loader->reset();
    const int tokens = options.batch * options.sequence;
    Batch batch = {inputs.loader->position(), std::vector<int>(tokens), std::vector<int>(tokens)};
    next_batch_slice(*inputs.loader, batch.inputs.data(), batch.targets.data(), tokens, job.rank, job.size);
    return batch;
}

// Starts a step. While it runs, the host reports the one before, and reads the next one's first batch if the
// processes of a job will wait for each other.
template <class Real>
void Run<Real>::start_step(int step) {
    runner.on_micro_step = nullptr;
    if (step == inputs.start.step) runner.on_micro_step = [=, this](int i) { show_first_step(step, i); };
    runner.on_submitted = nullptr;
    if (job.size > 1)
        runner.on_submitted = [=, this] {
            report_pending();
            if (step + 1 < inputs.length.max_steps) read_ahead = read_batch();
        };
    const DataPosition begin = position();
    Ticket ticket = 0;
    try {
        ticket = runner.run(step, learning_rate(scheduler, step), [&](int* batch, int* targets) {
            const Batch next = read_ahead ? *std::exchange(read_ahead, {}) : read_batch();
            std::copy(next.inputs.begin(), next.inputs.end(), batch);
            std::copy(next.targets.begin(), next.targets.end(), targets);
        });
    } catch (const DeviceLost&) {
        throw;
    } catch (const std::exception& error) {
        save_and_fail(step, begin, error);
    }
    report_pending();
    pending = Pending{step, ticket};
    const bool has_run = !g.pad || skips_outliers();   // the host has waited for it
    if (has_run || options.profile) report_pending();  // a profile times every step by itself
}

template <class Real>
void Run<Real>::show_first_step(int step, int micro_step) {
    const std::string detail = "micro-batch " + count_text(micro_step + 1, runner.micro_steps);
    if (first_step)
        first_step->update(detail);
    else
        first_step.emplace(format_string("step %d", step + 1), detail);
}

template <class Real>
void Run<Real>::report_pending() {
    if (!pending) return;
    const auto [step, ticket] = *pending;
    pending.reset();
    const StepStats& stats = runner.stats(step, ticket);
    if (!skips_outliers()) verdict = judge.judge(stats.loss, stats.gradient_norm, stats.gradient_scale);
    first_step.reset();
    progress.report(step, stats.loss, stats.gradient_norm, learning_rate(scheduler, step), verdict);
}

// The checkpoint comes first, so that a run resumed from it repeats the rest.
template <class Real>
void Run<Real>::pause(int step) {
    clear_status_line();
    if (saves(step)) save(step, position());
    if (stopping) return;
    if (validates(step)) keep_if_best(step, validate(step));
    if (runs_hellaswag(step)) {
        const int correct = hellaswag_correct(g, inputs.examples, job);
        print_hellaswag(correct, inputs.examples.size());
        log.log_eval(step, float(correct) / float(inputs.examples.size()));
    }
    if (samples(step) && job.rank == 0)
        sample_text(g, inputs.tokenizer, options.sample_tokens, options.sampler, coin_state);
}

template <class Real>
void Run<Real>::write(int step, const DataPosition& position) {
    OptimizerState state = inputs.start.optimizer;  // with llm.c's random state if llm.c began the run
    state.step = step;
    state.use_master_weights = optimizer.master[0];
    state.data = position;
    const int last_healthy = judge.is_healthy(step) ? step : healthy;
    if (writes())
        save_checkpoint(g, optimizer, options.output, state,
                        {.precision = real_name<Real>(),
                         .seed = options.seed,
                         .shards = shards_of(*inputs.loader),
                         .chunk_tokens = state.data.sample_tokens,
                         .token_in_sample = state.data.token_in_sample,
                         .coin_state = coin_state,
                         .options = options.effective,
                         .tokenizer = tokenizer,
                         .scaling = runner.scaling,
                         .judge = judge,
                         .healthy_checkpoint = last_healthy,
                         .best_checkpoint = best,
                         .best_loss = best_loss,
                         .best_is_extra = best_is_extra,
                         .tokens = inputs.tokens_before(step)},
                        job);
    saved = step;
    healthy = last_healthy;
}

// A run of skipped updates does not recover by itself: the parameters have left the region that trains.
template <class Real>
void Run<Real>::stop_if_diverged() const {
    if (!options.max_not_finite || judge.not_finite_in_a_row < options.max_not_finite) return;
    std::string advice = "start again with a lower learning rate (-l) or a longer warm-up (-u)";
    if (healthy >= 0)
        advice = format_string("%sresume with -y 1 and a lower learning rate (-l) from step %d",
                               saved > healthy ? "delete the later checkpoints and " : "", healthy);
    fail(
        "the run has diverged: the last %d updates were skipped, since their loss or gradient was not "
        "finite; %s",
        judge.not_finite_in_a_row, advice.c_str());
}

template <class Real>
std::string Run<Real>::where_to_resume() const {
    if (options.output.empty()) return "nothing was saved, since there is no -o";
    if (saved < 0) return "there is no checkpoint yet (-n sets how often one is written)";
    return format_string("the steps after %d are lost, and -y 1 resumes from there", saved);
}

// Ends the run after an error in `step`, which began at `position`; first saves the steps before it, if that
// is still possible.
template <class Real>
void Run<Real>::save_and_fail(int step, const DataPosition& position, const std::exception& error) {
    const std::string message = message_for(error);
    // other processes wait for this one, and cannot write their parts
    if (optimizer.share.count > 1) fail("%s; %s", message.c_str(), where_to_resume().c_str());
    if (options.output.empty() || job.rank > 0 || step <= std::max(saved, inputs.start.step))
        throw Error(message);
    try {
        report_pending();
        save(step, position);
    } catch (const std::exception&) {
        fail("%s; %s", message.c_str(), where_to_resume().c_str());
    }
    fail("%s; the steps before this were saved: -y 1 resumes from step %d", message.c_str(), step);
}

template <class Real>
float Run<Real>::validate(int step) {
    std::optional<Phase> phase;
    const bool before_first_step = step == inputs.start.step;  // a log is told of later ones by their losses
    if (before_first_step || on_terminal()) phase.emplace("validating");
    const float loss = validation_loss(g, *inputs.val, options.batch, options.sequence, options.val_batches,
                                       job, [&](int done, int total) {
                                           if (phase) phase->update("batch " + count_text(done, total));
                                       });
    phase.reset();
    printf("val loss %f\n", loss);
    log.log_val(step, loss);
    return loss;
}

// --keep-best: saves the step's checkpoint if its validation loss is the lowest. The one that it replaces
// goes if it was saved for this reason only, and the others stay as without --keep-best.
template <class Real>
void Run<Real>::keep_if_best(int step, float loss) {
    if (!options.keep_best || step == 0 || !std::isfinite(loss)) return;
    if (best >= 0 && loss >= best_loss) return;
    const bool again = best_is_extra && best == step;  // a resumed run validates its checkpoint again
    const int replaced = best_is_extra && !again ? best : -1;
    best = step;
    best_loss = loss;
    best_is_extra = again || saved != step;
    if (saved != step) write(step, position());
    printf("step %d has the lowest validation loss so far, %f; its checkpoint is kept\n", step, loss);
    const int major = options.major_checkpoint_every;
    const bool stays = replaced == healthy || (major && replaced % major == 0);
    try {
        if (replaced >= 0 && !stays && job.rank == 0) delete_checkpoint(options.output, replaced);
    } catch (const Error& error) {
        warn(error.what());
    }
    prune(step);
}
