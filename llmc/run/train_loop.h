// The training loop: steps, and between them checkpoints, validation, HellaSwag and samples.
#pragma once
#include <cstdio>
#include <optional>

#include "llmc/base/signals.h"
#include "llmc/data/saved_shards.h"
#include "llmc/model/train_step.h"
#include "llmc/run/evaluate.h"
#include "llmc/run/model_checkpoint.h"
#include "llmc/run/progress.h"
#include "llmc/run/run_plan.h"
#include "llmc/run/run_setup.h"
#include "llmc/run/schedulers.h"

// A run: fill the fields without default values, open the log, then call loop().
template <class Real>
struct Run {
    const Options& options;
    RunInputs& inputs;
    GPT2<Real>& g;
    StepRunner<Real>& runner;
    double peak_rate;  // as in run_plan.h
    MainLog log = {};
    StepJudge judge = inputs.start.state.judge;
    uint64_t coin_state = inputs.start.state.coin_state;
    int stopping = 0;  // the signal that ends the run before the next step; checked once per step

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
                         .memory_bytes = g.memory.bytes};

    // Trains up to the last step, or until a signal sets `stopping`. On a device nothing waits: the host
    // looks at a step's loss while the next step runs, unless outliers are to be skipped.
    void loop();

    // --- what is due before a step ---

    // Whether something that happens every `every` steps (0: never) and at the end is due.
    bool due(int step, int every) const {
        return every && (step == inputs.length.max_steps || (step > 0 && step % every == 0));
    }
    bool validates(int step) const {
        return inputs.val && options.val_every && (step == 0 || due(step, options.val_every));
    }
    bool runs_hellaswag(int step) const { return !inputs.examples.empty() && due(step, options.val_every); }
    bool samples(int step) const { return due(step, options.sample_every); }
    bool saves(int step) const {
        const bool is_there = inputs.start.resumed && step == inputs.start.step;
        return !options.output.empty() && (due(step, options.checkpoint_every) || stopping) && !is_there;
    }
    bool pauses(int step) const {
        return step == inputs.length.max_steps || stopping || validates(step) || runs_hellaswag(step) ||
               samples(step) || saves(step);
    }

    // --- the parts of the loop ---

    void pause(int step);
    void save(int step);
    void validate(int step);
    bool skips_outliers() const { return options.skip_loss > 0 || options.skip_gradient > 0; }
    void start_step(int step);
    void show_first_step(int step, int micro_step);
    void report_pending();
};

template <class Real>
void Run<Real>::loop() {
    judge.loss_limit = options.skip_loss;
    judge.norm_limit = options.skip_gradient;
    if (skips_outliers())
        runner.accept = [&](const float* stats) {
            verdict = judge.judge(stats[0], stats[1], stats[2]);
            return verdict.applied();
        };
    progress.restart_clock();
    for (int step = inputs.start.step; step <= inputs.length.max_steps; step++) {
        stopping = stop_signal();
        if (pauses(step)) {
            runner.finish_update();
            report_pending();
            pause(step);
            progress.restart_clock();
        }
        if (step == inputs.length.max_steps || stopping) break;
        start_step(step);
    }
    progress.print_summary(judge);
}

// Starts a step, and reports the one before while it runs.
template <class Real>
void Run<Real>::start_step(int step) {
    runner.on_micro_step = nullptr;
    if (step == inputs.start.step) runner.on_micro_step = [=, this](int i) { show_first_step(step, i); };
    const Ticket ticket = runner.run(step, learning_rate(scheduler, step), [&](int* batch, int* targets) {
        if (options.overfit) inputs.loader.reset();
        inputs.loader.next_batch(batch, targets);
    });
    report_pending();
    pending = Pending{step, ticket};
    const bool has_run = !g.pad || skips_outliers();
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
    const float* stats = runner.stats(step, ticket);
    if (!skips_outliers()) verdict = judge.judge(stats[0], stats[1], stats[2]);
    first_step.reset();
    progress.report(step, stats[0], stats[1], learning_rate(scheduler, step), verdict);
}

// The checkpoint comes first, so that a run resumed from it repeats the rest.
template <class Real>
void Run<Real>::pause(int step) {
    clear_status_line();
    if (saves(step)) save(step);
    if (stopping) return;
    if (validates(step)) validate(step);
    if (runs_hellaswag(step)) {
        const int correct = hellaswag_correct(g, inputs.examples);
        print_hellaswag(correct, inputs.examples.size());
        log.log_eval(step, float(correct) / float(inputs.examples.size()));
    }
    if (samples(step)) sample_text(g, inputs.tokenizer, options.sample_tokens, options.sampler, coin_state);
}

template <class Real>
void Run<Real>::save(int step) {
    OptimizerState optimizer = inputs.start.optimizer;  // with llm.c's random state if llm.c began the run
    optimizer.step = step;
    optimizer.use_master_weights = g.master[0];
    optimizer.data = inputs.loader.position();
    save_checkpoint(g, options.output, optimizer,
                    {.precision = real_name<Real>(),
                     .seed = options.seed,
                     .shards = shards_of(inputs.loader),
                     .chunk_tokens = optimizer.data.sample_tokens,
                     .token_in_sample = optimizer.data.token_in_sample,
                     .coin_state = coin_state,
                     .scaling = runner.scaling,
                     .judge = judge});
    prune_checkpoints(options.output, step, options.keep_checkpoints, options.major_checkpoint_every);
}

template <class Real>
void Run<Real>::validate(int step) {
    std::optional<Phase> phase;
    const bool before_first_step = step == inputs.start.step;  // a log is told of later ones by their losses
    if (before_first_step || on_terminal()) phase.emplace("validating");
    const float loss = validation_loss(g, *inputs.val, options.batch, options.sequence, options.val_batches,
                                       [&](int done, int total) {
                                           if (phase) phase->update("batch " + count_text(done, total));
                                       });
    phase.reset();
    printf("val loss %f\n", loss);
    log.log_val(step, loss);
}
