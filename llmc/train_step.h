// One training step on a model: forward and backward of each micro-batch, then the update.
#pragma once
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "llmc/gpt2_update.h"
#include "llmc/loss_scaling.h"
#include "llmc/progress.h"

// Runs training steps. On a launchpad a step's micro-steps, of which the first begins the gradients and later
// ones add to them, and its update are recorded once, when first needed, and replayed; nothing waits: the
// numbers of a step are copied to memory that the host reads, and looked at while the next step runs. The
// update itself is made beside the next step's forward pass, or by finish_update(), which is to be called
// before anything else uses the parameters.
template <class Real>
struct StepRunner {
    GPT2<Real>& g;
    int B, T, micro_steps;
    float weight_decay;
    LossScaling scaling = {};
    // Asked, where it is set, whether a step with these numbers (g.stats) is to be applied: the host waits
    // for them.
    std::function<bool(const float* stats)> accept = nullptr;
    bool update_due = false;  // of the last step
    Recording *first_micro = nullptr, *update_and_first_micro = nullptr, *later_micro = nullptr,
              *norm = nullptr, *update = nullptr;
    float* readback =
        g.memory.template allocate<float>(8, "readback", Placement::readback);  // two slots of g.stats

    bool records() const { return g.pad && g.cpu_layers.empty(); }
    template <class Commands>
    void run_recorded(Recording*& recording, Commands commands) {
        if (!records()) return commands();
        if (!recording) {
            g.pad->begin_recording();
            commands();
            recording = g.pad->end_recording();
        }
        g.pad->replay(recording);
    }
    void forget_recordings() {
        for (Recording** recording : {&first_micro, &update_and_first_micro, &later_micro, &norm, &update}) {
            if (*recording) g.pad->forget(*recording);
            *recording = nullptr;
        }
    }

    void head_and_backward(Gradients gradients) {
        gpt2_head(g, B, T, 1.0f / (float(B) * float(T) * float(micro_steps)), gradients);
        gpt2_backward(g, B, T, gradients);
    }
    // The update that is due comes first: it reads the gradients and numbers that are zeroed here.
    void run_first_micro() {
        run_recorded(update_due ? update_and_first_micro : first_micro, [&] {
            if (update_due)
                gpt2_update_and_forward(g, weight_decay, B, T);
            else
                gpt2_forward(g, B, T);
            gpt2_zero_gradients(g);
            head_and_backward(Gradients::overwrite);
        });
        update_due = false;
    }
    void run_later_micro() {
        run_recorded(later_micro, [&] {
            gpt2_forward(g, B, T);
            head_and_backward(Gradients::add);
        });
    }
    void finish_update() {
        if (update_due) run_recorded(update, [&] { gpt2_update(g, weight_decay); });
        update_due = false;
    }

    // step counts from 0. next_batch fills inputs and targets (B*T each).
    template <class NextBatch>
    Ticket run(int step, float lr, NextBatch next_batch) {
        std::vector<int> inputs(size_t(B) * T), targets(inputs.size());
        if (std::is_same_v<Real, fp16>) set_scale(scaling.for_step(step));
        for (int i = 0; i < micro_steps; i++) {
            next_batch(inputs.data(), targets.data());
            gpt2_set_batch(g, inputs.data(), targets.data(), B * T, true);
            i == 0 ? run_first_micro() : run_later_micro();
        }
        const AdamWStep numbers = adamw_step(lr, 0.9f, 0.95f, 1e-8f, step + 1);
        g.memory.upload(g.adamw, &numbers, 1);
        run_recorded(norm, [&] { gpt2_gradient_norm(g, 1.0f); });
        float* sent = readback + 4 * (step % 2);
        g.memory.copy(sent, g.stats, 4);
        const Ticket ticket = g.pad ? g.pad->commit() : 0;
        if (accept && g.pad) g.pad->wait(ticket);
        update_due = !accept || accept(sent);
        if (!records()) finish_update();
        return ticket;
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
        forget_recordings();  // the factor is among the numbers recorded
        clear_status_line();
        printf("the loss is now scaled by %.0f\n", scale);
    }
};
