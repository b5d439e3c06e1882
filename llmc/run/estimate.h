// What --dry-run prints in addition to the plan: operations, and time from a few steps that change nothing.
#pragma once
#include <cstdio>

#include "llmc/base/clock.h"
#include "llmc/data/batch_slice.h"
#include "llmc/model/train_step.h"
#include "llmc/run/progress.h"
#include "llmc/run/run_plan.h"
#include "llmc/run/run_setup.h"

// Mean seconds of one micro-batch, forward, backward and update, at a learning rate of 0.
template <class Real>
double micro_step_seconds(const Options& o, GPT2<Real>& g, Optimizer<Real>& optimizer,
                          std::optional<DataLoader>& loader) {
    StepRunner<Real> runner = {
        .g = g, .optimizer = optimizer, .B = o.batch, .T = o.sequence, .micro_steps = 1};
    runner.prepare();
    if (g.pad) prepare_kernels(*g.pad);
    const Phase phase("timing a few training steps");
    auto seconds_of = [&](int step) {
        const double start = now();
        const Ticket ticket = runner.run(step, 0, [&](int* in, int* out) {
            const int tokens = o.batch * o.sequence;
            if (loader)
                return void(next_batch_slice(*loader, in, out, tokens, o.process_rank, o.num_processes));
            for (int i = 0; i < tokens; i++) in[i] = out[i] = i * 31 % g.config.vocab_size;
        });
        runner.stats(step, ticket);
        return now() - start;
    };
    const double first = seconds_of(0);  // also touches memory
    if (first >= 60) return first;
    int steps = 0;
    double total = 0;
    while (steps < 10 && total < 2) total += seconds_of(++steps);
    return total / steps;
}

inline std::string epochs_text(const std::optional<DataLoader>& loader, double tokens) {
    return loader ? format_string(", %.2f epochs", tokens / double(loader->num_tokens())) : "";
}

// peak: flops per second, as peak_rate() measures it; 0: unknown.
template <class Real>
void print_estimate(const Options& o, GPT2<Real>& g, Optimizer<Real>& optimizer, RunInputs& inputs,
                    double peak) {
    const RunLength& length = inputs.length;
    const double flops = flops_per_token(g.config, o.sequence), tokens = length.tokens_per_step;
    const int steps = length.steps_left();
    const bool has_length = inputs.loader || o.max_steps >= 0;  // without data, only -x says how long it is
    if (has_length)
        printf("tokens: %.4g in %d steps%s\n", tokens * steps, steps,
               epochs_text(inputs.loader, tokens * steps).c_str());
    printf("operations: %.4g per token, %.4g per step", flops, flops * tokens);
    if (has_length) printf(", %.4g in total", flops * tokens * steps);
    printf("\n");
    const double seconds = micro_step_seconds(o, g, optimizer, inputs.loader) * length.micro_steps;
    printf("time: about %.4g s per step, %.0f tokens/s%s\n", seconds, tokens / seconds,
           has_length
               ? (", " + duration(seconds * steps) + " in total, without validation and samples").c_str()
               : "");
    if (peak > 0)
        printf("that is %.1f%% of the device's measured peak, %.4g operations/s in %s\n",
               100 * flops * tokens / seconds / peak, peak, real_name<Real>());
}
