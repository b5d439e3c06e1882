// Several texts generated side by side from one model, on one device: all are as long as each other, so each
// step reads the weights once for all of them.
//     BatchDecoder<float> decoder(model, model.config.max_seq_len, 8);
//     decoder.start(prompt.data(), int(prompt.size()));
//     decoder.read_logits(logits);   // (8,V), of the tokens that come next
//     decoder.append(next);          // (8)
// The cache holds queries, keys and values of a position as (3,B,C): one row of B times as many channels and
// heads, so the kernel of one text attends for all.
#pragma once
#include <vector>

#include "llmc/layers/matmul.h"
#include "llmc/model/decoder.h"

template <class Real>
struct BatchDecoder {
    Decoder<Real> one;                    // reads prompts, and texts that outgrew the cache
    int B;                                // number of texts
    std::vector<std::vector<int>> texts;  // (B) the tokens of each text that are in the cache
    std::vector<Real*> cache;             // (T,3,B,C) of each layer
    Real* logits;                         // (B,Vp)

    BatchDecoder(const GPT2<Real>& model, int capacity, int num_texts);

    // All texts begin anew with these tokens (count > 0).
    void start(const int* values, int count);
    // Appends one token to each text: values (B).
    void append(const int* values);
    // The logits (B,V) of the tokens after the last ones.
    void read_logits(float* outp) const;

   private:
    void fill_cache(const std::vector<std::vector<int>>& with);
    void step(const int* values, int position);
};

template <class Real>
BatchDecoder<Real>::BatchDecoder(const GPT2<Real>& model, int capacity, int num_texts)
    : one(model, capacity), B(num_texts), texts(num_texts) {
    const ModelConfig& c = model.config;
    if (B < 1 || B > capacity)
        fail("%d texts at a time: it must be from 1 to %d, the tokens of a text", B, capacity);
    if (B == 1) return;
    one.memory.kind = "cache";
    for (int l = 0; l < c.num_layers; l++)
        cache.push_back(one.memory.template allocate<Real>(size_t(capacity) * 3 * B * c.channels, "cache"));
    one.memory.kind = "activations";
    logits = one.memory.template allocate<Real>(size_t(B) * c.padded_vocab_size, "logits");
}

// Reads the texts one after the other, or only the first if all are equal, and spreads their rows.
template <class Real>
void BatchDecoder<Real>::fill_cache(const std::vector<std::vector<int>>& with) {
    const int Vp = one.g.config.padded_vocab_size, L = one.g.config.num_layers;
    const size_t C = one.g.config.channels;
    std::vector<std::vector<Real>> spread(L);
    for (int b = 0; b < B; b++) {
        if (b == 0 || with[b] != with[b - 1]) {
            one.clear();
            one.append(with[b].data(), int(with[b].size()));
        }
        texts[b] = one.tokens;
        one.memory.copy(logits + size_t(b) * Vp, one.logits, Vp);
        std::vector<Real> rows(texts[b].size() * 3 * C);
        for (int l = 0; l < L; l++) {
            spread[l].resize(rows.size() * B);
            one.memory.download(rows.data(), one.qkv[l], rows.size());
            for (size_t i = 0; i < rows.size() / C; i++)
                std::copy_n(&rows[i * C], C, &spread[l][(i * B + b) * C]);
        }
    }
    for (int l = 0; l < L; l++) one.memory.upload(cache[l], spread[l].data(), spread[l].size());
}

template <class Real>
void BatchDecoder<Real>::start(const int* values, int count) {
    one.clear();
    if (B == 1) return one.append(values, count);
    fill_cache(std::vector(B, std::vector<int>(values, values + count)));
}

template <class Real>
void BatchDecoder<Real>::append(const int* values) {
    if (B == 1) return one.append(values, 1);
    const int position = int(texts[0].size());
    for (int b = 0; b < B; b++) texts[b].push_back(values[b]);
    if (position < one.T) return step(values, position);
    for (std::vector<int>& text : texts) text.erase(text.begin(), text.end() - one.kept());
    fill_cache(std::vector(texts));
}

// The texts' rows of this position.
template <class Real>
void BatchDecoder<Real>::step(const int* values, int position) {
    const GPT2<Real>& g = one.g;
    const int C = g.config.channels, NH = g.config.num_heads;
    const size_t part = size_t(B) * C;  // elements of the queries, the keys or the values
    one.memory.upload(one.inputs, values, B);
    encoder_forward<Real>(g.pad, {.out = one.residual,
                                  .inp = one.inputs,
                                  .wte = g.weight(WTE),
                                  .wpe = g.weight(WPE) + size_t(position) * C,
                                  .B = B,
                                  .T = 1,
                                  .C = C});
    one.layers(B, [&](int l) {
        for (size_t i = 0; i < 3; i++)
            matmul_forward<Real>(g.pad, {.out = cache[l] + (size_t(position) * 3 + i) * part,
                                         .inp = one.normed,
                                         .weight = g.weight(QKVW, l) + i * C * C,
                                         .bias = g.weight(QKVB, l) + i * C,
                                         .num_rows = B,
                                         .C = C,
                                         .OC = C});
        cached_attention_forward<Real>(
            g.pad,
            {.out = one.atty, .qkv = cache[l], .first = position, .num_rows = 1, .C = B * C, .NH = B * NH});
    });
    matmul_forward<Real>(g.pad, {.out = logits,
                                 .inp = one.normed,
                                 .weight = g.weight(WTE),
                                 .num_rows = B,
                                 .C = C,
                                 .OC = g.config.padded_vocab_size});
}

template <class Real>
void BatchDecoder<Real>::read_logits(float* outp) const {
    const size_t V = one.g.config.vocab_size, Vp = one.g.config.padded_vocab_size;
    if (B == 1) return one.read_logits(outp);
    std::vector<float> padded(B * Vp);
    one.memory.download_floats(padded.data(), logits, padded.size());
    for (int b = 0; b < B; b++) std::copy_n(&padded[b * Vp], V, outp + b * V);
}
