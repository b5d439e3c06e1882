// GPT-2's update: gradients zeroed before a step, their norm after it, and AdamW, alone or overlapped with
// the next step's forward pass.
#pragma once
#include "llmc/model/gpt2.h"

// Before the first micro-step: zeroes the loss and the gradients that are not overwritten.
template <class Real>
void gpt2_zero_gradients(GPT2<Real>& g) {
    const ConcurrentGroup group(g.pad);
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++)
        if (!is_overwritten(i)) g.memory.zero(g.grads[i], parameter_size(g.config, i));
    g.memory.zero(g.stats, 4);
}

// The global norm of the gradients into g.stats[1]; into [2] the factor that clips it to max_norm (0 or less:
// not clipped), or 0 if norm or loss is not finite.
template <class Real>
void gpt2_gradient_norm(GPT2<Real>& g, float max_norm) {
    global_norm<Real>(g.on(Layer::global_norm), {.norm_and_scale = g.stats + 1,
                                                 .gradients = g.gradient_slices,
                                                 .max_norm = max_norm,
                                                 .unscale = 1 / g.gradient_scale,
                                                 .loss = g.stats});
}

// The update of these elements, which g.share holds, with g.adamw's hyperparameters. Weight decay applies to
// the 2-D tensors, or to all.
template <class Real>
AdamWUpdate<Real> update_of(const GPT2<Real>& g, const TensorRange& e, float weight_decay,
                            bool decay_all = false) {
    const size_t at = g.share.position(g.config, e.tensor, e.first);
    return {.params = g.params[e.tensor] + e.first,
            .master = g.master[e.tensor] ? g.master[e.tensor] + at : nullptr,
            .m = g.m[e.tensor] + at,
            .v = g.v[e.tensor] + at,
            .grads = g.grads[e.tensor] + e.first,
            .n = e.count,
            .first = e.first,
            .step = g.adamw,
            .weight_decay = decay_all || parameter_info[e.tensor].weight_decay ? weight_decay : 0.0f,
            .norm_and_scale = g.stats + 1};
}

// One AdamW step on the elements that g.share holds, on gradients times the factor in g.stats[2]; if that is
// 0, nothing changes. Weight decay as above.
template <class Real>
void gpt2_update(GPT2<Real>& g, const std::vector<TensorRange>& all, float weight_decay,
                 bool decay_all = false) {
    LaunchPad* pad = g.on(Layer::adamw);
    const ConcurrentGroup group(pad);
    for (const TensorRange& tensor : all)
        for (const TensorRange& e : g.share.held(g.config, tensor))
            adamw_update(pad, update_of(g, e, weight_decay, decay_all));
}
template <class Real>
void gpt2_update(GPT2<Real>& g, float weight_decay, bool decay_all = false) {
    std::vector<TensorRange> all;
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) all.push_back({i, 0, parameter_size(g.config, i)});
    gpt2_update(g, all, weight_decay, decay_all);
}

// The weights of a layer's linear layers.
inline std::vector<TensorRange> layer_weights(const ModelConfig& c, int layer) {
    std::vector<TensorRange> all;
    for (const int tensor : {QKVW, ATTPROJW, FCW, FCPROJW}) {
        const size_t n = parameter_layer_size(c, tensor);
        all.push_back({tensor, layer * n, n});
    }
    return all;
}

inline std::vector<TensorRange> layer_weights(const ModelConfig& c, int first_layer, int end_layer) {
    std::vector<TensorRange> all;
    for (int l = first_layer; l < end_layer; l++)
        for (const TensorRange& e : layer_weights(c, l)) all.push_back(e);
    return all;
}

// Whole tensors.
inline std::vector<TensorRange> embeddings(const ModelConfig& c) {
    return {{WTE, 0, parameter_size(c, WTE)}, {WPE, 0, parameter_size(c, WPE)}};
}
inline std::vector<TensorRange> biases_and_layernorms(const ModelConfig& c) {
    std::vector<TensorRange> all;
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++)
        if (i != WPE && !is_overwritten(i)) all.push_back({i, 0, parameter_size(c, i)});
    return all;
}

