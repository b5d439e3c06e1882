#include "llmc/run/train_loop.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/base/signals.h"
#include "llmc/base/system_files.h"
#include "llmc/data/ignored_target.h"
#include "llmc/data/saved_shards.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/model_source.h"
#include "llmc/model/gradient_exchange.h"
#include "llmc/options/option_files.h"
#include "llmc/run/device_job.h"
#include "llmc/run/evaluate.h"
#include "llmc/run/model_checkpoint.h"
#include "llmc/run/processes.h"

template <class Real>
void Run<Real>::loop() {
    judge.loss_limit = options.skip_loss;
    judge.norm_limit = options.skip_gradient;
    if (skips_outliers())
        runner.should_update = [&](const StepStats& stats) {
            verdict = judge.judge(stats.loss, stats.gradient_norm, stats.gradient_scale);
            return verdict.applied();
        };
    job.set_ending(options.timeout * 60, where_to_resume());
    progress.restart_clock();
    try {
        for (int step = inputs.start.step; advance(step);) step++;
    } catch (const DeviceLost& lost) {
        throw DeviceLost(format_string("%s; %s", lost.what(), where_to_resume().c_str()));
    }
    progress.print_summary(judge);
    if (validations.last_step >= 0) report_best();
}

// Ends a step between two micro-batches.
struct Stopped {};

// Does what is due before the step, then starts it. Returns false if the run ends before it.
template <class Real>
bool Run<Real>::advance(int step) {
    lease.check_soon();
    agree_on_signals();
    if (evaluates_or_saves(step)) {
        runner.gather_weights();
        report_pending();
        fail_if_diverged();
        evaluate_and_save(step);
        progress.restart_clock();
    }
    if (ends(step) || stopping) return false;
    start_step(step);
    if (stopping) return advance(step);  // the step was not finished
    coin_state = next_coin_state;
    fail_if_diverged();
    return true;
}

template <class Real>
bool Run<Real>::agree_on_signals() {
    int64_t signals[] = {stop_signal(), take_save_request()};  // to any process
    job.all_reduce_max(signals, 2);
    stopping = int(signals[0]);
    if (signals[1] && !options.saves())
        printf("note: SIGUSR1 saves nothing, since %s\n", why_nothing_is_saved(options));
    else if (signals[1])
        saving = true;
    return !stopping;
}

template <class Real>
typename Run<Real>::Batch Run<Real>::read_batch() {
    if (options.overfit) inputs.loader->reset();
    const int tokens = own.sequences.count * options.sequence;
    Batch batch = {inputs.loader->position(), std::vector<int>(tokens), std::vector<int>(tokens)};
    inputs.loader->next_batch(batch.inputs.data(), batch.targets.data(), own.sequences);
    return batch;
}

template <class Real>
void Run<Real>::Batch::take(int* to_inputs, int* to_targets, int tokens) {
    const int some = std::min(tokens, int(inputs.size() - taken));
    std::fill(std::copy_n(inputs.data() + taken, some, to_inputs), to_inputs + tokens, 0);
    std::fill(std::copy_n(targets.data() + taken, some, to_targets), to_targets + tokens, ignored_target);
    taken += size_t(some);
}

