// The global gradient norm and the clip factor: the CPU version and every GPU version against sums in double.
#include "llmc/layers/global_norm.h"
#include "dev/vulkan/baselines/baselines.h"

#include "tests/layer_test.h"

// Sizes of slices: one element, less than a vec4, a chunk of 16384 and one element less and more, several
// chunks.
static const std::vector<std::vector<size_t>> slice_sizes = {
    {1}, {3, 5, 1}, {16384}, {16383, 16385, 7}, {768, 0, 100003, 2, 49152, 131}};

// norm_and_scale in double, of gradients that are 1 / unscale times too large.
static std::vector<float> expected_norm(const std::vector<std::vector<float>>& slices, double max_norm,
                                        double unscale = 1) {
    double sum = 0;
    for (const auto& slice : slices)
        for (float g : slice) sum += double(g) * double(g);
    const double norm = unscale * std::sqrt(sum);
    return {float(norm), float(max_norm > 0 && norm > max_norm ? unscale * max_norm / norm : unscale)};
}

// Copies of the slices on the host or a device. Each begins `shift` elements past aligned memory, and lies
// between large values that show accesses out of bounds.
template <class Real>
struct Slices {
    std::vector<std::unique_ptr<DeviceArray<Real>>> arrays;
    std::vector<GradientSlice<Real>> gradients;
    Slices(LaunchPad* pad, const std::vector<std::vector<float>>& slices, size_t shift) {
        for (const auto& slice : slices) {
            std::vector<float> padded(shift, 1e18f);
            padded.insert(padded.end(), slice.begin(), slice.end());
            padded.push_back(1e18f);
            arrays.push_back(std::make_unique<DeviceArray<Real>>(pad, padded));
            gradients.push_back({arrays.back()->data + shift, slice.size()});
        }
    }
};

// What differs from call to call; `loss` and `weight`: null if there are none.
struct Settings {
    float max_norm = 1, unscale = 1;
    const float *loss = nullptr, *weight = nullptr;
};

// norm_and_scale, and the loss if there is one.
template <class Real, class Launch>
static std::vector<float> norm(LaunchPad* pad, const Launch& launch,
                               const std::vector<std::vector<float>>& slices, const Settings& s,
                               size_t shift = 0) {
    const Slices<Real> copies(pad, slices, shift);
    const auto value = [](const float* p) { return std::vector<float>{p ? *p : NAN}; };
    DeviceArray<float> result(pad, 2), loss(pad, value(s.loss)), weight(pad, value(s.weight));
    launch({.norm_and_scale = result,
            .gradients = copies.gradients,
            .max_norm = s.max_norm,
            .unscale = s.unscale,
            .loss = s.loss ? loss.data : nullptr,
            .weight = s.weight ? weight.data : nullptr});
    std::vector<float> results = result.values();
    if (s.loss) results.push_back(loss.values()[0]);
    return results;
}

// Calls check(norm) for the CPU and for every version: norm(slices, settings) is as above, without a shift.
template <class Real, class Check>
static void for_each(Check check) {
    const auto check_launch = [&](LaunchPad* pad, const auto& launch) {
        check([&](const std::vector<std::vector<float>>& slices, const Settings& s, size_t shift = 0) {
            return norm<Real>(pad, launch, slices, s, shift);
        });
    };
    for_cpu_and_each_version<Real>(global_norm<Real>, with_baselines(global_norm_versions<Real>()),
                                   check_launch);
}

static void expect_relative(const std::vector<float>& got, const std::vector<float>& want, double tolerance) {
    for (size_t i = 0; i < want.size(); i++)
        EXPECT_TRUE(std::abs(got[i] / want[i] - 1) < tolerance)
            << "norm_and_scale[" << i << "]: " << got[i] << " " << want[i];
}

template <class Real>
struct GlobalNormTyped : testing::Test {};
TYPED_TEST_SUITE(GlobalNormTyped, RealTypes);

TYPED_TEST(GlobalNormTyped, MatchesDouble) {
    using Real = TypeParam;
    for (const auto& sizes : slice_sizes) {
        std::vector<std::vector<float>> slices;
        for (size_t n : sizes) {
            slices.push_back(random_values<Real>(n, uint32_t(n)));
            if (n) slices.back()[n - 1] = 3;  // a missing last element shows
        }
        SCOPED_TRACE(format_string("%zu slices, the first of %zu", sizes.size(), sizes[0]));
        for_each<Real>([&](const auto& norm) {
            for (size_t shift : {0, 1, 4})
                expect_relative(norm(slices, {}, shift), expected_norm(slices, 1), 1e-6);
        });
        for (float max_norm : {1.0f, 1e6f, 0.0f}) {
            const auto cpu = [](const GlobalNorm<Real>& p) { global_norm<Real>(nullptr, p); };
            expect_relative(norm<Real>(nullptr, cpu, slices, {.max_norm = max_norm}),
                            expected_norm(slices, double(max_norm)), 2e-7);
        }
    }
}

