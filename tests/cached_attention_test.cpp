// Cached attention gives the same rows as attention_forward() does for the whole sequence, wherever the new
// rows begin.
#include "llmc/layers/cached_attention.h"

#include "tests/layer_test.h"
#include "tests/whole_attention.h"

struct Shape {
    int T, C, NH;
};
static const Shape shapes[] = {{1, 1, 1}, {5, 6, 2}, {65, 48, 3}, {70, 64, 1}, {131, 256, 2}};

// The whole sequence, its attention, and the rows at which the new rows begin.
template <class Real>
struct Case {
    std::vector<float> qkv, out;
    std::vector<int> firsts;
    Case(const Shape& s)
        : qkv(random_values<Real>(size_t(s.T) * 3 * s.C, 1)), out(whole_attention(qkv, s.T, s.C, s.NH)) {
        firsts = {0, s.T / 2, s.T - 1};
    }
    std::vector<float> rows_from(int first, int C) const {
        return std::vector<float>(out.begin() + size_t(first) * C, out.end());
    }
};

template <class Real>
struct CachedAttention : testing::Test {};
TYPED_TEST_SUITE(CachedAttention, RealTypes);

TYPED_TEST(CachedAttention, CpuMatchesWholeAttention) {
    using Real = TypeParam;
    for (const Shape& s : shapes) {
        const Case<Real> c(s);
        const std::vector<Real> qkv = from_floats<Real>(c.qkv);
        for (int first : c.firsts) {
            SCOPED_TRACE(format_string("T %d C %d NH %d first %d", s.T, s.C, s.NH, first));
            const int num_rows = s.T - first;
            std::vector<Real> out = from_floats<Real>(nans(size_t(num_rows) * s.C));
            cached_attention_forward_cpu<Real>({.out = out.data(),
                                                .qkv = qkv.data(),
                                                .first = first,
                                                .num_rows = num_rows,
                                                .C = s.C,
                                                .NH = s.NH});
            expect_close("out", to_floats(out), c.rows_from(first, s.C), tolerance<Real>());
        }
    }
}

TYPED_TEST(CachedAttention, GpuMatchesWholeAttention) {
    using Real = TypeParam;
    for (const Shape& s : shapes) {
        const Case<Real> c(s);
        SCOPED_TRACE(format_string("T %d C %d NH %d", s.T, s.C, s.NH));
        auto check = [&](LaunchPad& pad, auto& version, int block_size) {
            DeviceArray<Real> qkv(pad, c.qkv);
            for (int first : c.firsts) {
                const int num_rows = s.T - first;
                DeviceArray<Real> out(pad, size_t(num_rows) * s.C);
                version.launch(
                    pad, {.out = out, .qkv = qkv, .first = first, .num_rows = num_rows, .C = s.C, .NH = s.NH},
                    block_size);
                expect_close("out", out.values(), c.rows_from(first, s.C), tolerance<Real>());
            }
        };
        for_each_version<Real>(cached_attention_forward_versions<Real>(), check);
    }
}

TEST(CachedAttentionSizes, RefusesHeadsThatItCannotHold) {
    float x[3 * 258] = {};
    CachedAttentionForward<float> p = {.out = x, .qkv = x, .first = 0, .num_rows = 1, .C = 129, .NH = 1};
    EXPECT_THROW(cached_attention_forward<float>(nullptr, p), Error);
    p.C = 5;
    p.NH = 2;
    EXPECT_THROW(cached_attention_forward<float>(nullptr, p), Error);
}
