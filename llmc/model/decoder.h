// Autoregressive generation with a KV cache: queries, keys and values of all tokens are kept, so that each
// new token costs one row of the model, however long the text is.
//     Decoder<float> decoder(model, model.config.max_seq_len);
//     decoder.append(prompt.data(), int(prompt.size()));
//     decoder.read_logits(logits);   // of the token that comes next
// If the text outgrows the cache, its last half is processed anew, at new positions.
#pragma once
#include <algorithm>
#include <vector>

#include "llmc/layers/cached_attention.h"
#include "llmc/layers/matvec.h"
#include "llmc/model/gpt2.h"

template <class Real>
struct Decoder {
    const GPT2<Real>& g;  // only its parameters: gpt2_allocate() need not have been called
    int T;                // capacity of the cache, in tokens
    // Whose cache and logits append() writes, in 0 .. num_texts - 1. Call clear() after changing it.
    int text = 0;
    std::vector<int> tokens;  // those in the cache
    Memory memory;
    int* inputs;                            // (T) tokens, for the kernels
    std::vector<Real*> qkv;                 // (texts,T,3C) of each layer: the cache
    Real *residual, *normed, *atty, *proj;  // (T,C) of the rows that are computed together
    Real *wide, *wide_gelu;                 // (T,4C)
    float *mean, *rstd, *lse;               // (T), (T), (NH,T)
    Real* logits;                           // (texts,Vp) of the token after the last

    Decoder(const GPT2<Real>& model, int capacity, int num_texts = 1);
    Decoder(const Decoder&) = delete;

    void clear() { tokens.clear(); }
    // Appends tokens (count), all below V, to the text.
    void append(const int* values, int count);
    // Builds the kernels that append() of so many tokens to an empty text needs, which otherwise happens
    // there.
    void prepare(int count);
    // The logits (V) of the token after the last one. Call it after append().
    void read_logits(float* outp) const { memory.download_floats(outp, own_logits(), g.config.vocab_size); }
    // How many of the last tokens are kept when the text outgrows the cache.
    int kept() const { return (T + 1) / 2; }

   private:
    // A linear layer of the model, by its parameter tensors.
    struct Linear {
        int weight, bias, layer, C, OC;
    };
    void linear(Real* out, const Real* inp, const Linear& which, int num_rows);
    void attend(int l, int first, int num_rows);
    void residual_layernorm(const Real* weight, const Real* bias, int num_rows);
    void run(int num_rows, int num_new);
    int padded_rows(int first, int num_new) const;
    Real* cache(int l) const { return qkv[l] + size_t(text) * T * 3 * g.config.channels; }
    Real* own_logits() const { return logits + size_t(text) * g.config.padded_vocab_size; }
};

template <class Real>
Decoder<Real>::Decoder(const GPT2<Real>& model, int capacity, int num_texts)
    : g(model), T(capacity), memory(model.pad, model.memory.use) {
    const ModelConfig& c = g.config;
    if (T < 1 || T > c.max_seq_len)
        fail("a text of %d tokens at a time: it must be from 1 to the model's max_seq_len %d", T,
             c.max_seq_len);
    if (num_texts < 1) fail("%d texts side by side: there must be at least one", num_texts);
    const size_t rows = T, C = c.channels;
    memory.kind = "cache";
    for (int l = 0; l < c.num_layers; l++)
        qkv.push_back(memory.allocate<Real>(num_texts * rows * 3 * C, "cache"));
    memory.kind = "activations";
    inputs = memory.allocate<int>(rows, "inputs");
    for (Real** p : {&residual, &normed, &atty, &proj}) *p = memory.allocate<Real>(rows * C, "activations");
    for (Real** p : {&wide, &wide_gelu}) *p = memory.allocate<Real>(rows * 4 * C, "activations");
    mean = memory.allocate<float>(rows, "mean");
    rstd = memory.allocate<float>(rows, "rstd");
    lse = memory.allocate<float>(rows * c.num_heads, "lse");
    logits = memory.allocate<Real>(size_t(num_texts) * c.padded_vocab_size, "logits");
}

// out (num_rows, OC) = inp (num_rows, C) weight^T + bias
template <class Real>
void Decoder<Real>::linear(Real* out, const Real* inp, const Linear& which, int num_rows) {
    const Real *weight = g.weight(which.weight, which.layer), *bias = g.weight(which.bias, which.layer);
    if (num_rows == 1)
        matvec_forward<Real>(
            g.pad, {.out = out, .inp = inp, .weight = weight, .bias = bias, .C = which.C, .OC = which.OC});
    else
        matmul_forward<Real>(g.pad, {.out = out,
                                     .inp = inp,
                                     .weight = weight,
                                     .bias = bias,
                                     .num_rows = num_rows,
                                     .C = which.C,
                                     .OC = which.OC});
}