static const std::vector<std::vector<float>> norm_of_5 = {{3.0f}, {4.0f}};

TYPED_TEST(GlobalNormTyped, ClipsOnlyAbove) {
    for_each<TypeParam>([](const auto& norm) {
        for (auto [max_norm, scale] :
             {std::pair{5.0f, 1.0f}, {10.0f, 1.0f}, {2.5f, 0.5f}, {0.0f, 1.0f}, {-1.0f, 1.0f}})
            expect_relative(norm(norm_of_5, {.max_norm = max_norm}), {5, scale}, 1e-6);
    });
}

TYPED_TEST(GlobalNormTyped, GradientsThatAreNotFinite) {
    using Real = TypeParam;
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        std::vector<std::vector<float>> slices = {random_values<Real>(100, 1), random_values<Real>(20001, 2)};
        slices[1][20000] = bad;
        for_each<Real>([&](const auto& norm) {
            const std::vector<float> result = norm(slices, {});
            EXPECT_FALSE(std::isfinite(result[0])) << result[0];
            EXPECT_EQ(result[1], 0.0f);
        });
    }
}

// The norm is still reported, but the scale of 0 tells the optimizer to skip the step.
TYPED_TEST(GlobalNormTyped, LossThatIsNotFinite) {
    const float nan = std::numeric_limits<float>::quiet_NaN(),
                infinity = std::numeric_limits<float>::infinity();
    for (float loss : {2.5f, nan, infinity, -infinity})
        for_each<TypeParam>([&](const auto& norm) {
            const std::vector<float> got = norm(norm_of_5, {.loss = &loss});
            EXPECT_FLOAT_EQ(got[0], 5);
            EXPECT_FLOAT_EQ(got[1], std::isfinite(loss) ? 0.2f : 0.0f);
        });
}

// Gradients and loss that are too small, since only some of the tokens count.
TYPED_TEST(GlobalNormTyped, Weight) {
    const float weight = 3, loss = 0.5f;
    for (const float max_norm : {7.5f, 0.0f})
        for_each<TypeParam>([&](const auto& norm) {  // the norm is 15
            expect_relative(norm(norm_of_5, {.max_norm = max_norm, .loss = &loss, .weight = &weight}),
                            {15, max_norm > 0 ? 1.5f : 3.0f, 1.5f}, 1e-6);
        });
}

TYPED_TEST(GlobalNormTyped, ZerosAndNoGradients) {
    for_each<TypeParam>([](const auto& norm) {
        EXPECT_EQ(norm({std::vector<float>(50, 0.0f)}, {}), (std::vector<float>{0, 1}));
        EXPECT_EQ(norm({}, {}), (std::vector<float>{0, 1}));
    });
}

// With equal values, every rounding error has the same sign: the worst case for sums.
TYPED_TEST(GlobalNormTyped, ManyElements) {
    using Real = TypeParam;
    const std::vector<std::vector<float>> slices = {std::vector<float>(3000001, float(Real(0.1f)))};
    const std::vector<float> want = expected_norm(slices, 0);
    auto versions = with_baselines(global_norm_versions<Real>());
    for (auto& version : versions) version.configs.resize(1);
    const auto check = [&](LaunchPad* pad, const auto& launch) {
        expect_relative(norm<Real>(pad, launch, slices, {.max_norm = 0}), want, pad ? 1e-6 : 2e-7);
    };
    for_cpu_and_each_version<Real>(global_norm<Real>, versions, check);
}

// Loss scaling has made the gradients 1024 times too large: norm and limit refer to the true gradients.
TYPED_TEST(GlobalNormTyped, LossScaling) {
    using Real = TypeParam;
    const float unscale = 1.0f / 1024;
    const std::vector<std::vector<float>> slices = {
        random_values<Real>(5003, 1, 30.0f)};  // a norm of about 2
    for (float max_norm : {1.0f, 10.0f, 0.0f}) {
        SCOPED_TRACE(max_norm);
        const std::vector<float> want = expected_norm(slices, double(max_norm), double(unscale));
        EXPECT_EQ(want[1] < 0.9f * unscale, max_norm == 1.0f);
        const Settings s = {.max_norm = max_norm, .unscale = unscale};
        for_each<Real>([&](const auto& norm) { expect_relative(norm(slices, s), want, 1e-6); });
        for (const auto& pad : test_pads()) {
            const auto training = [&](const GlobalNorm<Real>& p) { global_norm<Real>(pad.get(), p); };
            expect_relative(norm<Real>(pad.get(), training, slices, s), want, 1e-6);
        }
    }
}