// Starts a step. While it runs, the host reports the one before, and reads the next one's first batch if the
// processes of a job will wait for each other. A signal ends the step between two batches that the processes
// draw together: then the parameters and the data are as before it.
template <class Real>
void Run<Real>::start_step(int step) {
    runner.on_micro_step = nullptr;
    if (step == inputs.start.step)
        runner.on_micro_step = [=, this](int i) {
            update_phase(first_step, format_string("step %d", step + 1),
                         format_string("micro-batch %d of %d", i + 1, runner.micro_steps));
        };
    runner.on_submitted = nullptr;
    if (job.size > 1)
        runner.on_submitted = [=, this] {
            report_pending();
            if (step + 1 == inputs.length.max_steps) return;
            read_ahead = read_batch();
            std::vector<int> first = read_ahead->inputs;
            first.resize(size_t(runner.B) * runner.T);  // with 0 where take() has it
            runner.exchange->announce(InputsOf::next_step, first);
        };
    const MixturePosition begin = position();
    Ticket ticket = 0;
    bool is_first = true;
    Batch batch;
    const double start = now(), waited = job.waited;
    try {
        attempt(step, begin, [&] {
            ticket = runner.run(step, learning_rate(scheduler, step), [&](int* to_inputs, int* to_targets) {
                if (batch.is_empty()) {
                    if (!std::exchange(is_first, false) && !agree_on_signals()) throw Stopped();
                    batch = read_ahead ? *std::exchange(read_ahead, {}) : read_batch();
                }
                batch.take(to_inputs, to_targets, runner.B * runner.T);
            });
        });
    } catch (const Stopped&) {
        return inputs.loader->resume(begin);
    }
    const double submitting = now() - start;
    if (computed.steps++ >= 0) computed.seconds += submitting - (job.waited - waited);
    report_pending();
    pending = Pending{step, ticket, now()};
    // A slow device takes the last commands of a step when it has executed the others: what is left is
    // little.
    const bool is_slow = job.size == 1 && submitting > 0.1;
    const bool has_run = !g.pad || skips_outliers() || is_slow || g.pad->is_done(ticket);
    if (has_run || options.profile) report_pending();  // a profile times every step by itself
    // During its first step, a GPU that was idle raises its clock: those times would distort the profile.
    const bool is_warm_up = step == inputs.start.step && step + 1 < inputs.length.max_steps;
    if (options.profile && g.pad && is_warm_up) g.pad->take_kernel_times();
}

template <class Real>
void Run<Real>::report_pending() {
    if (!pending) return;
    const auto [step, ticket, returned] = *pending;
    pending.reset();
    const StepStats& stats = runner.stats(step, ticket);
    const double end = job.size > 1 ? returned : now();
    if (!skips_outliers()) verdict = judge.judge(stats.loss, stats.gradient_norm, stats.gradient_scale);
    first_step.reset();
    progress.report(step, end, stats.loss, stats.gradient_norm, learning_rate(scheduler, step), verdict);
}

// What is saved knows of the validation, so that a run that resumes does not repeat it. The rest it repeats.
template <class Real>
void Run<Real>::evaluate_and_save(int step) {
    clear_status_line();
    note_devices(options, g.pad, job);
    const MixturePosition begin = position();
    bool is_best = false;
    if (!stopping && validates(step)) attempt(step, begin, [&] { is_best = validate(step); });
    if (const auto reason = reason_to_save(step, is_best)) save(step, begin, *reason);
    is_complete = ends(step) && is_saved(step);
    saving = false;  // a signal that comes from here on is for the next step
    if (!stopping && runs_hellaswag(step)) attempt(step, begin, [&] { run_hellaswag(step); });
    if (!stopping && samples(step)) {
        if (ends(step)) load_best_for_sample(step);
        attempt(step, begin, [&] { sample(); });
    }
    if (stopping && saved != step && options.saves()) save(step, begin, WrittenFor::signal);
}

template <class Real>
std::optional<WrittenFor> Run<Real>::reason_to_save(int step, bool is_best) const {
    if (stopping) return std::nullopt;
    if (is_on_schedule(step) && !is_saved(step)) return WrittenFor::schedule;
    if (is_best && options.saves_best() && !is_saved(step)) return WrittenFor::best;
    if (saving && saved != step) return WrittenFor::signal;
    return std::nullopt;
}

template <class Real>
void Run<Real>::write_files(int step, const MixturePosition& position, WrittenFor reason, int last_healthy) {
    OptimizerState state = inputs.start.optimizer;  // with llm.c's random state if llm.c began the run
    state.step = step;
    state.use_master_weights = optimizer.master[0];
    state.data = position.of[0];
    save_checkpoint(g, optimizer, options.output, state,
                    {.precision = real_name<Real>(),
                     .seed = options.seed,
                     .shards = shards_of(*inputs.loader),
                     .chunk_tokens = state.data.sample_tokens,
                     .token_in_sample = state.data.token_in_sample,
                     .first_token = state.data.first_token,
                     .mixture = {inputs.loader->shares, position.sequences()},
                     .coin_state = coin_state,
                     .options = options_text(options),
                     .tokenizer = tokenizer,
                     .positions = inputs.start.state.positions,
                     .max_steps = inputs.length.max_steps,
                     .scaling = runner.scaling,
                     .judge = judge,
                     .healthy_checkpoint = last_healthy,
                     .validations = validations,
                     .written_for = reason,
                     .division = inputs.division,
                     .tokens = inputs.tokens_before(step)},
                    job, [this] { lease.check(); });
}

