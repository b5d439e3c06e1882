// A text that grows token by token: queries, keys and values of all its tokens are kept (the cache), so that
// the next token costs one row of the model, however long the text is.
//     Decoder<float> decoder(model, model.config.max_seq_len);
//     decoder.append(prompt.data(), int(prompt.size()));
//     decoder.read_logits(logits);   // of the token that comes next
// Past the most tokens that the cache holds, the text's last half is read anew: its positions change then.
#pragma once
#include <algorithm>
#include <vector>

#include "llmc/cached_attention.h"
#include "llmc/gpt2.h"
#include "llmc/matvec.h"

template <class Real>
struct Decoder {
    const GPT2<Real>& g;      // its parameters alone: gpt2_allocate() need not have been called
    int T;                    // most tokens in the cache
    std::vector<int> tokens;  // those in it
    Memory memory;
    int* inputs;                              // (T) where kernels look for tokens
    std::vector<Real*> qkv;                   // (T,3C) of each layer: the cache
    Real *residual, *normed, *atty, *branch;  // (T,C) of the rows that are computed at once
    Real *wide, *wide_gelu;                   // (T,4C)
    float *mean, *rstd, *lse;                 // (T), (T), (NH,T)
    Real* logits;                             // (Vp) of the token after the last

    Decoder(const GPT2<Real>& model, int most_tokens);
    Decoder(const Decoder&) = delete;

    void clear() { tokens.clear(); }
    // Adds tokens (count) to the text, all below V.
    void append(const int* values, int count);
    // The logits (V) of the token after the last one.
    void read_logits(float* outp) const { memory.download_floats(outp, logits, g.config.vocab_size); }

   private:
    void linear(Real* out, const Real* inp, int weight, int bias, int l, int N, int C, int OC);
    void attend(int l, int first, int N);
    void run(const int* values, int N);
};

template <class Real>
Decoder<Real>::Decoder(const GPT2<Real>& model, int most_tokens)
    : g(model), T(most_tokens), memory(model.pad) {
    const ModelConfig& c = g.config;
    if (T < 1 || T > c.max_seq_len)
        fail("a text of %d tokens at a time: it must be from 1 to the model's max_seq_len %d", T,
             c.max_seq_len);
    const size_t rows = T, C = c.channels;
    memory.kind = "cache";
    for (int l = 0; l < c.num_layers; l++) qkv.push_back(memory.allocate<Real>(rows * 3 * C, "cache"));
    memory.kind = "activations";
    inputs = memory.allocate<int>(rows, "inputs");
    for (Real** p : {&residual, &normed, &atty, &branch}) *p = memory.allocate<Real>(rows * C, "activations");
    for (Real** p : {&wide, &wide_gelu}) *p = memory.allocate<Real>(rows * 4 * C, "activations");
    mean = memory.allocate<float>(rows, "mean");
    rstd = memory.allocate<float>(rows, "rstd");
    lse = memory.allocate<float>(rows * c.num_heads, "lse");
    logits = memory.allocate<Real>(c.padded_vocab_size, "logits");
}

// out (N,OC) = inp (N,C) weight^T + bias of layer l.
template <class Real>
void Decoder<Real>::linear(Real* out, const Real* inp, int weight, int bias, int l, int N, int C, int OC) {
    if (N == 1)
        matvec_forward(g.pad, out, inp, g.weight(weight, l), g.weight(bias, l), C, OC);
    else
        matmul_forward(g.pad, out, inp, g.weight(weight, l), g.weight(bias, l), N, C, OC);
}

template <class Real>
void Decoder<Real>::attend(int l, int first, int N) {
    const int C = g.config.channels, NH = g.config.num_heads;
    if (first == 0 && N > 1)  // the whole text at once
        attention_forward(g.pad, atty, lse, qkv[l], 1, N, C, NH);
    else
        cached_attention_forward(g.pad, atty, qkv[l], first, N, C, NH);
}

// The model's rows tokens.size() .. tokens.size() + N - 1.
template <class Real>
void Decoder<Real>::run(const int* values, int N) {
    const int C = g.config.channels, L = g.config.num_layers, first = int(tokens.size());
    memory.upload(inputs, values, N);
    encoder_forward(g.pad, residual, inputs, g.weight(WTE), g.weight(WPE) + size_t(first) * C, 1, N, C);
    layernorm_forward(g.pad, normed, mean, rstd, residual, g.weight(LN1W), g.weight(LN1B), N, C);
    for (int l = 0; l < L; l++) {
        linear(qkv[l] + size_t(first) * 3 * C, normed, QKVW, QKVB, l, N, C, 3 * C);
        attend(l, first, N);
        linear(branch, atty, ATTPROJW, ATTPROJB, l, N, C, C);
        fused_residual_layernorm_forward(g.pad, residual, normed, mean, rstd, residual, branch,
                                         g.weight(LN2W, l), g.weight(LN2B, l), N, C);
        linear(wide, normed, FCW, FCB, l, N, C, 4 * C);
        gelu_forward(g.pad, wide_gelu, wide, size_t(N) * 4 * C);
        linear(branch, wide_gelu, FCPROJW, FCPROJB, l, N, 4 * C, C);
        const bool last = l + 1 == L;
        fused_residual_layernorm_forward(g.pad, residual, normed, mean, rstd, residual, branch,
                                         last ? g.weight(LNFW) : g.weight(LN1W, l + 1),
                                         last ? g.weight(LNFB) : g.weight(LN1B, l + 1), N, C);
    }
}

template <class Real>
void Decoder<Real>::append(const int* values, int count) {
    if (count < 1) return;
    std::vector<int> added(values, values + count);
    if (tokens.size() + added.size() > size_t(T)) {  // the last half of it all, and room for as many again
        added.insert(added.begin(), tokens.begin(), tokens.end());
        added.erase(added.begin(), added.end() - (T + 1) / 2);
        tokens.clear();
    }
    const int first = int(tokens.size()), N = int(added.size());
    // A device builds its kernels for each number of rows: a few numbers only. The rows that are too many are
    // seen by none before them, and overwritten by what comes next.
    int rows = N;
    if (g.pad && N > 1)
        for (rows = 16; rows < N;) rows *= 2;
    rows = std::min(rows, T - first);
    added.resize(rows, 0);
    run(added.data(), rows);
    tokens.insert(tokens.end(), added.begin(), added.begin() + N);
    const int C = g.config.channels;
    matvec_forward<Real>(g.pad, logits, normed + size_t(N - 1) * C, g.weight(WTE), nullptr, C,
                         g.config.padded_vocab_size);
}
