#include "llmc/model/train_step.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "llmc/model/gradient_exchange.h"

template <class Real>
void StepRunner<Real>::prepare() {
    if (!g.pad) return;
    g.pad->prepare([&] {
        optimizer.update(g.pad, g.tensors());
        gpt2_gradient_norm(g, gradient_clip);
        if (exchange) exchange->run_all_kernels();
    });
}

// --- recordings ---

// Replays a phase, or records it first.
template <class Real>
void StepRunner<Real>::run_phase(Phase& phase, const std::function<void()>& commands) {
    if (!g.pad) return commands();
    for (const Part& part : phase) {
        if (part.before) part.before();
        replay(part);
    }
    if (!phase.empty()) return;
    being_recorded = &phase;
    before_part = nullptr;
    g.pad->begin_recording();
    commands();
    end_recording();
}

template <class Real>
void StepRunner<Real>::end_recording() {
    being_recorded->push_back({before_part, g.pad->end_recording()});
    replay(being_recorded->back());
}

template <class Real>
void StepRunner<Real>::replay(const Part& part) {
    g.pad->replay(part.commands);
    if (exchange) exchange->work();
}

// Within a phase: the action is not recorded, and repeated between the recordings before and after it.
template <class Real>
void StepRunner<Real>::between_parts(const std::function<void()>& action) {
    if (g.pad) end_recording();
    action();
    before_part = action;
    if (g.pad) g.pad->begin_recording();
}

// Within a phase: waits until all processes of the node have come here.
template <class Real>
void StepRunner<Real>::synchronize() {
    between_parts([this] { exchange->synchronize(); });
}

template <class Real>
void StepRunner<Real>::forget_recordings() {
    for (Phase* phase : {&first_micro, &later_micro, &last_micro, &apply}) {
        for (const Part& part : *phase) g.pad->forget(part.commands);
        phase->clear();
    }
}

// --- micro-steps ---

// The forward pass of a step's first micro-step gathers weights on its way.
template <class Real>
void StepRunner<Real>::forward_first() {
    if (!exchange || !exchange->weights_overlap()) return gpt2_forward(g, B, T, Pass::training);
    const auto receive = [this](int layer) {
        const int group = exchange->weights_before(layer);
        if (group >= 0) between_parts([this, group] { exchange->receive_weights(group); });
    };
    receive(0);
    exchange->gather_first_weights();
    const auto before = [&](int layer) {
        if (exchange->synchronizes_before(layer)) synchronize();
        if (layer > 0) receive(layer);
        exchange->before_layer(layer);
    };
    gpt2_forward(g, B, T, Pass::training, before);
    if (exchange->between_nodes()) before(g.config.num_layers);
}

// The last micro-step's gradients are complete: they leave for the other processes, or their norm follows.
template <class Real>
void StepRunner<Real>::head_and_backward(Gradients gradients, bool last) {
    gpt2_head(g, B, T, 1.0f / float(step_tokens), gradients);
    if (exchange && last) {
        const auto after = [&](int layer) {
            if (layer == exchange->synchronization_layer()) synchronize();
            exchange->after_layer(layer);
            const int group = exchange->gradients_after(layer);
            if (group >= 0) between_parts([this, group] { exchange->send_gradients(group); });
        };
        if (exchange->between_nodes()) after(g.config.num_layers);
        return gpt2_backward(g, B, T, gradients, after);
    }
    gpt2_backward(g, B, T, gradients);
    if (last) gpt2_gradient_norm(g, gradient_clip);
}

template <class Real>
void StepRunner<Real>::run_micro_step(int i) {
    const bool last = i + 1 == micro_steps;
    if (i == 0)
        return run_phase(first_micro, [&] {
            gpt2_zero_gradients(g);
            forward_first();
            head_and_backward(Gradients::overwrite, last);
        });
    run_phase(last ? last_micro : later_micro, [&] {
        gpt2_forward(g, B, T, Pass::training);
        head_and_backward(Gradients::accumulate, last);
    });
}