template <class Real>
void Run<Real>::follow_speeds() {
    const Computed done = std::exchange(computed, {});
    if (inputs.division.empty() || own_share(options) > 0) return;
    const double sequences = double(own.micro_steps) * own.micro_batch * std::max(done.steps, 1);
    const Division next =
        division_by_speed(inputs.division, options, done.steps > 0 ? done.seconds / sequences : 0, job);
    if (next == inputs.division) return;
    print_line(stdout, "note: speeds have changed; division of a step: %s", division_text(next).c_str());
    inputs.division = next;
    own = own_part(options, next, inputs.length.micro_steps);
    runner.B = own.micro_batch;
    runner.micro_steps = own.micro_steps;
    runner.forget_recordings();
    if (read_ahead) inputs.loader->resume(std::exchange(read_ahead, {})->position);
}

template <class Real>
void Run<Real>::save(int step, const MixturePosition& position, WrittenFor reason) {
    // a resumed run takes the division from the checkpoint; an undisturbed one writes none for a signal
    if (reason != WrittenFor::signal && !ends(step)) follow_speeds();
    // An undisturbed run does not write for a signal, and its later checkpoints must not differ.
    const int last_healthy = reason != WrittenFor::signal && judge.is_healthy(step) ? step : healthy;
    try {
        write_files(step, position, reason, last_healthy);
    } catch (const DeviceLost&) {
        throw;
    } catch (const LostLease&) {
        throw;
    } catch (const std::exception& error) {
        fail("%s; %s", message_for(error).c_str(), where_to_resume().c_str());
    }
    saved = step;
    job.set_ending(options.timeout * 60, where_to_resume());
    healthy = last_healthy;
    extra.erase(step);
    if (reason != WrittenFor::schedule) extra[step] = reason;
    if (job.rank > 0) return;
    prune_checkpoints(options.output, {.newest = step,
                                       .keep = options.keep_checkpoints,
                                       .major = options.major_checkpoint_every,
                                       .healthy = healthy,
                                       .best = options.keep_best ? validations.best_step : -1,
                                       .extra = extra});
}

// A run of skipped updates does not recover by itself: the parameters have left the region that trains.
template <class Real>
void Run<Real>::fail_if_diverged() const {
    if (!options.max_not_finite || judge.not_finite_in_a_row < options.max_not_finite) return;
    std::string advice = "start again with a lower learning rate (-l) or a longer warm-up (-u)";
    if (healthy >= 0 && has_checkpoint(healthy))
        advice = format_string("%sresume with -y 1 and a lower learning rate (-l) from step %d",
                               saved > healthy ? "delete the later checkpoints and " : "", healthy);
    const int skipped = judge.not_finite_in_a_row;
    const std::string updates =
        skipped == 1 ? "update was skipped" : format_string("%d updates were skipped", skipped);
    fail("the run has diverged: the last %s, since the loss or gradient was not finite; %s", updates.c_str(),
         advice.c_str());
}

template <class Real>
bool Run<Real>::has_checkpoint(int step) const {
    return get_status(done_path(options.output, step)) || !is_missing(errno);
}

template <class Real>
std::string Run<Real>::where_to_resume() const {
    if (!options.saves()) return format_string("nothing was saved, since %s", why_nothing_is_saved(options));
    if (saved < 0) return "there is no checkpoint yet (-n sets how often one is written)";
    if (!has_checkpoint(saved))
        return format_string("the checkpoint of step %d was removed meanwhile", saved);
    return format_string("the steps after %d are lost, and %s resumes from there", saved,
                         resume_command(options).c_str());
}

