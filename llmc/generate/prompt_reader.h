// Reads a text into a KV cache, all rows of the model at once, and computes the logits of the token after it.
// text_generator.h continues the text from there.
#pragma once
#include <algorithm>
#include <vector>

#include "llmc/layers/decode_linear.h"
#include "llmc/model/gpt2.h"

template <class Real>
struct PromptReader {
    const GPT2<Real>& g;  // only its parameters: gpt2_allocate() need not have been called
    const int T;          // capacity of the cache of a text, in tokens
    Memory memory;
    std::vector<Real*> qkv;  // (texts,T,3C) of each layer: the cache
    Real* logits;            // (texts,Vp) of the token after the last

    PromptReader(const GPT2<Real>& model, int capacity, int num_texts)
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
        for (Real** p : {&residual, &normed, &atty, &proj})
            *p = memory.allocate<Real>(rows * C, "activations");
        for (Real** p : {&wide, &wide_gelu}) *p = memory.allocate<Real>(rows * 4 * C, "activations");
        mean = memory.allocate<float>(rows, "mean");
        rstd = memory.allocate<float>(rows, "rstd");
        lse = memory.allocate<float>(rows * c.num_heads, "lse");
        logits = memory.allocate<Real>(size_t(num_texts) * c.padded_vocab_size, "logits");
    }

    // Fills the cache and the logits of a text, 0 .. texts - 1, with 1 .. T tokens below V.
    void read(int text, const std::vector<int>& tokens) {
        std::vector<int> rows = tokens;
        rows.resize(padded_rows(int(tokens.size())), 0);
        memory.upload(inputs, rows.data(), rows.size());
        run(text, int(tokens.size()));
    }

    // Builds the kernels for a prompt of so many tokens, which otherwise happens in read().
    void prepare(int count) {
        if (!g.pad) return;
        g.pad->prepare(g.pad->dry_run([&] { run(0, count > T ? kept() : count); }));
        g.pad->compile();
    }

    // How many of the last tokens are kept of a text that does not fit in the cache.
    int kept() const { return (T + 1) / 2; }

   private:
    int* inputs;                            // (T) tokens, for the kernels
    Real *residual, *normed, *atty, *proj;  // (T,C)
    Real *wide, *wide_gelu;                 // (T,4C)
    float *mean, *rstd, *lse;               // (T), (T), (NH,T)

    // A linear layer of the model, by its parameter tensors.
    struct Linear {
        int weight, bias, layer, C, OC;
    };
    // out (num_rows, OC) = inp (num_rows, C) weight^T + bias
    void linear(Real* out, const Real* inp, const Linear& which, int num_rows) const {
        if (!g.pad && num_rows <= 4)  // bound by reading the weight, which a packed GEMM reads slower
            return decode_linear<Real>(g.pad, {.out = out,
                                               .stream = nullptr,
                                               .inp = inp,
                                               .weight = g.weight(which.weight, which.layer),
                                               .bias = g.weight(which.bias, which.layer),
                                               .text_stride = size_t(which.OC),
                                               .num_texts = num_rows,
                                               .C = which.C,
                                               .OC = which.OC});
        matmul_forward<Real>(g.pad, {.out = out,
                                     .inp = inp,
                                     .weight = g.weight(which.weight, which.layer),
                                     .bias = g.weight(which.bias, which.layer),
                                     .num_rows = num_rows,
                                     .C = which.C,
                                     .OC = which.OC});
    }

    // residual += added, unless that is null; normed = LayerNorm of it
    void residual_layernorm(const Real* added, const Real* weight, const Real* bias, int num_rows) const {
        layernorm_forward<Real>(g.pad, {.out = normed,
                                        .mean = mean,
                                        .rstd = rstd,
                                        .inp = residual,
                                        .added = added,
                                        .sum = residual,
                                        .weight = weight,
                                        .bias = bias,
                                        .num_rows = num_rows,
                                        .C = g.config.channels});
    }

    // The model's rows of `inputs`, and the logits after the first `count` of them.
    void run(int text, int count) const {
        const int C = g.config.channels, L = g.config.num_layers, NH = g.config.num_heads;
        const int num_rows = padded_rows(count), Vp = g.config.padded_vocab_size;
        encoder_forward<Real>(g.pad, {.out = residual,
                                      .inp = inputs,
                                      .wte = g.weight(WTE),
                                      .wpe = g.weight(WPE),
                                      .B = 1,
                                      .T = num_rows,
                                      .C = C});
        residual_layernorm(nullptr, g.weight(LN1W), g.weight(LN1B), num_rows);
        for (int l = 0; l < L; l++) {
            Real* cache = qkv[l] + size_t(text) * T * 3 * C;
            linear(cache, normed, {QKVW, QKVB, l, C, 3 * C}, num_rows);
            attention_forward<Real>(
                g.pad, {.out = atty, .lse = lse, .qkv = cache, .B = 1, .T = num_rows, .C = C, .NH = NH});
            linear(proj, atty, {ATTPROJW, ATTPROJB, l, C, C}, num_rows);
            residual_layernorm(proj, g.weight(LN2W, l), g.weight(LN2B, l), num_rows);
            linear(wide, normed, {FCW, FCB, l, C, 4 * C}, num_rows);
            gelu_forward<Real>(g.pad, {.out = wide_gelu, .inp = wide, .n = size_t(num_rows) * 4 * C});
            linear(proj, wide_gelu, {FCPROJW, FCPROJB, l, 4 * C, C}, num_rows);
            const bool last = l + 1 == L;
            residual_layernorm(proj, last ? g.weight(LNFW) : g.weight(LN1W, l + 1),
                               last ? g.weight(LNFB) : g.weight(LN1B, l + 1), num_rows);
        }
        decode_linear<Real>(g.pad, {.out = logits + size_t(text) * Vp,
                                    .stream = nullptr,
                                    .inp = normed + size_t(count - 1) * C,
                                    .weight = g.weight(WTE),
                                    .num_texts = 1,
                                    .C = C,
                                    .OC = Vp});
    }

    // Kernels are specialized for the number of rows, so it is rounded up to one of few. No earlier row reads
    // the extra rows, and later tokens overwrite them.
    int padded_rows(int count) const {
        int num_rows = count;
        if (g.pad)
            for (num_rows = 16; num_rows < count;) num_rows *= 2;
        return std::min(num_rows, T);
    }
};
