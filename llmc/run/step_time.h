// The time of a few steps that change nothing: of a candidate for a text, for the division of a step among
// unlike processes, and for what --dry-run prints in addition to the plan.
#pragma once
#include <algorithm>
#include <cstdio>
#include <functional>

#include "llmc/base/clock.h"
#include "llmc/base/error.h"
#include "llmc/base/lines.h"
#include "llmc/base/os.h"
#include "llmc/model/gradient_exchange.h"
#include "llmc/model/initialize.h"
#include "llmc/model/train_step.h"
#include "llmc/run/processes.h"
#include "llmc/run/progress.h"
#include "llmc/run/run_plan.h"
#include "llmc/run/run_setup.h"

// How steps are timed. With an exchange, all processes of the job run the same steps.
template <class Real>
struct TimedSteps {
    int micro_steps = 1;
    bool updates = true;
    GradientExchange<Real>* exchange = nullptr;
    std::function<double(double)> longest = nullptr;  // of the processes that measure at once; null: alone
};

// So many steps the processes of an exchange, which run equally many, time next, after `steps` that took
// of_step seconds each, if `rest` seconds are left of all that they should time. A process that is
// interrupted may have run those steps between two interruptions: steps follow until half of the time is
// over.
inline int steps_to_time(double rest, double all, int steps, double of_step) {
    if (steps >= 1000 || (steps && rest <= all / 2)) return 0;
    const double fewest = of_step < 1 ? 5 : 1, most = steps ? std::max(fewest, 4.0 * steps) : 1000;
    return int(std::clamp(rest / of_step, fewest, most));
}

// Mean seconds of a step, at a learning rate of 0, or without its update. Processes that measure at once
// agree on the longest first step: then none of them compiles or loads any more.
template <class Real>
double mean_step_seconds(const Options& o, GPT2<Real>& g, Optimizer<Real>& optimizer, Mixture* loader,
                         const TimedSteps<Real>& timed) {
    StepRunner<Real> runner = {
        .g = g, .optimizer = optimizer, .B = o.batch, .T = o.sequence, .micro_steps = timed.micro_steps};
    runner.exchange = timed.exchange;
    if (!timed.updates) runner.should_update = [](const StepStats&) { return false; };
    runner.prepare();
    if (g.pad) prepare_kernels(*g.pad);
    const Phase phase(format_string("timing a few training steps of %d micro-batch%s", timed.micro_steps,
                                    timed.micro_steps == 1 ? "" : "es"));
    const int tokens = o.batch * o.sequence;
    const auto draw = [&](int* in, int* out) {
        if (loader && !o.is_divided)
            return void(loader->next_batch(in, out, {o.process_rank * o.batch, o.batch}));
        for (int i = 0; i < tokens; i++) in[i] = out[i] = i * 31 % g.config.vocab_size;
    };
    std::vector<int> inputs(tokens), targets(tokens);  // of the next micro-batch
    draw(inputs.data(), targets.data());
    const auto read_batch = [&](int* in, int* out) {
        std::ranges::copy(inputs, in);
        std::ranges::copy(targets, out);
        draw(inputs.data(), targets.data());
    };
    if (timed.exchange) runner.on_submitted = [&] { timed.exchange->announce(InputsOf::next_step, inputs); };
    const auto longest = [&](double seconds) { return timed.longest ? timed.longest(seconds) : seconds; };
    int step = 0;
    // As in training, the host looks at a step while the next one runs.
    const auto mean_of_steps = [&](int most, double seconds) {
        const double start = now();
        Ticket last = runner.run(step, 0, read_batch);
        int steps = 1;
        for (; steps < most && now() - start < seconds; steps++) {
            const Ticket next = runner.run(step + 1, 0, read_batch);
            runner.stats(step++, last);
            last = next;
        }
        runner.stats(step++, last);
        return (now() - start) / steps;
    };
    const double first = mean_of_steps(1, 0);  // also touches memory
    double most = longest(first);
    if (most >= 5) return timed.exchange ? most : first;
    const auto mean_during = [&](double seconds) {
        if (!timed.exchange) return mean_of_steps(1000, seconds);
        double total = 0;
        int steps = 0;
        while (const int n = steps_to_time(seconds - total, seconds, steps, most)) {
            total += n * longest(mean_of_steps(n, INFINITY));
            most = total / (steps += n);
        }
        return most;
    };
    const bool on_gpu = g.pad && g.pad->device().is_gpu();
    if (on_gpu || timed.exchange) mean_during(0.15);  // raises the clock; the first step was no measure
    return mean_during(most >= 0.2 ? 2 : timed.longest ? 1 : on_gpu ? 0.25 : 0.5);
}

