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

TYPED_TEST(DecodeAttentionOf, CpuMatchesWholeAttention) {
    using Real = TypeParam;
    for (const Shape& s : shapes) {
        SCOPED_TRACE(format_string("B %d T %d C %d NH %d", s.B, s.T, s.C, s.NH));
        const Case<Real> c(s);
        const std::vector<Real> cache = from_floats<Real>(c.cache);
        std::vector<Real> out = from_floats<Real>(nans(size_t(s.B) * s.C));
        decode_attention<Real>(nullptr, {.out = out.data(),
                                         .cache = cache.data(),
                                         .positions = c.positions.data(),
                                         .num_texts = s.B,
                                         .T = s.T,
                                         .C = s.C,
                                         .NH = s.NH});
        expect_close("out", to_floats(out), c.out, tolerance<Real>());
    }
}

// More workgroups than a device may have in a row: the launchpad folds the grid, which adds some.
template <class Real>
static void expect_matches(LaunchPad& pad, const KernelVersion<DecodeAttention<Real>>& version,
                           const Shape& s, const Case<Real>& c, int block_size) {
    DeviceArray<Real> cache(pad, c.cache), out(pad, size_t(s.B) * s.C);
    DeviceArray<int> positions(pad, c.positions);
    version.launch(pad,
                   {.out = out,
                    .cache = cache,
                    .positions = positions,
                    .num_texts = s.B,
                    .T = s.T,
                    .C = s.C,
                    .NH = s.NH},
                   block_size);
    expect_close("out", out.values(), c.out, tolerance<Real>());
}

TEST(DecodeAttention, GridsAreFolded) {
    if (test_pads().empty()) GTEST_SKIP() << "no device";
    const Shape s = {700, 1, 94, 94};
    const int one_subgroup = 1;  // in a workgroup: fewer invocations to run
    expect_matches<float>(*test_pads()[0], decode_attention_versions<float>()[0], s, Case<float>(s),
                          one_subgroup);
}

TYPED_TEST(DecodeAttentionOf, GpuMatchesWholeAttention) {
    using Real = TypeParam;
    for (const Shape& s : shapes) {
        SCOPED_TRACE(format_string("B %d T %d C %d NH %d", s.B, s.T, s.C, s.NH));
        const Case<Real> c(s);
        for_each_version<Real>(decode_attention_versions<Real>(),
                               [&](LaunchPad& pad, auto& version, int block_size) {
                                   expect_matches<Real>(pad, version, s, c, block_size);
                               });
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
