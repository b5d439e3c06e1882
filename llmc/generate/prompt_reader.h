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
    Activations<Real> acts;  // of a text; qkv of each layer is the cache (texts,T,3C)
    Real* logits;            // (texts,Vp) of the token after the last

    PromptReader(const GPT2<Real>& model, int capacity, int num_texts)
        : g(model), T(capacity), memory(model.pad, model.memory.use) {
        const ModelConfig& c = g.config;
        if (T < 1 || T > c.max_seq_len)
            fail("a text of %d tokens at a time: it must be from 1 to the model's max_seq_len %d", T,
                 c.max_seq_len);
        if (num_texts < 1) fail("%d texts side by side: there must be at least one", num_texts);
        TensorMemory to = {memory, FORWARD_ONLY};
        acts = allocate_activations<Real>(to, c, 1, T, num_texts);
        logits = memory.allocate<Real>(size_t(num_texts) * c.padded_vocab_size, "logits");
    }

    // Fills the cache and the logits of a text, 0 .. texts - 1, with 1 .. T tokens below V.
    void read(int text, const std::vector<int>& tokens) {
        std::vector<int> rows = tokens;
        rows.resize(padded_rows(int(tokens.size())), 0);
        memory.upload(acts.inputs, rows.data(), rows.size());
        run(text, int(tokens.size()));
    }

    // Builds the kernels for a prompt of so many tokens, which otherwise happens in read().
    void prepare(int count) {
        if (!g.pad) return;
        g.pad->prepare([&] { give_commands(count); });
        g.pad->compile();
    }
    // The commands for such a prompt, for LaunchPad::dry_run().
    void give_commands(int count) const { run(0, count > T ? kept() : count); }

    // How many of the last tokens are kept of a text that does not fit in the cache.
    int kept() const { return (T + 1) / 2; }

   private:
    // The model's rows of the inputs, and the logits after the first `count` of them.
    void run(int text, int count) const {
        const size_t C = g.config.channels, Vp = g.config.padded_vocab_size;
        Activations<Real> of_text = acts;
        for (LayerActivations<Real>& layer : of_text.layers) layer.qkv += size_t(text) * T * 3 * C;
        gpt2_forward(g, of_text, 1, padded_rows(count), Pass::evaluation);
        decode_linear<Real>(g.pad, {.out = logits + size_t(text) * Vp,
                                    .stream = nullptr,
                                    .inp = acts.lnf + size_t(count - 1) * C,
                                    .weight = g.weight(WTE),
                                    .num_texts = 1,
                                    .C = int(C),
                                    .OC = int(Vp)});
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
