// Dropout: the masks' statistics, the CPU version, and the GPU versions against it.
#include "llmc/layers/dropout.h"
#include "dev/vulkan/baselines/baselines.h"

#include <set>

#include "tests/layer_test.h"

static const std::array<uint32_t, 2> key = dropout_key(42, 3, 1, 0);

// 1 where elements of a tensor of n are dropped.
static std::vector<float> mask(size_t n, float rate, uint32_t site = 0,
                               const std::array<uint32_t, 2>& of = key) {
    const std::vector<float> ones(n, 1.0f);
    std::vector<float> values = nans(n);
    dropout<float>(
        nullptr,
        {.out = values.data(), .inp = ones.data(), .key = of.data(), .site = site, .rate = rate, .n = n});
    for (float& v : values) v = v == 0 ? 1.0f : 0.0f;
    return values;
}

// The share of elements that both masks drop; the second one is taken from `shift` elements further on.
static double common_share(const std::vector<float>& a, const std::vector<float>& b, size_t shift = 0) {
    double common = 0;
    for (size_t i = 0; i < a.size(); i++) common += a[i] * b[(i + shift) % a.size()];
    return common / double(a.size());
}

TEST(Dropout, DropsTheExpectedShare) {
    const size_t n = 1 << 20;
    for (const float rate : {0.0f, 0.01f, 0.1f, 0.5f, 0.9f}) {
        const double p = rate, four_deviations = 4 * std::sqrt(p * (1 - p) / double(n));
        const std::vector<float> drops = mask(n, rate);
        EXPECT_NEAR(common_share(drops, drops), p, four_deviations);
        for (const size_t shift : {1, 2, 4, 64, 768})  // neighbours are independent
            EXPECT_NEAR(common_share(drops, drops, shift), p * p, four_deviations) << shift;
    }
}

TEST(Dropout, EachPlaceStepAndProcessHasItsOwnMask) {
    const size_t n = 1 << 18;
    const float rate = 0.3f;
    std::vector<std::vector<float>> masks = {mask(n, rate), mask(n, rate, 1), mask(n, rate, 2)};
    for (const auto& other : {dropout_key(43, 3, 1, 0), dropout_key(42 + (1ull << 32), 3, 1, 0),
                              dropout_key(42, 4, 1, 0), dropout_key(42, 3, 0, 0), dropout_key(42, 3, 1, 1)})
        masks.push_back(mask(n, rate, 0, other));
    for (size_t i = 0; i < masks.size(); i++)
        for (size_t k = 0; k < i; k++) EXPECT_NEAR(common_share(masks[i], masks[k]), 0.09, 0.004);
    EXPECT_EQ(mask(n, rate), masks[0]) << "the mask is not reproducible";
}

// A run that another version began resumes with the same masks.
TEST(Dropout, MasksStayTheSame) {
    const std::vector<float> drops = mask(64, 0.5f, 3, {1, 2});
    uint64_t bits = 0;
    for (size_t i = 0; i < 64; i++) bits |= uint64_t(drops[i]) << i;
    EXPECT_EQ(bits, 0xfd34f74f0831cb0cu);
}

TEST(Dropout, KeysDiffer) {
    std::set<std::array<uint32_t, 2>> keys;
    for (const uint64_t seed : {0, 1, 42})
        for (int step = 0; step < 20; step++)
            for (int micro_step = 0; micro_step < 5; micro_step++)
                for (int process = 0; process < 8; process++)
                    keys.insert(dropout_key(seed, step, micro_step, process));
    EXPECT_EQ(keys.size(), 3u * 20 * 5 * 8);
}

template <class Real>
struct DropoutOf : testing::Test {};
TYPED_TEST_SUITE(DropoutOf, RealTypes);

// The results are rounded once on either side, so they are equal.
TYPED_TEST(DropoutOf, ScalesOrDrops) {
    using Real = TypeParam;
    const float rate = 0.25f;
    for (const size_t n : {1, 3, 4, 17, 129, 768, 4099, 70001}) {
        SCOPED_TRACE(format_string("n %zu", n));
        const std::vector<float> values = random_values<Real>(n, 1), drops = mask(n, rate, 5);
        std::vector<float> want(n);
        for (size_t i = 0; i < n; i++) want[i] = drops[i] ? 0.0f : values[i] * (1 / 0.75f);
        want = rounded<Real>(want);
        const auto check = [&](LaunchPad* pad, const auto& launch) {
            DeviceArray<Real> inp(pad, values), out(pad, n + 1);
            DeviceArray<int> of_step(pad, {int(key[0]), int(key[1])});
            Dropout<Real> p = {.out = out,
                               .inp = inp,
                               .key = reinterpret_cast<const uint32_t*>(of_step.data),
                               .site = 5,
                               .rate = rate,
                               .n = n};
            launch(p);
            std::vector<float> got = out.values();
            EXPECT_TRUE(std::isnan(got.back())) << "wrote past the end";
            got.pop_back();
            EXPECT_EQ(got, want);
            p.out = inp;
            launch(p);
            EXPECT_EQ(inp.values(), want) << "in place";
        };
        for_cpu_and_each_version<Real>(dropout<Real>, with_baselines(dropout_versions<Real>()), check);
    }
}
