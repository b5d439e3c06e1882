// Generates texts side by side from one model, all equally long, so that each step reads the weights once.
//     TextGenerator<float> generator(model, model.config.max_seq_len, 8, {.sampler = {.temperature = 0.8f}});
//     generator.start(prompt, random_states);    // 8 states of random numbers
//     generator.next(tokens);            // 8 tokens, as often as wanted
// On a device, the commands of one token are recorded once. The kernels take positions and tokens from memory
// and draw the next token there, so several steps are under way while the host reads the earlier ones'
// tokens. If the texts outgrow the cache, their last halves are processed anew, at new positions.
#pragma once

#include "llmc/generate/prompt_reader.h"
#include "llmc/layers/decode_attention.h"
#include "llmc/layers/next_token.h"

struct TextGeneratorOptions {
    SamplerOptions sampler;
    float repetition_penalty = 1;
    int vocab_size = 0;  // only tokens below are drawn, which the tokenizer has; 0: all of the model's
};

template <class Real>
struct TextGenerator {
    const GPT2<Real>& g;
    PromptReader<Real> reader;  // reads prompts, and texts that outgrew the cache
    const int B, T;             // texts, and the capacity of the cache of each
    const TextGeneratorOptions options;
    const int V;  // tokens that may be drawn

    TextGenerator(const GPT2<Real>& model, int capacity, int num_texts, const TextGeneratorOptions& with = {})
        : g(model),
          reader(model, capacity, num_texts),
          B(num_texts),
          T(capacity),
          options(with),
          V(with.vocab_size ? with.vocab_size : model.config.vocab_size),
          memory(model.pad, model.memory.use),
          texts(num_texts) {
        const ModelConfig& c = g.config;
        if (V < 1 || V > c.vocab_size)
            fail("tokens below %d are to be drawn: the model has %d", V, c.vocab_size);
        const size_t rows = B, C = c.channels;
        stream = memory.allocate<float>(rows * C, "residual stream");
        atty = memory.allocate<Real>(rows * C, "activations");
        wide = memory.allocate<Real>(rows * 4 * C, "activations");
        draw = {.tokens = memory.allocate<int>(rows * (T + 1), "tokens", Placement::host),
                .positions = memory.allocate<int>(rows, "positions"),
                .random_states = memory.allocate<uint64_t>(rows, "random numbers"),
                .seen = memory.allocate<int>(rows * seen_words(V), "tokens of the texts"),
                .weights = memory.allocate<int>(rows * V, "sampling weights"),
                .stream = stream,
                .logits = reader.logits,
                .wte = g.weight(WTE),
                .wpe = g.weight(WPE),
                .num_texts = B,
                .V = V,
                .Vp = c.padded_vocab_size,
                .C = c.channels,
                .T = T,
                .options = options.sampler,
                .penalty = options.repetition_penalty};
    }
    TextGenerator(const TextGenerator&) = delete;
    ~TextGenerator() {
        if (step_recording) g.pad->forget(step_recording);
    }

    // Builds the kernels for a prompt of so many tokens, which otherwise happens in start().
    void prepare(int prompt_tokens) {
        if (!g.pad) return;
        if (!step_recording) foresee(prompt_tokens);
        reader.prepare(prompt_tokens);
        if (!step_recording) {
            g.pad->prepare([&] { decode_step(); });
            g.pad->compile();
            g.pad->begin_recording();
            decode_step();
            step_recording = g.pad->end_recording();
        }
        g.pad->commit(true);  // also the upload of the parameters
    }

    // A dry run of everything: all kernels are checked together.
    void foresee(int prompt_tokens) {
        if (!g.pad) return;
        g.pad->dry_run([&] {
            reader.give_commands(prompt_tokens);
            decode_step();
        });
    }

    // All texts begin anew with this prompt, which has at least one token. random_states (B) are states of
    // random_f32() other than 0.
    void start(const std::vector<int>& prompt, const std::vector<uint64_t>& random_states) {
        if (prompt.empty() || int(random_states.size()) != B)
            fail("%zu tokens of a prompt and %zu random states for %d texts", prompt.size(),
                 random_states.size(), B);
        prepare(int(prompt.size()));
        steps.clear();
        std::vector<int> seen(size_t(B) * seen_words(V));
        for (int b = 0; b < B; b++)
            for (int token : prompt)
                if (token < V) seen[size_t(b) * seen_words(V) + token / 32] |= int(1u << token % 32);
        memory.upload(draw.seen, seen.data(), seen.size());
        memory.upload(draw.random_states, random_states.data(), B);
        const size_t kept = prompt.size() > size_t(T) ? reader.kept() : prompt.size();
        for (std::vector<int>& text : texts) text.assign(prompt.end() - kept, prompt.end());
        read_texts();
    }

