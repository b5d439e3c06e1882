// One training step on a model: forward and backward of each micro-batch, then the update.
#pragma once
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "llmc/gpt2.h"
#include "llmc/loss_scaling.h"
#include "llmc/progress.h"

// Runs training steps. On a launchpad a step's micro-steps, of which the first begins the gradients and later
// ones add to them, and its update are recorded once, when first needed, and replayed; nothing waits:
// the numbers of a step are copied to memory that the host reads, and looked at while the next step runs.
template <class Real>
struct StepRunner {
    GPT2<Real>& g;
    int B, T, micro_steps;
    float weight_decay;
    LossScaling scaling = {};
    // Asked, where it is set, whether a step with these numbers (g.stats) is to be applied: the host waits
    // for them.
    std::function<bool(const float* stats)> accept = nullptr;
    Recording *first_micro = nullptr, *later_micro = nullptr, *norm = nullptr, *update = nullptr;
    float* readback =
        g.memory.template allocate<float>(8, "readback", Placement::readback);  // two slots of g.stats

    void run_micro(Gradients gradients) {
        if (gradients == Gradients::overwrite) gpt2_zero_gradients(g);
        gpt2_forward(g, B, T);
        gpt2_head(g, B, T, 1.0f / (float(B) * float(T) * float(micro_steps)), gradients);
        gpt2_backward(g, B, T, gradients);
    }
    template <class Commands>
    void run_recorded(Recording*& recording, Commands commands) {
        if (!g.pad || !g.cpu_layers.empty()) return commands();
        if (!recording) {
            g.pad->begin_recording();
            commands();
            recording = g.pad->end_recording();
        }
        g.pad->replay(recording);
    }

    // Copies g.stats to where the host reads them.
    Ticket send_stats(int step) {
        g.memory.copy(readback + 4 * (step % 2), g.stats, 4);
        return g.pad ? g.pad->commit() : 0;
    }

    // The norm, then the update, if the numbers are accepted.
    void run_update_if_accepted(int step) {
        run_recorded(norm, [&] { gpt2_gradient_norm(g, 1.0f); });
        const Ticket ticket = send_stats(step);
        if (g.pad) g.pad->wait(ticket);
        if (accept(readback + 4 * (step % 2))) run_recorded(update, [&] { gpt2_update(g, weight_decay); });
    }

    // step counts from 0. next_batch fills inputs and targets (B*T each).
    template <class NextBatch>
    Ticket run(int step, float lr, NextBatch next_batch) {
        std::vector<int> inputs(size_t(B) * T), targets(inputs.size());
        if (std::is_same_v<Real, fp16>) set_scale(scaling.for_step(step));
        for (int i = 0; i < micro_steps; i++) {
            next_batch(inputs.data(), targets.data());
            gpt2_set_batch(g, inputs.data(), targets.data(), B * T, true);
            if (i == 0)
                run_recorded(first_micro, [&] { run_micro(Gradients::overwrite); });
            else
                run_recorded(later_micro, [&] { run_micro(Gradients::add); });
        }
        const AdamWStep numbers = adamw_step(lr, 0.9f, 0.95f, 1e-8f, step + 1);
        g.memory.upload(g.adamw, &numbers, 1);
        if (accept) {
            run_update_if_accepted(step);
            return g.pad ? g.pad->commit() : 0;
        }
        run_recorded(update, [&] {
            gpt2_gradient_norm(g, 1.0f);
            gpt2_update(g, weight_decay);
        });
        return send_stats(step);
    }

    // The numbers of a step that run() has started, as in g.stats; waits for it.
    const float* stats(int step, Ticket ticket) {
        if (g.pad) g.pad->wait(ticket);
        const float* found = readback + 4 * (step % 2);
        if (std::is_same_v<Real, fp16>) scaling.add(step, found[2] == 0 ? NAN : found[1]);
        return found;
    }

    void set_scale(float scale) {
        if (scale == g.gradient_scale) return;
        g.gradient_scale = scale;
        for (Recording** recording :
             {&first_micro, &later_micro, &norm, &update}) {  // the factor is among the numbers recorded
            if (*recording) g.pad->forget(*recording);
            *recording = nullptr;
        }
        clear_status_line();
        printf("the loss is now scaled by %.0f\n", scale);
    }
};