// Of forward and backward pass, in a micro-batch as a process of a divided step may have it; changes nothing.
template <class Real>
double seconds_of_sequence(Options o, GPT2<Real>& g, Optimizer<Real>& optimizer,
                           const std::function<double(double)>& longest) {
    o.batch = std::clamp(o.global_batch() / o.num_processes, 1, o.batch);
    return mean_step_seconds<Real>(o, g, optimizer, nullptr, {.updates = false, .longest = longest}) /
           o.batch;
}

// Seconds of a step of so many micro-batches. The update, which takes long with --offload, comes once in a
// step. With a job, of a step of all its processes, with what they exchange. Collective then.
template <class Real>
double step_seconds(const Options& o, GPT2<Real>& g, Optimizer<Real>& optimizer, Mixture* loader,
                    int micro_steps, Communicator* job) {
    std::optional<GradientExchange<Real>> exchange;
    TimedSteps<Real> timed;
    if (job && job->size > 1) {
        timed.exchange = &exchange.emplace(g, optimizer.ownership, *job);
        timed.longest = [job](double seconds) { return std::ranges::max(job->gather(seconds)); };
    }
    const auto longest = [&](double number) { return timed.longest ? timed.longest(number) : number; };
    const double most = longest(micro_steps), one = mean_step_seconds(o, g, optimizer, loader, timed);
    double seconds = one * most;
    if (most > 1 && one < 60) {
        timed.micro_steps = std::min(2, micro_steps);
        if (exchange && exchange->weights_overlap()) exchange->exchange_weights();  // for any inputs
        const double two = mean_step_seconds(o, g, optimizer, loader, timed);
        seconds = longest(one + std::max(two - one, 0.0) * (micro_steps - 1));
    }
    // the weights that are under way arrive before the buffers are freed
    if (exchange && exchange->weights_overlap()) exchange->exchange_weights();
    return seconds;
}

// A model to time, with this share of the optimizer's state. Its GEMMs are tuned, which takes seconds, or
// not.
template <class Real>
struct TimedModel {
    GPT2<Real> g;
    std::optional<Optimizer<Real>> optimizer = {};

    TimedModel(const Options& o, const ModelConfig& config, LaunchPad* pad, const OptimizerShare& share,
               bool tunes)
        : g(config, pad) {
        g.dropout = o.dropout;
        gpt2_allocate(g, o.batch, o.sequence, true, Recompute(o.recompute));
        if (pad && !tunes) pad->skip_tuning();
        optimizer.emplace(config, g.memory, optimizer_options(o), share);
        initialize_parameters(config, o.seed, parameter_writer(g, &*optimizer));
    }
};

// Seconds of a step with this division; infinite if a smaller job does not fit in memory. Collective.
template <class Real>
double division_seconds(Options o, const ModelConfig& config, LaunchPad* pad, const Division& division,
                        Communicator& job, bool tunes) {
    const std::vector<bool> members = members_of(division);
    const auto before = members.begin() + job.rank;
    OptimizerShare share = {int(std::count(members.begin(), before, true)),
                            int(std::ranges::count(members, true)), o.optimizer};
    const bool all_train = share.count == job.size;
    if (all_train) share = share_of_process(o, job);
    const ProcessShare& own = division[size_t(job.rank)];
    double seconds = 0;
    if (own.sequences) try {
            o.batch = own.micro_batch;
            TimedModel<Real> model(o, config, pad, share, tunes);
            seconds = step_seconds<Real>(o, model.g, *model.optimizer, nullptr, own.micro_steps(),
                                         all_train ? &job : nullptr);
        } catch (const DeviceLost&) {
            throw;
        } catch (const Error&) {
            if (all_train) throw;
            seconds = INFINITY;
        } catch (const std::bad_alloc&) {
            if (all_train) throw;
            seconds = INFINITY;
        }
    return std::ranges::max(job.gather(seconds));
}