template <class Real>
void Decoder<Real>::attend(int l, int first, int num_rows) {
    const int C = g.config.channels, NH = g.config.num_heads;
    if (first == 0 && num_rows > 1)  // the whole text at once
        attention_forward<Real>(
            g.pad, {.out = atty, .lse = lse, .qkv = cache(l), .B = 1, .T = num_rows, .C = C, .NH = NH});
    else
        cached_attention_forward<Real>(
            g.pad, {.out = atty, .qkv = cache(l), .first = first, .num_rows = num_rows, .C = C, .NH = NH});
}

// residual += proj; normed = LayerNorm of it
template <class Real>
void Decoder<Real>::residual_layernorm(const Real* weight, const Real* bias, int num_rows) {
    fused_residual_layernorm_forward<Real>(g.pad, {.residual = residual,
                                                   .normed = normed,
                                                   .mean = mean,
                                                   .rstd = rstd,
                                                   .inp1 = residual,
                                                   .inp2 = proj,
                                                   .weight = weight,
                                                   .bias = bias,
                                                   .num_rows = num_rows,
                                                   .C = g.config.channels});
}

// The model's rows tokens.size() .. tokens.size() + num_rows - 1 of `inputs`, and the logits after the first
// num_new of them.
template <class Real>
void Decoder<Real>::run(int num_rows, int num_new) {
    const int C = g.config.channels, L = g.config.num_layers, first = int(tokens.size());
    encoder_forward<Real>(g.pad, {.out = residual,
                                  .inp = inputs,
                                  .wte = g.weight(WTE),
                                  .wpe = g.weight(WPE) + size_t(first) * C,
                                  .B = 1,
                                  .T = num_rows,
                                  .C = C});
    layernorm_forward<Real>(g.pad, {.out = normed,
                                    .mean = mean,
                                    .rstd = rstd,
                                    .inp = residual,
                                    .weight = g.weight(LN1W),
                                    .bias = g.weight(LN1B),
                                    .num_rows = num_rows,
                                    .C = C});
    for (int l = 0; l < L; l++) {
        linear(cache(l) + size_t(first) * 3 * C, normed, {QKVW, QKVB, l, C, 3 * C}, num_rows);
        attend(l, first, num_rows);
        linear(proj, atty, {ATTPROJW, ATTPROJB, l, C, C}, num_rows);
        residual_layernorm(g.weight(LN2W, l), g.weight(LN2B, l), num_rows);
        linear(wide, normed, {FCW, FCB, l, C, 4 * C}, num_rows);
        gelu_forward<Real>(g.pad, {.out = wide_gelu, .inp = wide, .n = size_t(num_rows) * 4 * C});
        linear(proj, wide_gelu, {FCPROJW, FCPROJB, l, 4 * C, C}, num_rows);
        const bool last = l + 1 == L;
        residual_layernorm(last ? g.weight(LNFW) : g.weight(LN1W, l + 1),
                           last ? g.weight(LNFB) : g.weight(LN1B, l + 1), num_rows);
    }
    matvec_forward<Real>(g.pad, {.out = own_logits(),
                                 .inp = normed + size_t(num_new - 1) * C,
                                 .weight = g.weight(WTE),
                                 .bias = nullptr,
                                 .C = C,
                                 .OC = g.config.padded_vocab_size});
}

// Kernels are specialized for the number of rows, so it is rounded up to one of few. No earlier row reads the
// extra rows, and later tokens overwrite them.
template <class Real>
int Decoder<Real>::padded_rows(int first, int num_new) const {
    int num_rows = num_new;
    if (g.pad && num_new > 1)
        for (num_rows = 16; num_rows < num_new;) num_rows *= 2;
    return std::min(num_rows, T - first);
}

template <class Real>
void Decoder<Real>::prepare(int count) {
    if (!g.pad || count < 1) return;
    clear();
    const int num_new = count > T ? kept() : count;
    g.pad->prepare(g.pad->dry_run([&] { run(padded_rows(0, num_new), num_new); }));
    g.pad->compile();
}

template <class Real>
void Decoder<Real>::append(const int* values, int count) {
    if (count < 1) return;
    std::vector<int> added(values, values + count);
    if (tokens.size() + added.size() >
        size_t(T)) {  // keep the last half, which leaves room for as many again
        added.insert(added.begin(), tokens.begin(), tokens.end());
        added.erase(added.begin(), added.end() - kept());
        tokens.clear();
    }
    const int first = int(tokens.size()), num_new = int(added.size());
    const int num_rows = padded_rows(first, num_new);
    added.resize(num_rows, 0);
    memory.upload(inputs, added.data(), num_rows);
    run(num_rows, num_new);
    tokens.insert(tokens.end(), added.begin(), added.begin() + num_new);
}
