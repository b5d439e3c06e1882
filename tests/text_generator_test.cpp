// Generated texts: a prompt's logits are those of a full forward pass; greedy tokens are its likeliest, past
// the end of the cache too; texts side by side are what each seed gives alone; CPU and device draw the same.
#include "llmc/generate/text_generator.h"

#include "tests/message_of.h"
#include "tests/random_model.h"

// The logits (V) after these tokens, from a full forward pass on the CPU.
template <class Real>
static std::vector<float> logits_after(GPT2<Real>& g, const std::vector<int>& tokens) {
    const int T = int(tokens.size()), V = g.config.vocab_size;
    if (!g.acts.T) gpt2_allocate(g, 1, g.config.max_seq_len, false);
    gpt2_set_batch(g, tokens.data(), tokens.data(), T, false);
    gpt2_forward(g, 1, T);
    std::vector<float> logits(V);
    gpt2_head(g, 1, T, 1, Gradients::none, [&](int first, int) {
        g.memory.download_floats(logits.data(),
                                 g.acts.logits + size_t(T - 1 - first) * g.config.padded_vocab_size, V);
    });
    return logits;
}

// Texts (B) of `count` tokens after a prompt.
template <class Real>
static std::vector<std::vector<int>> texts_of(TextGenerator<Real>& generator, const std::vector<int>& prompt,
                                              int count, uint64_t seed) {
    std::vector<uint64_t> random_states;
    for (int b = 0; b < generator.B; b++) random_states.push_back(seed + b);
    generator.start(prompt, random_states);
    std::vector<std::vector<int>> texts(generator.B);
    std::vector<int> next(generator.B);
    for (int i = 0; i < count; i++) {
        generator.next(next.data());
        for (int b = 0; b < generator.B; b++) texts[b].push_back(next[b]);
    }
    return texts;
}

template <class Real>
struct TextGeneratorOf : testing::Test {};
TYPED_TEST_SUITE(TextGeneratorOf, RealTypes);

// Calls check(pad) for the CPU, where `pad` is null, and the devices; in 16 bits in one memory mode.
template <class Real, class Check>
static void for_each_place(Check check) {
    check(static_cast<LaunchPad*>(nullptr));
    for (const auto& pad : test_pads()) {
        if (!std::is_same_v<Real, float> && pad != test_pads()[0]) continue;
        check(pad.get());
    }
}

// A prompt's logits are the whole model's, for prompts of one token, of the cache's size and between.
template <class Real>
static void check_prompts(LaunchPad* pad, const std::vector<int>& lengths) {
    const auto g = make_model<Real>(odd, pad), reference = make_model<Real>(odd, nullptr);
    TextGenerator<Real> generator(*g, odd.max_seq_len, 2);
    for (int length : lengths) {
        const std::vector<int> prompt = random_integers(length, 7, odd.vocab_size);
        generator.start(prompt, {1, 2});
        for (int b = 0; b < 2; b++) {
            std::vector<float> got = nans(odd.vocab_size);
            g->memory.download_floats(got.data(), generator.reader.logits + size_t(b) * odd.padded_vocab_size,
                                      odd.vocab_size);
            expect_close(format_string("logits after %d tokens", length).c_str(), got,
                         logits_after(*reference, prompt),
                         4 * tolerance<Real>(5e-6));  // in 16 bits, the two round at different points
        }
    }
}

TYPED_TEST(TextGeneratorOf, LogitsOfPromptsAreTheWholeModels) {
    for_each_place<TypeParam>([](LaunchPad* pad) {
        check_prompts<TypeParam>(
            pad, pad ? std::vector<int>{1, 20, 37} : std::vector<int>{1, 2, 4, 5, 16, 20, 37});
    });
}

