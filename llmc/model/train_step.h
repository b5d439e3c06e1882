// One training step: forward and backward pass of each micro-batch, then the update.
#pragma once
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "llmc/model/divided_update.h"
#include "llmc/model/gradient_exchange.h"
#include "llmc/model/loss_scaling.h"

// Runs training steps. On a launchpad, the commands of a step are recorded at first use and replayed. The
// host does not wait inside a step: g.stats is copied to memory that the host reads while the next step
// runs. The update itself runs beside the next step's forward pass, or in finish_update(), which
// must be called before anything else uses the parameters.
template <class Real>
struct StepRunner {
    GPT2<Real>& g;
    int B, T, micro_steps;
    float weight_decay;
    float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f;  // of AdamW
    float gradient_clip = 1.0f;                          // largest norm; 0: not clipped
    uint64_t dropout_seed = 42;                          // for g.dropout
    int process = 0;                                     // number of this one in the job: has its own masks
    LossScaling scaling = {};
    GradientExchange<Real>* exchange = nullptr;  // with the other processes; null: there are none
    // If set, decides from a step's g.stats whether its update is applied; the host waits for them then.
    std::function<bool(const float* stats)> accept = nullptr;
    std::function<void(float scale)> on_new_scale = nullptr;      // called when the loss scale changes
    std::function<void(int micro_step)> on_micro_step = nullptr;  // called before each micro-step
    std::function<void()> on_submitted = nullptr;  // called while the GPU runs the backward pass
    bool update_due = false;                       // the last step's update has not run
    // In several pieces where the processes of a job meet.
    using Recordings = std::vector<Recording*>;
    Recordings first_micro, update_and_first_micro, later_micro, last_micro, norm, update;
    Recordings* being_recorded = nullptr;
    float* readback =
        g.memory.template allocate<float>(8, "readback", Placement::readback);  // two slots of g.stats

    // Queues the kernels of a step for LaunchPad::compile().
    void prepare() {
        if (!records()) return;  // layers of the CPU would run in a dry run, too
        g.pad->prepare(g.pad->dry_run([&] {
            if (!divided()) gpt2_update_and_forward(g, weight_decay, B, T);
            gpt2_update(g, weight_decay);
            gpt2_gradient_norm(g, gradient_clip);
            if (exchange) exchange->run_all_kernels();
        }));
    }

    bool records() const { return g.pad && g.cpu_layers.empty(); }
    bool divided() const { return g.share.count > 1; }  // the update, among the processes
    bool update_overlaps() const {
        return records() && (!divided() || (exchange && exchange->weights_overlap()));
    }
    template <class Commands>
    void run_recorded(Recordings& recordings, Commands commands) {
        if (!records()) return commands();
        for (size_t i = 0; i < recordings.size(); i++) {
            if (i) exchange->meet();
            g.pad->replay(recordings[i]);
        }
        if (!recordings.empty()) return;
        being_recorded = &recordings;
        g.pad->begin_recording();
        commands();
        end_recording();
    }
    void end_recording() {
        being_recorded->push_back(g.pad->end_recording());
        g.pad->replay(being_recorded->back());
    }
    // Within commands: waits until all processes of the job have come here.
    void meet() {
        if (records()) end_recording();
        exchange->meet();
        if (records()) g.pad->begin_recording();
    }
    void forget_recordings() {
        for (Recordings* recordings :
             {&first_micro, &update_and_first_micro, &later_micro, &last_micro, &norm, &update}) {
            for (Recording* recording : *recordings) g.pad->forget(recording);
            recordings->clear();
        }
    }

    // The last micro-step's gradients are complete, and leave for the other processes.
    void head_and_backward(Gradients gradients, bool last) {
        const int num_processes = exchange ? exchange->num_processes() : 1;
        gpt2_head(g, B, T, 1.0f / (float(B) * float(T) * float(micro_steps) * float(num_processes)),
                  gradients);
        if (!exchange || !last) return gpt2_backward(g, B, T, gradients);
        gpt2_backward(g, B, T, gradients, [&](int layer) {
            if (layer == exchange->meeting_layer()) meet();
            exchange->run_in_background(layer);
        });
    }
    GradientArrival arrival() {
        if (!exchange) return {};
        return {.early = [&] { exchange->receive_early(); },
                .weights = [&](int layer) { exchange->receive_in_background(layer); }};
    }
    void update_and_forward() {
        if (divided())
            gpt2_divided_update_and_forward(g, *exchange, weight_decay, B, T, [&] { meet(); });
        else
            gpt2_update_and_forward(g, weight_decay, B, T, arrival());
    }
    // A due update comes first: it reads the gradients and stats that are zeroed here.
    void run_first_micro() {
        run_recorded(update_due ? update_and_first_micro : first_micro, [&] {
            update_due ? update_and_forward() : gpt2_forward(g, B, T, Pass::training);
            gpt2_zero_gradients(g);
            head_and_backward(Gradients::overwrite, micro_steps == 1);
        });
        update_due = false;
    }
    void run_later_micro(bool last) {
        run_recorded(last && exchange ? last_micro : later_micro, [&] {
            gpt2_forward(g, B, T, Pass::training);
            head_and_backward(Gradients::accumulate, last);
        });
    }
    void finish_update() {
        if (!std::exchange(update_due, false)) return;
        run_recorded(update, [&] {
            if (exchange) exchange->receive_all();
            gpt2_update(g, weight_decay);
        });
        if (exchange && divided()) exchange->exchange_weights();
    }
    // Loss, norm and clip factor of all gradients together, in g.stats.
    void reduce_gradients() {
        if (!exchange) return run_recorded(norm, [&] { gpt2_gradient_norm(g, gradient_clip); });
        exchange->reduce(gradient_clip);
    }

    // Runs step number `step` (from 0). Steps count up from the first one. lr: learning rate. next_batch
    // fills inputs and targets (B*T each). The ticket is 0 on the CPU. Throws Error.
    template <class NextBatch>
    Ticket run(int step, float lr, NextBatch next_batch) {
        std::vector<int> inputs(size_t(B) * T), targets(inputs.size());
        if (std::is_same_v<Real, fp16>) set_scale(scaling.for_step(step));
        for (int i = 0; i < micro_steps; i++) {
            if (on_micro_step) on_micro_step(i);
            next_batch(inputs.data(), targets.data());
            gpt2_set_batch(g, inputs.data(), targets.data(), B * T, true);
            if (g.dropout > 0)
                g.memory.upload(g.dropout_key, dropout_key(dropout_seed, step, i, process).data(), 2);
            i == 0 ? run_first_micro() : run_later_micro(i + 1 == micro_steps);
        }
        if (on_submitted) on_submitted();
        const AdamWStep numbers = adamw_step(lr, beta1, beta2, epsilon, step + 1);
        g.memory.upload(g.adamw, &numbers, 1);
        reduce_gradients();
        float* sent = readback + 4 * (step % 2);
        g.memory.copy(sent, g.stats, 4);
        const Ticket ticket = g.pad ? g.pad->commit() : 0;
        if (accept && g.pad) g.pad->wait(ticket);
        update_due = !accept || accept(sent);
        if (!update_overlaps()) finish_update();
        return ticket;
    }

    // Waits for a step and returns its g.stats: [0] mean loss, [1] gradient norm, [2] clip factor, divided by
    // the loss scale in fp16 (0: the update was skipped). Valid until run(step + 2). In fp16, call it exactly
    // once per step, in order: loss scaling reads it.
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
