// Attention of the newest row of a few texts gives the last row of attention_forward() for each.
#include "llmc/layers/decode_attention.h"

#include "tests/layer_test.h"
#include "tests/whole_attention.h"

struct Shape {
    int B, T, C, NH;
};
static const Shape shapes[] = {{1, 1, 1, 1}, {2, 9, 6, 2}, {3, 70, 48, 3}, {2, 300, 128, 2}, {1, 66, 256, 2}};

// The cache, positions of which one is the last, and the rows of attention there. What lies behind a position
// is NaN: it must not be read.
template <class Real>
struct Case {
    std::vector<float> cache, out;
    std::vector<int> positions;
    explicit Case(const Shape& s) : positions(random_integers(s.B, 3, s.T)) {
        positions[0] = s.T - 1;
        const size_t text = size_t(s.T) * 3 * s.C;
        for (int b = 0; b < s.B; b++) {
            std::vector<float> qkv = random_values<Real>(text, 10 + b);
            const std::vector<float> rows = whole_attention(qkv, s.T, s.C, s.NH);
            const auto row = rows.begin() + size_t(positions[b]) * s.C;
            out.insert(out.end(), row, row + s.C);
            std::fill(qkv.begin() + size_t(positions[b] + 1) * 3 * s.C, qkv.end(), NAN);
            cache.insert(cache.end(), qkv.begin(), qkv.end());
        }
    }
};

template <class Real>
struct DecodeAttentionOf : testing::Test {};
TYPED_TEST_SUITE(DecodeAttentionOf, RealTypes);

template <class Real, class Launch>
static void expect_matches(LaunchPad* pad, const Launch& launch, const Shape& s, const Case<Real>& c) {
    DeviceArray<Real> cache(pad, c.cache), out(pad, size_t(s.B) * s.C);
    DeviceArray<int> positions(pad, c.positions);
    launch({.out = out,
            .cache = cache,
            .positions = positions,
            .num_texts = s.B,
            .T = s.T,
            .C = s.C,
            .NH = s.NH});
    expect_close("out", out.values(), c.out, tolerance<Real>());
}

// More workgroups than a device may have in a row: the launchpad folds the grid, which adds some.
TEST(DecodeAttention, GridsAreFolded) {
    if (test_pads().empty()) GTEST_SKIP() << "no device";
    const Shape s = {700, 1, 94, 94};
    const auto launch = [](const DecodeAttention<float>& p) {
        const int one_subgroup = 1;  // in a workgroup: fewer invocations to run
        decode_attention_versions<float>()[0].launch(*test_pads()[0], p, one_subgroup);
    };
    expect_matches<float>(test_pads()[0].get(), launch, s, Case<float>(s));
}

TYPED_TEST(DecodeAttentionOf, MatchesWholeAttention) {
    using Real = TypeParam;
    for (const Shape& s : shapes) {
        SCOPED_TRACE(format_string("B %d T %d C %d NH %d", s.B, s.T, s.C, s.NH));
        const Case<Real> c(s);
        for_cpu_and_each_version<Real>(
            decode_attention<Real>, decode_attention_versions<Real>(),
            [&](LaunchPad* pad, const auto& launch) { expect_matches<Real>(pad, launch, s, c); });
    }
}

TEST(DecodeAttention, RefusesHeadsThatItCannotHold) {
    float x[3 * 258] = {};
    const int position = 0;
    DecodeAttention<float> p = {
        .out = x, .cache = x, .positions = &position, .num_texts = 1, .T = 1, .C = 129, .NH = 1};
    EXPECT_THROW(decode_attention<float>(nullptr, p), Error);
    p.C = 5;
    p.NH = 2;
    EXPECT_THROW(decode_attention<float>(nullptr, p), Error);
}