// The token chosen must be as likely as the likeliest, but for rounding.
template <class Real>
static void check_greedy(LaunchPad* pad, int count) {
    const auto g = make_model<Real>(odd, pad), reference = make_model<Real>(odd, nullptr);
    const int T = 12;
    TextGenerator<Real> generator(*g, T, 1, {.sampler = {.temperature = 0}});
    std::vector<int> text = random_integers(7, 3, odd.vocab_size);
    const std::vector<int> more = texts_of(generator, text, count, 5)[0];
    for (int token : more) {
        const std::vector<float> logits = logits_after(*reference, text);
        const auto [least, most] = std::minmax_element(logits.begin(), logits.end());
        EXPECT_GE(logits[token], *most - 8 * tolerance<Real>(5e-6) * (*most - *least));
        text.push_back(token);
        if (int(text.size()) > T) text.erase(text.begin(), text.end() - generator.reader.kept());
    }
}

TYPED_TEST(TextGeneratorOf, GreedyTokensAreTheLikeliest) {
    for_each_place<TypeParam>([](LaunchPad* pad) { check_greedy<TypeParam>(pad, 20); });
}

// A generator that is used again forgets the texts before. `one` generates each sample alone.
template <class Real>
static void check_side_by_side(LaunchPad* pad, int count) {
    const auto g = make_model<Real>(odd, pad);
    TextGenerator<Real> three(*g, 12, 3, {.repetition_penalty = 1.2f}),
        one(*g, 12, 1, {.repetition_penalty = 1.2f});
    for (uint64_t seed : {11, 12}) {
        const std::vector<int> prompt = random_integers(5 + seed % 2, uint32_t(seed), odd.vocab_size);
        const auto texts = texts_of(three, prompt, count, seed);
        for (int b = 0; b < 3; b++) EXPECT_EQ(texts_of(one, prompt, count, seed + b)[0], texts[b]) << b;
        EXPECT_NE(texts[0], texts[1]);
    }
}

TYPED_TEST(TextGeneratorOf, TextsSideBySideAreThoseOfEachSeed) {
    for_each_place<TypeParam>([](LaunchPad* pad) { check_side_by_side<TypeParam>(pad, 20); });
}

TEST(TextGenerator, CpuAndDeviceDrawTheSameText) {
    for (const auto& pad : test_pads()) {
        const auto g = make_model<float>(odd, pad.get()), on_cpu = make_model<float>(odd, nullptr);
        TextGenerator<float> device(*g, 37, 2), cpu(*on_cpu, 37, 2);
        const std::vector<int> prompt = random_integers(4, 3, odd.vocab_size);
        EXPECT_EQ(texts_of(device, prompt, 40, 9), texts_of(cpu, prompt, 40, 9));
    }
}

TEST(TextGenerator, LongPromptsAndShortCaches) {
    const auto g = make_model<float>(odd, nullptr);
    EXPECT_THROW(TextGenerator<float>(*g, 38, 1), Error);
    EXPECT_THROW(TextGenerator<float>(*g, 0, 1), Error);
    TextGenerator<float> whole(*g, 12, 1), shortest(*g, 1, 2);
    const std::vector<int> prompt = random_integers(40, 3, odd.vocab_size);
    const std::vector<int> kept(prompt.end() - whole.reader.kept(), prompt.end());
    EXPECT_EQ(texts_of(whole, prompt, 20, 4), texts_of(whole, kept, 20, 4));
    EXPECT_EQ(texts_of(shortest, prompt, 5, 4), texts_of(shortest, {prompt.back()}, 5, 4));
    TextGenerator<float> longer(*g, 13, 1);
    const std::vector<int> fits(prompt.end() - 12, prompt.end());  // is read whole
    for (uint64_t seed = 0; seed < 20; seed++)
        EXPECT_EQ(texts_of(whole, fits, 1, seed), texts_of(longer, fits, 1, seed));
}

TEST(TextGenerator, RefusesANumberOfTextsBelowOne) {
    const auto g = make_model<float>(odd, nullptr);
    for (const int texts : {0, -1, -1 << 30})
        EXPECT_EQ(message_of([&] { TextGenerator<float> generator(*g, 12, texts); }),
                  format_string("%d texts side by side: there must be at least one", texts));
}