template <class Real>
void Run<Real>::attempt(int step, const MixturePosition& position, const std::function<void()>& work) {
    try {
        work();
    } catch (const DeviceLost&) {
        throw;
    } catch (const std::exception& error) {
        save_and_fail(step, position, error);
    }
}

// Ends the run after an error in `step`, which began at `position`; first saves the steps before it, if that
// is still possible.
template <class Real>
void Run<Real>::save_and_fail(int step, const MixturePosition& position, const std::exception& error) {
    const std::string message = message_for(error);
    // other processes wait for this one, and cannot write their parts
    if (optimizer.share.count > 1) fail("%s; %s", message.c_str(), where_to_resume().c_str());
    if (!options.saves() || step <= inputs.start.step) throw Error(message);
    if (saved == step && has_checkpoint(step)) fail("%s; -y 1 resumes from step %d", message.c_str(), step);
    // of several submissions of the update, the first ones may have been executed
    if (runner.is_updating) fail("%s; %s", message.c_str(), where_to_resume().c_str());
    try {
        report_pending();
        save(step, position, WrittenFor::signal);
    } catch (const std::exception&) {
        fail("%s; %s", message.c_str(), where_to_resume().c_str());
    }
    fail("%s; the steps before this were saved: -y 1 resumes from step %d", message.c_str(), step);
}

template <class Real>
bool Run<Real>::validate(int step) {
    const bool again = was_validated(step);
    const std::optional<float> loss = again ? float(validations.last_loss) : measure_loss(step);
    if (!loss) return false;  // stopped
    // random weights are not worth keeping
    const bool may_be_best = step > 0 || looks_like_model_file(options.model);
    const bool is_best = !again && validations.add(step, *loss, may_be_best);
    report_validation();
    if (std::isfinite(*loss)) log.log_val(step, *loss, all_bits_per_nat() * *loss);
    return is_best;
}

template <class Real>
std::optional<float> Run<Real>::measure_loss(int step) {
    std::optional<Phase> phase;
    const bool before_first_step = step == inputs.start.step;  // a log is told of later ones by their losses
    if (before_first_step || on_terminal()) phase.emplace("validating");
    source_losses.clear();
    const int most = options.val_batches_each(inputs.val.size());
    for (DataLoader& val : inputs.val) {
        const auto loss = validation_loss(g, val, own, options.sequence, most, job, [&](int done, int total) {
            if (phase) phase->update(format_string("batch %d of %d", done, total));
            return agree_on_signals();
        });
        if (!loss) return std::nullopt;
        source_losses.push_back(*loss);
    }
    return float(mean_over_sources(inputs, [&](size_t i) { return source_losses[i]; }));
}

// A mixture has the mean bytes per token of its sources.
template <class Real>
double Run<Real>::all_bits_per_nat() const {
    if (bits_per_nat.empty()) return NAN;
    return 1 / mean_over_sources(inputs, [&](size_t i) { return 1 / bits_per_nat[i]; });
}

// ", 1.7812 bits per byte"; "" if unknown.
static std::string in_bits_per_byte(double bits) {
    return std::isfinite(bits) ? format_string(", %.4f bits per byte", bits) : "";
}

// Begins as llm.c's line does.
template <class Real>
void Run<Real>::report_validation() const {
    const Validations& v = validations;
    const std::vector<std::string> names = source_names(options);
    for (size_t i = 0; source_losses.size() > 1 && i < source_losses.size() && job.rank == 0; i++)
        print_line(stdout, "val loss of %s %f%s", names[i].c_str(), double(source_losses[i]),
                   in_bits_per_byte(bits_per_nat[i] * double(source_losses[i])).c_str());
    printf("val loss %f%s at step %d", v.last_loss,
           in_bits_per_byte(all_bits_per_nat() * v.last_loss).c_str(), v.last_step);
    if (!judge.losses.values.empty()) printf(" | training loss %f", judge.losses.values.back());
    if (v.best_step >= 0) printf(" | best %f at step %d", v.best_loss, v.best_step);
    printf("\n");
    if (!std::isfinite(v.last_loss))
        printf("note: this validation loss is not finite: it is not logged, and its step is not the best\n");
}

