// Generation with the cache gives the logits of the whole model at each position, however the text is divided
// into pieces, on the CPU and on a device, and past the end of the cache.
#include "llmc/model/decoder.h"

#include "tests/random_model.h"

// The logits (tokens, V) of all positions from a full forward pass on the CPU.
template <class Real>
static std::vector<float> whole_logits(const ModelConfig& config, const std::vector<int>& tokens) {
    const auto g = make_model<Real>(config, nullptr);
    const int T = int(tokens.size()), V = config.vocab_size;
    gpt2_allocate(*g, 1, T, false);
    gpt2_set_batch(*g, tokens.data(), tokens.data(), T, false);
    gpt2_forward(*g, 1, T);
    std::vector<float> logits(size_t(T) * V);
    gpt2_head(*g, 1, T, 1, Gradients::none, [&](int first, int rows) {
        for (int row = 0; row < rows; row++)
            g->memory.download_floats(&logits[size_t(first + row) * V],
                                      g->logits + size_t(row) * config.padded_vocab_size, V);
    });
    return logits;
}

// Appends text in pieces of the given sizes, and compares the logits after each with the whole model's.
template <class Real>
static void check_pieces(LaunchPad* pad, const std::vector<int>& pieces) {
    int length = 0;
    for (int piece : pieces) length += piece;
    const std::vector<int> tokens = random_integers(length, 7, odd.vocab_size);
    const std::vector<float> expected = whole_logits<Real>(odd, tokens);
    const auto g = make_model<Real>(odd, pad);
    Decoder<Real> decoder(*g, odd.max_seq_len);
    int at = 0;
    for (int piece : pieces) {
        decoder.append(&tokens[at], piece);
        at += piece;
        std::vector<float> got = nans(odd.vocab_size);
        decoder.read_logits(got.data());
        const auto row = expected.begin() + size_t(at - 1) * odd.vocab_size;
        expect_close(format_string("logits after %d tokens", at).c_str(), got,
                     std::vector<float>(row, row + odd.vocab_size),
                     4 * tolerance<Real>(5e-6));  // in 16 bits, the two round at different points
    }
}

template <class Real>
struct DecoderOf : testing::Test {};
TYPED_TEST_SUITE(DecoderOf, RealTypes);

TYPED_TEST(DecoderOf, LogitsAreTheWholeModelsOnCpu) {
    check_pieces<TypeParam>(nullptr, std::vector<int>(37, 1));
    check_pieces<TypeParam>(nullptr, {20, 1, 1, 1, 5, 9});
    check_pieces<TypeParam>(nullptr, {1, 36});
}

TYPED_TEST(DecoderOf, LogitsAreTheWholeModelsOnDevice) {
    for (const auto& pad : test_pads()) {
        if (!std::is_same_v<TypeParam, float> && pad != test_pads()[0]) continue;
        const int messages = validation_message_count();
        check_pieces<TypeParam>(pad.get(), std::vector<int>(5, 1));
        check_pieces<TypeParam>(pad.get(), {20, 1, 1, 1, 5, 9});
        EXPECT_EQ(validation_message_count(), messages) << "the validation layer printed messages";
    }
}

// When the cache is full, the logits are as if only the kept tokens and what came after them existed.
TEST(Decoder, TextsLongerThanTheCache) {
    const std::vector<int> tokens = random_integers(100, 9, odd.vocab_size);
    const auto g = make_model<float>(odd, nullptr);
    Decoder<float> decoder(*g, 16);
    size_t most = 0;
    for (int at = 0; at < 100; at++) {
        decoder.append(&tokens[at], 1);
        const size_t kept = decoder.tokens.size();
        most = std::max(most, kept);
        ASSERT_LE(kept, 16u);
        ASSERT_GE(kept, std::min<size_t>(at + 1, 8));
        const std::vector<int> last(tokens.begin() + at + 1 - kept, tokens.begin() + at + 1);
        ASSERT_EQ(decoder.tokens, last);
        const std::vector<float> expected = whole_logits<float>(odd, last);
        std::vector<float> got = nans(odd.vocab_size);
        decoder.read_logits(got.data());
        expect_close("logits", got, std::vector<float>(expected.end() - odd.vocab_size, expected.end()),
                     2e-5);
    }
    EXPECT_EQ(most, 16u);
    decoder.clear();
    decoder.append(tokens.data(), 100);  // a prompt longer than the cache
    EXPECT_EQ(decoder.tokens, std::vector<int>(tokens.end() - 8, tokens.end()));
}

TEST(Decoder, RefusesMoreThanTheModelsPositions) {
    const auto g = make_model<float>(odd, nullptr);
    EXPECT_THROW(Decoder<float>(*g, 38), Error);
    EXPECT_THROW(Decoder<float>(*g, 0), Error);
    for (const int texts : {0, -1, -1 << 30}) EXPECT_THROW(Decoder<float>(*g, 8, texts), Error);
    Decoder<float> shortest(*g, 1);  // the cache holds one token
    const int tokens[] = {3, 4, 5};
    shortest.append(tokens, 3);
    shortest.append(tokens, 1);
    EXPECT_EQ(shortest.tokens, std::vector<int>{3});
}
