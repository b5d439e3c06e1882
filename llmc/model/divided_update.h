// ZeRO stage 1 on a launchpad: each process updates its part of the weights, then all exchange them.
#pragma once
#include "llmc/model/gradient_exchange.h"

// gpt2_update, the exchange of the weights, and gpt2_forward; bit-identical to gpt2_update_and_forward, which
// updates all weights in each process. Two layers and the embeddings arrive before the forward pass. The
// other weights are published during the first two layers, one half in each, and arrive during the layer
// before the one that reads them. `meet` waits for the GPU and for all processes.
template <class Real>
void gpt2_divided_update_and_forward(GPT2<Real>& g, GradientExchange<Real>& exchange, float weight_decay,
                                     int B, int T, const std::function<void()>& meet) {
    LaunchPad& pad = *g.pad;
    const ModelConfig& c = g.config;
    const int L = c.num_layers, num_early = std::min(2, L);
    std::vector<TensorRange> early = layer_weights(c, 0, num_early);
    for (const TensorRange& e : embeddings(c)) early.push_back(e);
    const int half = num_early + ceil_div(L - num_early, 2);
    const std::vector<TensorRange> late = layer_weights(c, num_early, L);

    exchange.receive_early();
    std::vector<TensorRange> first = biases_and_layernorms(c);
    first.insert(first.end(), early.begin(), early.end());
    gpt2_update(g, first, weight_decay);
    exchange.copy_weights(early, {});
    gpt2_update(g, late, weight_decay);
    meet();
    exchange.copy_weights({}, early);
    pad.finish_copies();
    encoder_forward<Real>(&pad, {.out = g.encoded,
                                 .inp = g.inputs,
                                 .wte = g.weight(WTE),
                                 .wpe = g.weight(WPE),
                                 .B = B,
                                 .T = T,
                                 .C = c.channels});
    gpt2_forward_layers(g, B, T, Pass::training, [&](int l) {
        if ((l == 1 && num_early < L) || (l == 2 && half < L)) meet();
        std::vector<TensorRange> published, received;
        if (l == 0) published = layer_weights(c, num_early, half);
        if (l == 1) published = layer_weights(c, half, L);
        if (l > 0) received = layer_weights(c, l + 1, std::min(l + 2, L));
        exchange.copy_weights(published, received);  // finishes the weights of this layer
    });
}