    // Waits for the tokens that next() returns next.
    void wait() const {
        if (g.pad && !steps.empty()) g.pad->wait(steps.front());
    }
    // The next token of each text: tokens (B).
    void next(int* tokens) {
        const size_t most = g.pad ? 4 : 1;  // steps under way: the device has work while the host prints
        if (steps.empty() && position == T) {
            for (std::vector<int>& text : texts) text.erase(text.begin(), text.end() - reader.kept());
            read_texts();
        }
        while (steps.size() < most && position < T) submit(false);
        wait();
        steps.erase(steps.begin());
        const int at = position - int(steps.size());
        for (int b = 0; b < B; b++) {
            tokens[b] = draw.tokens[size_t(b) * (T + 1) + at];
            if (tokens[b] < 0) fail("cannot sample: the logits of the next token are not finite");
            texts[b].push_back(tokens[b]);
        }
    }

    // The commands of one token, which next() records: a row of each text, from `stream` to the logits, and
    // the draw.
    void decode_step() {
        const int C = g.config.channels, NH = g.config.num_heads;
        const DecodeLinear<Real> base = {
            .stream = stream, .weight = nullptr, .num_texts = B, .C = C, .OC = C};
        for (int l = 0; l < g.config.num_layers; l++) {
            DecodeLinear<Real> qkv = base, attproj = base, fc = base, fcproj = base;
            qkv.out = reader.acts.layers[l].qkv;
            qkv.gain = g.weight(LN1W, l), qkv.shift = g.weight(LN1B, l);
            qkv.weight = g.weight(QKVW, l), qkv.bias = g.weight(QKVB, l);
            qkv.positions = draw.positions;
            qkv.text_stride = size_t(T) * 3 * C;
            qkv.OC = 3 * C;
            decode_linear<Real>(g.pad, qkv);
            decode_attention<Real>(g.pad, {.out = atty,
                                           .cache = reader.acts.layers[l].qkv,
                                           .positions = draw.positions,
                                           .num_texts = B,
                                           .T = T,
                                           .C = C,
                                           .NH = NH});
            attproj.inp = atty;
            attproj.weight = g.weight(ATTPROJW, l), attproj.bias = g.weight(ATTPROJB, l);
            attproj.epilogue = DecodeEpilogue::add;
            decode_linear<Real>(g.pad, attproj);
            fc.out = wide;
            fc.gain = g.weight(LN2W, l), fc.shift = g.weight(LN2B, l);
            fc.weight = g.weight(FCW, l), fc.bias = g.weight(FCB, l);
            fc.text_stride = fc.OC = 4 * C;
            fc.epilogue = DecodeEpilogue::gelu;
            decode_linear<Real>(g.pad, fc);
            fcproj.inp = wide;
            fcproj.weight = g.weight(FCPROJW, l), fcproj.bias = g.weight(FCPROJB, l);
            fcproj.C = 4 * C;
            fcproj.epilogue = DecodeEpilogue::add;
            decode_linear<Real>(g.pad, fcproj);
        }
        DecodeLinear<Real> head = base;
        head.out = reader.logits;
        head.gain = g.weight(LNFW), head.shift = g.weight(LNFB);
        head.weight = g.weight(WTE);
        head.text_stride = head.OC = g.config.padded_vocab_size;
        decode_linear<Real>(g.pad, head);
        next_token<Real>(g.pad, draw);
    }

    // Allocated for the caches and the state of the texts.
    uint64_t memory_bytes() const { return reader.memory.bytes + memory.bytes; }

   private:
    Memory memory;
    std::vector<std::vector<int>> texts;  // (B) without the tokens that next() has not returned
    std::vector<Ticket> steps;            // those under way, oldest first
    int position = 0;                     // of the newest token that was submitted
    Recording* step_recording = nullptr;
    float* stream;         // (B,C) residual stream
    Real *atty, *wide;     // (B,C), (B,4C)
    NextToken<Real> draw;  // its arrays are the state of the texts

    // Starts a step; the first one after read_texts() has its logits already.
    void submit(bool first) {
        position++;
        if (first)
            next_token<Real>(g.pad, draw);
        else if (g.pad)
            g.pad->replay(step_recording);
        else
            decode_step();
        steps.push_back(g.pad ? g.pad->commit() : 0);
    }

    // Fills the caches with the texts, which fit in them, and draws the tokens that come next.
    void read_texts() {
        const size_t C = g.config.channels, Vp = g.config.padded_vocab_size, count = texts[0].size();
        for (int b = 0; b < B; b++) {
            if (b > 0 && texts[b] == texts[0]) {
                const size_t text = size_t(T) * 3 * C;
                for (const LayerActivations<Real>& layer : reader.acts.layers)
                    memory.copy(layer.qkv + b * text, layer.qkv, count * 3 * C);
                memory.copy(reader.logits + b * Vp, reader.logits, Vp);
                continue;
            }
            reader.read(b, texts[b]);
        }
        position = int(count) - 1;
        const std::vector<int> positions(B, position);
        memory.upload(draw.positions, positions.data(), B);
        submit(true);
    }
};