// --- the update ---

template <class Real>
void StepRunner<Real>::update() {
    if (!exchange || !exchange->weights_overlap()) return optimizer.update(g.pad, g.tensors());
    optimizer.update(g.pad, g.tensors(), exchange->first_weights());
    exchange->store_weights(exchange->first_weights());
    if (exchange->between_nodes()) between_parts([this] { exchange->send_first_weights(); });
    optimizer.update(g.pad, g.tensors(), exchange->later_weights());
    if (exchange->between_nodes()) exchange->store_weights(exchange->later_weights());
}

template <class Real>
void StepRunner<Real>::reduce_and_update(int step) {
    StepStats* const sent = readback + step % 2;
    if (exchange) exchange->reduce(gradient_clip, step_tokens, counted);
    g.memory.copy(sent, g.stats, 1);
    if (should_update && g.pad) g.pad->commit(true);
    // last, so that a step that fails leaves the parameters as they were
    is_updating = !should_update || should_update(*sent);
    if (is_updating)
        run_phase(apply, [&] { update(); });
    else if (exchange && exchange->weights_overlap())
        exchange->restore_weights();
}

// In a job, the exchange weights the sums instead.
template <class Real>
void StepRunner<Real>::count_targets(int micro_step, const std::vector<int>& targets) {
    const auto counts = [&](int target) { return target >= 0 && target < g.config.vocab_size; };
    counted = (micro_step ? counted : 0) + std::count_if(targets.begin(), targets.end(), counts);
    if (exchange || micro_step + 1 < micro_steps) return;
    const float weight = token_weight(step_tokens, counted);
    if (weight != std::exchange(sent_weight, weight)) g.memory.upload(g.token_weight, &weight, 1);
}

template <class Real>
Ticket StepRunner<Real>::run(int step, float learning_rate, const NextBatch& next_batch) {
    std::vector<int> inputs(size_t(B) * T), targets(inputs.size());
    if (std::is_same_v<Real, fp16>) set_scale(scaling.for_step(step));
    for (int i = 0; i < micro_steps; i++) {
        if (on_micro_step) on_micro_step(i);
        next_batch(inputs.data(), targets.data());
        if (exchange && i == 0) exchange->begin_step(inputs);
        if (exchange && i + 1 == micro_steps) exchange->announce(InputsOf::last_micro_step, inputs);
        {
            const ConcurrentGroup uploads(g.pad);
            if (i == 0) optimizer.begin_step(step, learning_rate);
            gpt2_set_batch(g, inputs.data(), targets.data(), B * T, true);
            count_targets(i, targets);
            if (g.dropout > 0)
                g.memory.upload(g.acts.dropout_key, dropout_key(dropout_seed, step, i, process).data(), 2);
        }
        run_micro_step(i);
    }
    if (on_submitted) on_submitted();
    reduce_and_update(step);
    if (exchange) exchange->weights_overlap() ? exchange->finish_update() : exchange->exchange_weights();
    const Ticket ticket = g.pad ? g.pad->commit() : 0;
    is_updating = false;
    return ticket;
}

template <class Real>
void StepRunner<Real>::gather_weights() {
    if (exchange && exchange->weights_overlap()) exchange->exchange_weights();
}

template <class Real>
const StepStats& StepRunner<Real>::stats(int step, Ticket ticket) {
    if (g.pad) g.pad->wait(ticket);
    const StepStats& found = readback[step % 2];
    if (std::is_same_v<Real, fp16>) scaling.add(step, found.gradient_scale == 0 ? NAN : found.gradient_norm);
    return found;
}

template <class Real>
void StepRunner<Real>::set_scale(float scale) {
    if (scale == g.gradient_scale) return;
    g.gradient_scale = scale;
    forget_recordings();  // the scale is a recorded kernel argument
    if (on_new_scale) on_new_scale(scale);
}

#define INSTANTIATE(Real) template struct StepRunner<Real>;
FOR_EACH_REAL(INSTANTIATE)
