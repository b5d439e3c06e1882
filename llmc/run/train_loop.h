// The training loop: steps, and between them checkpoints, validation, HellaSwag and samples.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "llmc/distributed/communicator.h"
#include "llmc/model/schedulers.h"
#include "llmc/model/train_step.h"
#include "llmc/run/lease.h"
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
    const Lease& lease;  // of the folder
    double peak_rate;    // as in run_plan.h
    MainLog log = {};
    StepJudge judge = inputs.start.state.judge;
    uint64_t coin_state = inputs.start.state.coin_state;  // before this step's sample, which a resume repeats
    uint64_t next_coin_state = coin_state;                // after it
    int stopping = 0;                                     // the signal that ends the run before the next step
    bool is_complete = false;                             // the checkpoint that ends the run is written
    bool saving = false;         // SIGUSR1 asks for a checkpoint; written before the next step
    std::string tokenizer = {};  // as in RunState
    int saved = inputs.start.resumed ? inputs.start.step : -1;  // step of the newest checkpoint; -1: none
    int healthy = inputs.start.state.healthy_checkpoint;        // as in RunState
    Validations validations = inputs.start.state.validations;
    std::vector<double> bits_per_nat = {};  // as in run_setup.h
    std::vector<float> source_losses = {};  // of the last validation
    ExtraCheckpoints extra = inputs.start.extra;
    std::optional<std::vector<int>> question = {};  // that samples answer, once it has been looked for

    // A batch that was read while the GPU ran the step before; `position` is where it begins.
    struct Batch {
        MixturePosition position = {};
        std::vector<int> inputs = {}, targets = {};
        size_t taken = 0;  // tokens, by micro-batches

        bool is_empty() const { return taken >= inputs.size(); }
        // A micro-batch of so many tokens; those that are missing do not count.
        void take(int* to_inputs, int* to_targets, int tokens);
    };
    // Of the steps since the last division, less the first: seconds in which this process computed
    struct Computed {
        int steps = -1;
        double seconds = 0;
    };
    Computed computed = {};
    OwnPart own = own_part(options, inputs.division, inputs.length.micro_steps);
    std::optional<Batch> read_ahead = {};
    // A step that was started and not yet reported. In a job, at most the last copies of its weights are
    // under way.
    struct Pending {
        int step;
        Ticket ticket;
        double returned;  // when StepRunner::run() did
    };
    std::optional<Pending> pending = {};
    StepJudge::Verdict verdict = {};       // on the last judged step
    std::optional<Phase> first_step = {};  // until it is reported
    Scheduler scheduler = {.schedule = options.scheduler,
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

    bool ends(int step) const { return step == inputs.length.max_steps || out_of_patience(); }
    bool out_of_patience() const { return options.patience && validations.since_best >= options.patience; }
    // Whether something that happens every `every` steps (0: never) and at the end is due.
    bool due(int step, int every) const { return every && (ends(step) || (step > 0 && step % every == 0)); }
    // A checkpoint knows of the validation at its own step, which comes first. A run that resumes there does
    // not repeat it, but logs its loss again.
    bool was_validated(int step) const { return step == validations.last_step; }
    bool validates(int step) const {
        return was_validated(step) || (!inputs.val.empty() && options.val_every && step == 0) ||
               (!inputs.val.empty() && due(step, options.val_every));
    }
    bool runs_hellaswag(int step) const { return !inputs.examples.empty() && due(step, options.val_every); }
    bool samples(int step) const { return due(step, options.sample_every); }
    bool is_on_schedule(int step) const {
        return options.saves() &&
               (options.checkpoint_every > 0 ? due(step, options.checkpoint_every) : ends(step));
    }
    // A checkpoint saved for a signal lacks the step's validation, so a resumed run writes it again.
    bool is_saved(int step) const { return saved == step && !extra.count(step); }
    bool evaluates_or_saves(int step) const {
        return ends(step) || stopping || saving || validates(step) || runs_hellaswag(step) || samples(step) ||
               is_on_schedule(step);
    }

    // --- the parts of the loop ---

    bool advance(int step);
    // Sets `stopping` and `saving` in all processes. Returns whether the run continues.
    bool agree_on_signals();
    void evaluate_and_save(int step);
    // If the processes' speeds have changed, divides the following steps anew. All processes call it.
    void follow_speeds();
    // Writes a checkpoint and deletes those that it replaces. All processes call it.
    void save(int step, const MixturePosition& position, WrittenFor reason);
    void write_files(int step, const MixturePosition& position, WrittenFor reason, int last_healthy);
    std::optional<WrittenFor> reason_to_save(int step, bool is_best) const;
    void fail_if_diverged() const;
    // Whether the checkpoint of a step is still there; true if the system cannot tell.
    bool has_checkpoint(int step) const;
    std::string where_to_resume() const;
    // Does the work. After an error, saves the steps before this one, and ends the run.
    void attempt(int step, const MixturePosition& position, const std::function<void()>& work);
    [[noreturn]] void save_and_fail(int step, const MixturePosition& position, const std::exception& error);
    // Returns whether the step has the lowest loss so far.
    bool validate(int step);
    std::optional<float> measure_loss(int step);
    // Of all sources; NaN: unknown.
    double all_bits_per_nat() const;
    void report_validation() const;
    void report_best() const;
    void run_hellaswag(int step);
    void load_best_for_sample(int step);
    SampleOptions sample_options();
    void sample();
    bool skips_outliers() const { return options.skip_loss > 0 || options.skip_gradient > 0; }
    MixturePosition position() const { return read_ahead ? read_ahead->position : inputs.loader->position(); }
    Batch read_batch();
    void start_step(int step);
    void report_pending();
};