// The division that suits these processes: see agree_on_division().
template <class Real>
Division find_division(const Options& o, const ModelConfig& config, const Start& start, LaunchPad* pad,
                       Communicator& job, bool tunes) {
    const auto longest = [&](double first) { return std::ranges::max(job.gather(first)); };
    const auto sequence = [&](const std::vector<bool>& members) {
        share_cores(o, members, job);
        double seconds = 0;
        if (members[size_t(job.rank)]) {
            TimedModel<Real> model(o, config, pad, share_of_process(o, job), tunes);
            seconds = seconds_of_sequence(o, model.g, *model.optimizer, longest);
        } else {
            longest(0);
        }
        return job.gather(seconds);
    };
    const auto step = [&](const Division& d) {
        return division_seconds<Real>(o, config, pad, d, job, tunes);
    };
    const Division division = agree_on_division(o, start, pad, {sequence, step}, job);
    if (o.is_divided) share_cores(o, std::vector<bool>(size_t(job.size), true), job);
    return division;
}

// Prints a note if other programs had CPUs that the steps since `before` could have used.
inline void note_other_programs(const LaunchPad* pad, const CpuUse& before) {
    const CpuUse use = cpu_use();
    const double all = use.all - before.all, others = all - (use.own - before.own);
    const bool are_busy = use.idle - before.idle < 0.1 * all;
    if ((!pad || !pad->device().is_gpu()) && are_busy && others > 0.15 * all)
        printf(
            "note: other programs use the CPUs, too: without them, a step takes less than the time below\n");
}

// For a run of hours.
inline void suggest_less_time(const Options& o, const LaunchPad* pad, int steps_in_an_hour) {
    const bool follows_time = !o.text.empty() && !o.is_given(o.epochs) && !o.is_given(o.max_steps);
    std::string less = follows_time ? "--minutes 60" : format_string("-x %d", std::max(1, steps_in_an_hour));
    less +=
        " takes about an hour; less time for the same steps: a smaller model (-e) or shorter sequences (-t)";
    if (!pad) less += ", a GPU";
    if (pad && o.precision == StoredType::fp32) less += ", --precision bf16 or fp16";
    print_line(stdout, "note: %s", less.c_str());
}

// peak: flops per second, as peak_rate() measures it; 0: unknown.
template <class Real>
void print_estimate(const Options& o, GPT2<Real>& g, Optimizer<Real>& optimizer, RunInputs& inputs,
                    double peak, Communicator& job) {
    const RunLength& length = inputs.length;
    const double flops = flops_per_token(g.config, o.sequence), tokens = length.tokens_per_step;
    const int steps = length.steps_left();
    const bool has_length = inputs.loader || o.max_steps >= 0;  // without data, only -x says how long it is
    if (has_length) {
        printf("tokens: %.4g in %s", tokens * steps, counted(steps, "step").c_str());
        if (inputs.loader) printf(", %.2f epochs", tokens * steps / double(inputs.loader->num_tokens()));
        printf("\n");
    }
    printf("operations: %.4g per token, %.4g per step", flops, flops * tokens);
    if (has_length) printf(", %.4g in total", flops * tokens * steps);
    printf("\n");
    const CpuUse before = cpu_use();
    const double seconds =
        step_seconds(o, g, optimizer, inputs.loader ? &*inputs.loader : nullptr, length.micro_steps, &job);
    note_other_programs(g.pad, before);
    printf("time: about %.4g s per step, %.0f tokens/s%s\n", seconds, tokens / seconds,
           has_length
               ? (", " + duration(seconds * steps) + " in total, without validation and samples").c_str()
               : "");
    if (has_length && seconds * steps > 3600) suggest_less_time(o, g.pad, int(3600 / seconds));
    if (peak > 0)
        printf("that is %.1f%% of the device's measured peak, %.4g operations/s in %s\n",
               100 * flops * tokens / seconds / peak, peak, real_name<Real>());
}
