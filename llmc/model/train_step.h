// One training step: forward and backward pass of each micro-batch, then the update.
#pragma once
#include <cmath>
#include <functional>
#include <vector>

#include "llmc/model/gpt2_update.h"
#include "llmc/model/loss_scaling.h"

// Runs training steps. On a launchpad, the commands of a step are recorded at first use and replayed. The
// host does not wait inside a step: the step's numbers are copied to memory that the host reads while the
// next step runs. The update itself runs beside the next step's forward pass, or in finish_update(), which
// must be called before anything else uses the parameters.
template <class Real>
struct StepRunner {
    GPT2<Real>& g;
    int B, T, micro_steps;
    float weight_decay;
    LossScaling scaling = {};
    int num_processes = 1;                               // whose gradients are averaged
    std::function<void()> exchange_gradients = nullptr;  // sums gradients and loss over the processes
    // If set, decides from a step's g.stats whether its update is applied; the host waits for them then.
    std::function<bool(const float* stats)> accept = nullptr;
    std::function<void(float scale)> on_new_scale = nullptr;      // called when the loss scale changes
    std::function<void(int micro_step)> on_micro_step = nullptr;  // called before each micro-step
    bool update_due = false;                                      // the last step's update has not run
    Recording *first_micro = nullptr, *update_and_first_micro = nullptr, *later_micro = nullptr,
              *norm = nullptr, *update = nullptr;
    float* readback =
        g.memory.template allocate<float>(8, "readback", Placement::readback);  // two slots of g.stats

    // Queues the kernels of a step for LaunchPad::compile().
    void prepare() {
        if (!g.pad) return;
        g.pad->prepare(g.pad->dry_run([&] {
            gpt2_update_and_forward(g, weight_decay, B, T);
            gpt2_update(g, weight_decay);
            gpt2_gradient_norm(g, 1.0f);
        }));
    }

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
        gpt2_head(g, B, T, 1.0f / (float(B) * float(T) * float(micro_steps) * float(num_processes)),
                  gradients);
        gpt2_backward(g, B, T, gradients);
    }
    // A due update comes first: it reads the gradients and stats that are zeroed here.
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
            head_and_backward(Gradients::accumulate);
        });
    }
    void finish_update() {
        if (update_due) run_recorded(update, [&] { gpt2_update(g, weight_decay); });
        update_due = false;
    }

    // Runs step number `step` (from 0). next_batch fills inputs and targets (B*T each).
    template <class NextBatch>
    Ticket run(int step, float lr, NextBatch next_batch) {
        std::vector<int> inputs(size_t(B) * T), targets(inputs.size());
        if (std::is_same_v<Real, fp16>) set_scale(scaling.for_step(step));
        for (int i = 0; i < micro_steps; i++) {
            if (on_micro_step) on_micro_step(i);
            next_batch(inputs.data(), targets.data());
            gpt2_set_batch(g, inputs.data(), targets.data(), B * T, true);
            i == 0 ? run_first_micro() : run_later_micro();
        }
        if (exchange_gradients) exchange_gradients();
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

    // g.stats of a step that run() has started; waits for it.
    const float* stats(int step, Ticket ticket) {
        if (g.pad) g.pad->wait(ticket);
        const float* found = readback + 4 * (step % 2);
        if (std::is_same_v<Real, fp16>) scaling.add(step, found[2] == 0 ? NAN : found[1]);
        return found;
    }

    void set_scale(float scale) {
        if (scale == g.gradient_scale) return;
        g.gradient_scale = scale;
        forget_recordings();  // the scale is a recorded kernel argument
        if (on_new_scale) on_new_scale(scale);
    }
};