template <class Real>
void Run<Real>::report_best() const {
    const Validations& v = validations;
    if (out_of_patience())
        printf("the run ends after %s without a better one (--patience)%s\n",
               counted(v.since_best, "validation").c_str(),
               options.saves() && v.last_step < inputs.length.max_steps ? "; -y 1 --patience 0 continues it"
                                                                        : "");
    const bool is_saved =
        v.best_step >= 0 && !options.output.empty() && file_exists(done_path(options.output, v.best_step));
    if (v.best_step < 0)
        printf("validation loss: none %s after the first step; last %.4f\n",
               v.last_step > 0 ? "was finite" : "was computed", v.last_loss);
    else
        printf("validation loss: best %.4f%s at step %d, %s; last %.4f\n", v.best_loss,
               in_bits_per_byte(all_bits_per_nat() * v.best_loss).c_str(), v.best_step,
               is_saved ? "saved" : "not saved", v.last_loss);
}

// An accuracy that is no result must not end the run.
template <class Real>
void Run<Real>::run_hellaswag(int step) {
    const auto score = score_hellaswag(g, inputs.examples, &job, [&] { return agree_on_signals(); });
    if (!score) return;  // stopped
    try {
        print_hellaswag(*score);
        log.log_eval(step, float(score->right) / float(score->examples));
    } catch (const Error& error) {
        print_line(stdout, "note: %s", error.what());
    }
}

// After the last step, whose model is saved, the first process loads the model that `generate` takes, so the
// sample comes from that model.
template <class Real>
void Run<Real>::load_best_for_sample(int step) {
    const int best = validations.best_step;
    if (job.rank > 0 || !options.saves_best() || best < 0 || best == step ||
        !file_exists(model_path(options.output, best)))
        return;
    try {
        load_parameters(g, model_path(options.output, best), options.seed);
        print_line(stdout, "sample of the best model, of step %d:", best);
    } catch (const Error& error) {
        print_line(stdout, "note: the sample is not of the best model: %s", error.what());
    }
}

// The first question of the validation data that leaves room for an answer; empty: there is none.
static std::vector<int> find_question(const std::vector<DataLoader>& loaders, int most) {
    for (const DataLoader& loader : loaders) {
        const TokenShard& shard = loader.all_shards()[0].files[0];
        const uint64_t T = uint64_t(shard.packed ? shard.packed : 1024);
        std::vector<uint16_t> tokens(std::min(T, shard.tokens));
        for (uint64_t start = 0; shard.mask && start + tokens.size() <= shard.tokens; start += T) {
            read_tokens(shard, start, tokens.size(), tokens.data());
            std::vector<int> targets(tokens.begin(), tokens.end());
            ignore_targets(shard, start, targets);
            const auto answer = std::find_if(targets.begin() + 1, targets.end(),
                                             [](int target) { return target != ignored_target; });
            const auto length = answer - targets.begin();
            if (length == 1) return {};  // questions are learnt, too
            if (answer != targets.end() && length <= 3 * most / 4)
                return {tokens.begin(), tokens.begin() + length};
            if (!shard.packed) break;
        }
    }
    return {};
}

template <class Real>
SampleOptions Run<Real>::sample_options() {
    SampleOptions o = {.length = options.sample_tokens,
                       .positions = inputs.start.state.positions,
                       .sampler = options.sampler};
    if (!question && inputs.tokenizer)
        question = find_question(inputs.val, sample_capacity(o.positions, o.length));
    if (question) o.question = *question;
    return o;
}

// The first process draws the text. A sample that a signal ends is drawn again by the resumed run.
template <class Real>
void Run<Real>::sample() {
    const auto goes_on = [&] { return agree_on_signals(); };
    uint64_t coins = coin_state;
    if (job.rank == 0) sample_text(g, inputs.tokenizer, sample_options(), coins, goes_on);
    for (int i = 0; job.rank > 0 && i < options.sample_tokens && goes_on();) i++;
    if (!stopping) next_coin_state = coins;
}

#define INSTANTIATE(Real) template struct Run<Real>;
FOR_EACH_REAL(INSTANTIATE)
