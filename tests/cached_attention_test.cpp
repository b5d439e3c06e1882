// Attention of the newest rows over kept ones: the same rows as attention_forward() gives for the whole
// sequence, wherever it is cut.
#include "llmc/cached_attention.h"

#include "llmc/attention.h"
#include "tests/layer_test.h"

struct Shape {
    int seq_len, C, NH;
};
static const Shape shapes[] = {{1, 1, 1}, {5, 6, 2}, {65, 48, 3}, {70, 64, 1}, {131, 256, 2}};

// The whole sequence, its attention, and the places where it is cut.
template <class T>
struct Case {
    std::vector<float> qkv, out;
    std::vector<int> firsts;
    Case(const Shape& s)
        : qkv(random_values<T>(size_t(s.seq_len) * 3 * s.C, 1)), out(size_t(s.seq_len) * s.C) {
        std::vector<float> lse(size_t(s.NH) * s.seq_len);
        attention_forward_cpu(out.data(), lse.data(), qkv.data(), 1, s.seq_len, s.C, s.NH);
        firsts = {0, s.seq_len / 2, s.seq_len - 1};
    }
    std::vector<float> rows_from(int first, int C) const {
        return std::vector<float>(out.begin() + size_t(first) * C, out.end());
    }
};

template <class T>
struct CachedAttention : testing::Test {};
TYPED_TEST_SUITE(CachedAttention, RealTypes);

TYPED_TEST(CachedAttention, CpuMatchesWholeAttention) {
    using T = TypeParam;
    for (const Shape& s : shapes) {
        const Case<T> c(s);
        const std::vector<T> qkv = from_floats<T>(c.qkv);
        for (int first : c.firsts) {
            SCOPED_TRACE(format_string("T %d C %d NH %d first %d", s.seq_len, s.C, s.NH, first));
            const int N = s.seq_len - first;
            std::vector<T> out = from_floats<T>(nans(size_t(N) * s.C));
            cached_attention_forward_cpu(out.data(), qkv.data(), first, N, s.C, s.NH);
            expect_close("out", to_floats(out), c.rows_from(first, s.C), tolerance<T>());
        }
    }
}

TYPED_TEST(CachedAttention, GpuMatchesWholeAttention) {
    using T = TypeParam;
    for (const Shape& s : shapes) {
        const Case<T> c(s);
        SCOPED_TRACE(format_string("T %d C %d NH %d", s.seq_len, s.C, s.NH));
        auto check = [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<T> qkv(pad, c.qkv);
            for (int first : c.firsts) {
                const int N = s.seq_len - first;
                DeviceArray<T> out(pad, size_t(N) * s.C);
                version.launch(pad, out, qkv, first, N, s.C, s.NH, block);
                expect_close("out", out.values(), c.rows_from(first, s.C), tolerance<T>());
            }
        };
        for_each_version<T>(cached_attention_forward_versions<T>(), check);
    }
}

TEST(CachedAttentionSizes, RefusesHeadsThatItCannotHold) {
    float x[3 * 258] = {};
    EXPECT_THROW(cached_attention_forward<float>(nullptr, x, x, 0, 1, 129, 1), Error);
    EXPECT_THROW(cached_attention_forward<float>(nullptr, x, x, 0, 1, 5, 2), Error);
}
