// GPT-2's update: gradients zeroed before a step, their norm after it, and AdamW, by itself or beside the
// next step's forward pass.
#pragma once
#include "llmc/gpt2.h"

// Before a step's first micro-step: zeroes what is added to, the loss and the gradients that are not
// overwritten.
template <class Real>
void gpt2_zero_gradients(GPT2<Real>& g) {
    const SideBySide group(g.pad);  // they are independent of each other
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++)
        if (!is_overwritten(i)) g.memory.zero(g.grads[i], parameter_size(g.config, i));
    g.memory.zero(g.stats, 4);
}

// The gradients' global norm into g.stats[1]; into [2] the factor that clips them to max_norm (0: not
// clipped), or 0 where norm or loss is not finite.
template <class Real>
void gpt2_gradient_norm(GPT2<Real>& g, float max_norm) {
    global_norm(g.on("global_norm"), g.stats + 1, g.norm_scratch, g.gradient_slices, max_norm,
                1 / g.gradient_scale, g.stats);
}

// Some elements of a tensor.
struct Elements {
    int tensor;
    size_t first, count;
};

// Weight decay goes to the 2-D tensors alone, or to all of them.
inline float decay_of(int tensor, float weight_decay, bool decay_all) {
    return decay_all || parameter_info[tensor].weight_decay ? weight_decay : 0.0f;
}

template <class Real>
void update_elements(GPT2<Real>& g, const Elements& e, float weight_decay, bool decay_all = false) {
    const size_t at = e.first;
    const float decay = decay_of(e.tensor, weight_decay, decay_all);
    float* master = g.master[e.tensor] ? g.master[e.tensor] + at : nullptr;
    adamw_update(g.on("adamw"), g.params[e.tensor] + at, master, g.m[e.tensor] + at, g.v[e.tensor] + at,
                 g.grads[e.tensor] + at, e.count, g.adamw, decay, g.stats + 1, at);
}

// One AdamW step with the numbers in g.adamw, on gradients times the factor in g.stats[2]; 0: nothing
// changes. Weight decay as above.
template <class Real>
void gpt2_update(GPT2<Real>& g, float weight_decay, bool decay_all = false) {
    const SideBySide group(g.on("adamw"));  // the tensors are independent of each other
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++)
        update_elements(g, {i, 0, parameter_size(g.config, i)}, weight_decay, decay_all);
}

// The weights of a layer's linear layers.
inline std::vector<Elements> layer_weights(const ModelConfig& c, int layer) {
    std::vector<Elements> all;
    for (const LayerMatrix& m : layer_matrices(c.channels)) {
        const size_t n = parameter_layer_size(c, m.tensor);
        all.push_back({m.tensor, layer * n, n});
    }
    return all;
}

inline size_t count_elements(const std::vector<Elements>& all) {
    size_t n = 0;
    for (const Elements& e : all) n += e.count;
    return n;
}

// What is updated beside a layer's forward pass: the next layer's weights, and as much of wte as gives every
// layer the same number of elements. The last layer has no next one, and takes what is left of wte.
inline std::vector<Elements> updated_beside_layer(const ModelConfig& c, int layer) {
    const bool last = layer + 1 == c.num_layers;
    const size_t wte = parameter_size(c, WTE), weights = count_elements(layer_weights(c, 0));
    const size_t share = wte > weights ? (wte - weights) / c.num_layers / 64 * 64 : 0, first = layer * share;
    std::vector<Elements> all = last ? std::vector<Elements>() : layer_weights(c, layer + 1);
    if (last || share) all.push_back({WTE, first, last ? wte - first : share});
    return all;
}

// Cuts them into at most so many parts of the same number of elements. Cuts lie multiples of 64 behind the
// first element of what is cut, so that accesses stay aligned.
inline std::vector<std::vector<Elements>> cut_evenly(const std::vector<Elements>& all, int parts) {
    const size_t part = blocks(count_elements(all), 64 * parts) * 64;
    std::vector<std::vector<Elements>> cut;
    size_t room = 0;
    for (Elements e : all)
        while (e.count) {
            if (!room) {
                cut.emplace_back();
                room = part;
            }
            const size_t n = std::min(e.count, blocks(room, 64) * 64);
            cut.back().push_back({e.tensor, e.first, n});
            e.first += n;
            e.count -= n;
            room -= std::min(n, room);
        }
    return cut;
}

// Stages of a layer's forward pass, at the least; those of many rows take long enough for all of an update.
const int LAYER_STAGES = 7, MANY_ROWS = 8192;

// gpt2_update and gpt2_forward on a launchpad, to the bit, in less time: AdamW is bound by memory, and the
// forward pass of a small batch by the time that its stages take to begin and to end. So the weights of a
// layer are updated beside the commands of the layer before, and wte, of which the encoder needs but a few
// rows and the head is the next to read it, beside all layers. The encoder works out its rows by itself.
template <class Real>
void gpt2_update_and_forward(GPT2<Real>& g, float weight_decay, int B, int T) {
    LaunchPad& pad = *g.pad;
    auto update_all = [&](const std::vector<Elements>& all) {
        const SideBySide group(&pad);
        for (const Elements& e : all) update_elements(g, e, weight_decay);
    };
    std::vector<Elements> at_once = layer_weights(g.config, 0);
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++)
        if (i != WTE && !is_layer_weight(i)) at_once.push_back({i, 0, parameter_size(g.config, i)});
    update_all(at_once);
    const AdamWDue<Real> due = {g.master[WTE], g.m[WTE], g.v[WTE],
                                g.grads[WTE],  g.adamw,  decay_of(WTE, weight_decay, false),
                                g.stats + 1};
    encoder_forward_updated(pad, g.encoded, g.inputs, g.weight(WTE), g.weight(WPE), due, B, T,
                            g.config.channels);
    const int parts = B * T < MANY_ROWS ? LAYER_STAGES : 1;
    gpt2_forward_layers(g, B, T, [&](int l) {
        pad.finish_background();
        pad.begin_background();
        for (const auto& part : cut_evenly(updated_beside_layer(g.config, l), parts)) update_all(part);
        pad.end_background();
    });
    pad.finish_background();
}