inline size_t count_elements(const std::vector<TensorRange>& all) {
    size_t n = 0;
    for (const TensorRange& e : all) n += e.count;
    return n;
}

// What is updated during a layer's forward pass: the next layer's weights, and a share of wte that gives
// every layer the same number of elements. The last layer has no next one, and takes the rest of wte.
inline std::vector<TensorRange> updated_during_layer(const ModelConfig& c, int layer) {
    const bool last = layer + 1 == c.num_layers;
    const size_t wte = parameter_size(c, WTE), weights = count_elements(layer_weights(c, 0));
    const size_t share = wte > weights ? (wte - weights) / c.num_layers / 64 * 64 : 0, first = layer * share;
    std::vector<TensorRange> all = last ? std::vector<TensorRange>() : layer_weights(c, layer + 1);
    if (last || share) all.push_back({WTE, first, last ? wte - first : share});
    return all;
}

// Divides elements into at most so many parts of equal size. Parts begin at multiples of 64 elements, so that
// accesses stay aligned.
inline std::vector<std::vector<TensorRange>> split_evenly(const std::vector<TensorRange>& all, int parts) {
    const size_t part = ceil_div(count_elements(all), 64 * parts) * 64;
    std::vector<std::vector<TensorRange>> split;
    size_t room = 0;
    for (TensorRange e : all)
        while (e.count) {
            if (!room) {
                split.emplace_back();
                room = part;
            }
            const size_t n = std::min(e.count, ceil_div(room, 64) * 64);
            split.back().push_back({e.tensor, e.first, n});
            e.first += n;
            e.count -= n;
            room -= std::min(n, room);
        }
    return split;
}

// Brings gradients that other processes hold to g.grads.
struct GradientArrival {
    std::function<void()> early = nullptr;  // all but the weights of layers 2 and up
    // Starts to bring the weights' gradients of one layer, and finishes the last call's. There is no such
    // layer behind the last one.
    std::function<void(int layer)> weights = nullptr;
};

// A layer's forward pass has at least so many intervals between barriers. From MANY_ROWS on, one interval is
// long enough for a layer's whole update.
const int LAYER_INTERVALS = 7, MANY_ROWS = 8192;

// gpt2_update and the forward pass of training on a launchpad, bit-identical to calling both, but faster:
// AdamW is limited by memory bandwidth, and the forward pass of a small batch by the latency of its kernels.
// The weights of a layer are updated beside the kernels of the layer before, and wte beside all layers: the
// head reads it last, and the encoder, which needs few of its rows, computes their update itself. Gradients
// that have yet to arrive do so during the layer before their update.
template <class Real>
void gpt2_update_and_forward(GPT2<Real>& g, float weight_decay, int B, int T,
                             const GradientArrival& arrival = {}) {
    LaunchPad& pad = *g.pad;
    if (arrival.early) arrival.early();
    std::vector<TensorRange> first = biases_and_layernorms(g.config);
    first.push_back({WPE, 0, parameter_size(g.config, WPE)});
    for (const TensorRange& e : layer_weights(g.config, 0)) first.push_back(e);
    gpt2_update(g, first, weight_decay);
    const TensorRange wte = {WTE, 0, parameter_size(g.config, WTE)};
    encoder_forward_updated<Real>(pad, {.encoder = {.out = g.encoded,
                                                    .inp = g.inputs,
                                                    .wte = g.weight(WTE),
                                                    .wpe = g.weight(WPE),
                                                    .B = B,
                                                    .T = T,
                                                    .C = g.config.channels},
                                        .wte_update = update_of(g, wte, weight_decay)});
    const int parts = B * T < MANY_ROWS ? LAYER_INTERVALS : 1;
    gpt2_forward_layers(g, B, T, Pass::training, [&](int l) {
        pad.finish_background();
        if (arrival.weights) arrival.weights(l + 2);
        pad.begin_background();
        for (const auto& part : split_evenly(updated_during_layer(g.config, l), parts))
            gpt2_update(g, part, weight_decay);
        pad.end_background();
    });
    pad.finish_background();
}
