// Drawing tokens on a device: the same ones as on the CPU, for all options; positions, embeddings and the
// bits of seen tokens; logits that are not finite.
#include "llmc/layers/next_token.h"

#include <set>

#include "tests/layer_test.h"

const int B = 3, T = 5, C = 6;

struct Drawn {
    std::vector<int> tokens, positions, seen;
    std::vector<uint64_t> random_states;
    std::vector<float> stream;
    bool operator==(const Drawn&) const = default;
};

// Arrays on the host or, with DeviceArray, on a device: `draws` tokens for each text from the same logits.
template <class Real>
static Drawn draw_on_cpu(NextToken<Real> p, const std::vector<float>& logits, const std::vector<float>& wte,
                         const std::vector<float>& wpe, int draws) {
    const std::vector<Real> l = from_floats<Real>(logits), te = from_floats<Real>(wte),
                            pe = from_floats<Real>(wpe);
    Drawn d = {.tokens = std::vector<int>(B * (T + 1), -7),
               .positions = {0, 1, 2},
               .seen = std::vector<int>(B * seen_words(p.V), 0x10),
               .random_states = {1, 2, 3},
               .stream = std::vector<float>(B * C, -7.0f)};
    p.tokens = d.tokens.data(), p.positions = d.positions.data(), p.random_states = d.random_states.data();
    p.seen = d.seen.data(), p.stream = d.stream.data();
    p.logits = l.data(), p.wte = te.data(), p.wpe = pe.data();
    for (int i = 0; i < draws; i++) next_token<Real>(nullptr, p);
    return d;
}

template <class Real>
static Drawn draw_on_device(LaunchPad& pad, NextToken<Real> p, const std::vector<float>& logits,
                            const std::vector<float>& wte, const std::vector<float>& wpe, int draws) {
    DeviceArray<Real> l(pad, logits), te(pad, wte), pe(pad, wpe);
    DeviceArray<int> tokens(pad, std::vector<int>(B * (T + 1), -7)), positions(&pad, {0, 1, 2}),
        seen(pad, std::vector<int>(B * seen_words(p.V), 0x10)), weights(pad, std::vector<int>(B * p.V));
    DeviceArray<uint64_t> random_states(&pad, {1, 2, 3});
    DeviceArray<float> stream(pad, std::vector<float>(B * C, -7.0f));
    p.tokens = tokens, p.positions = positions, p.random_states = random_states, p.seen = seen,
    p.stream = stream;
    p.weights = weights, p.logits = l, p.wte = te, p.wpe = pe;
    for (int i = 0; i < draws; i++) next_token<Real>(&pad, p);
    return {.tokens = tokens.values(),
            .positions = positions.values(),
            .seen = p.penalty == 1 ? std::vector<int>() : seen.values(),
            .random_states = random_states.values(),
            .stream = stream.values()};
}

template <class Real>
struct NextTokenOf : testing::Test {};
TYPED_TEST_SUITE(NextTokenOf, RealTypes);

TYPED_TEST(NextTokenOf, DeviceDrawsTheTokensOfTheCpu) {
    using Real = TypeParam;
    const SamplerOptions all_options[] = {{},
                                          {.temperature = 0},
                                          {.temperature = 0.3f},
                                          {.top_k = 1},
                                          {.top_k = 7},
                                          {.top_p = 0.0f},
                                          {.top_p = 0.5f},
                                          {.top_k = 40, .top_p = 0.9f},
                                          {.min_p = 0.2f},
                                          {.temperature = 50, .top_k = 100, .top_p = 0.99f, .min_p = 0.5f},
                                          {.temperature = 1e-6f}};
    for (const auto& pad : test_pads()) {
        if (pad != test_pads()[0]) continue;
        int round = 0;
        for (const SamplerOptions& options : all_options)
            for (int V : {1, 53, 700}) {
                const float penalty = round++ % 3 == 0 ? 1.3f : 1.0f;
                SCOPED_TRACE(format_string("V %d round %d", V, round));
                std::vector<float> logits = random_values<Real>(size_t(B) * (V + 3), round, 2.0f);
                if (round % 2)  // ties
                    for (float& v : logits) v = std::round(v * 2) / 2;
                if (V > 1) logits[V / 2] = -INFINITY;
                const std::vector<float> wte = random_values<Real>(size_t(V + 3) * C, 1),
                                         wpe = random_values<Real>(T * C, 2);
                const NextToken<Real> p = {.num_texts = B,
                                           .V = V,
                                           .Vp = V + 3,
                                           .C = C,
                                           .T = T,
                                           .options = options,
                                           .penalty = penalty};
                Drawn cpu = draw_on_cpu(p, logits, wte, wpe, 3);
                const Drawn device = draw_on_device(*pad, p, logits, wte, wpe, 3);
                if (penalty == 1) cpu.seen.clear();
                EXPECT_EQ(device.tokens, cpu.tokens);
                EXPECT_EQ(device.seen, cpu.seen);
                EXPECT_EQ(device.stream, cpu.stream);
                EXPECT_EQ(device.positions, cpu.positions);
                EXPECT_TRUE(options.temperature == 0 || device.random_states == cpu.random_states);
            }
    }
}

// The weights are 2^31, 2^31 and 1. Half of their sum is more than the first, so both large ones are drawn.
TEST(NextToken, TopPIsRoundedUp) {
    const int V = 3;
    std::vector<float> logits;
    for (int b = 0; b < B; b++) logits.insert(logits.end(), {0, 0, -21});
    const std::vector<float> wte(V * C), wpe(T * C);
    const NextToken<float> p = {
        .num_texts = B, .V = V, .Vp = V, .C = C, .T = T, .options = {.top_p = 0.5f}, .penalty = 1};
    const Drawn cpu = draw_on_cpu(p, logits, wte, wpe, 3);
    EXPECT_EQ(std::set<int>(cpu.tokens.begin(), cpu.tokens.end()), (std::set<int>{-7, 0, 1}));
    for (const auto& pad : test_pads())
        EXPECT_EQ(draw_on_device(*pad, p, logits, wte, wpe, 3).tokens, cpu.tokens);
}

TEST(NextToken, LogitsThatAreNotFinite) {
    for (const auto& pad : test_pads())
        for (float bad : {NAN, INFINITY, -INFINITY}) {
            const int V = 70;
            std::vector<float> logits = random_values(size_t(B) * V, 3);
            std::fill(logits.begin() + V + (bad < 0 ? 0 : 69), logits.begin() + 2 * V, bad);  // of text 1
            const NextToken<float> p = {.num_texts = B, .V = V, .Vp = V, .C = C, .T = T};
            const Drawn drawn =
                draw_on_device(*pad, p, logits, random_values(V * C, 1), random_values(T * C, 2), 1);
            EXPECT_GE(drawn.tokens[1], 0);
            EXPECT_EQ(drawn.tokens[(T + 1) + 2], -1);
            EXPECT_GE(drawn.tokens[2 * (T + 1) + 3], 0);
        }
}
