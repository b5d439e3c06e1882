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

template <class Real>
static std::vector<float> cpu_norm(const std::vector<std::vector<float>>& slices, float max_norm,
                                   float unscale = 1, float* loss = nullptr) {
    std::vector<std::vector<Real>> arrays;
    std::vector<GradientSlice<Real>> gradients;
    for (const auto& slice : slices) {
        arrays.push_back(from_floats<Real>(slice));
        gradients.push_back({arrays.back().data(), slice.size()});
    }
    std::vector<float> result = nans(2);
    global_norm<Real>(nullptr, {.norm_and_scale = result.data(),
                                .gradients = gradients,
                                .max_norm = max_norm,
                                .unscale = unscale,
                                .loss = loss});
    return result;
}

// Copies of the slices on a device. Each begins `shift` elements past aligned memory, and lies between large
// values that show accesses out of bounds.
template <class Real>
struct DeviceSlices {
    std::vector<std::unique_ptr<DeviceArray<Real>>> arrays;
    std::vector<GradientSlice<Real>> gradients;
    DeviceSlices(LaunchPad& pad, const std::vector<std::vector<float>>& slices, size_t shift) {
        for (const auto& slice : slices) {
            std::vector<float> padded(shift, 1e18f);
            padded.insert(padded.end(), slice.begin(), slice.end());
            padded.push_back(1e18f);
            arrays.push_back(std::make_unique<DeviceArray<Real>>(pad, padded));
            gradients.push_back({arrays.back()->data + shift, slice.size()});
        }
    }
};

template <class Real>
struct Launch {
    LaunchPad& pad;
    const KernelVersion<GlobalNorm<Real>>& version;
    int block_size;
    size_t shift = 0;

    std::vector<float> norm(const std::vector<std::vector<float>>& slices, float max_norm, float unscale = 1,
                            float* loss = nullptr) const {
        const DeviceSlices<Real> device(pad, slices, shift);
        DeviceArray<float> result(pad, 2);
        version.launch(pad,
                       {.norm_and_scale = result,
                        .gradients = device.gradients,
                        .max_norm = max_norm,
                        .unscale = unscale,
                        .loss = loss},
                       block_size);
        return result.values();
    }
};

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
        for (float max_norm : {1.0f, 1e6f, 0.0f}) {
            const std::vector<float> want = expected_norm(slices, double(max_norm));
            expect_relative(cpu_norm<Real>(slices, max_norm), want, 2e-7);
        }
        const std::vector<float> want = expected_norm(slices, 1.0);
        for (size_t shift : {0, 1, 4})
            for_each_version<Real>(with_baselines(global_norm_versions<Real>()),
                                   [&](LaunchPad& pad, auto& version, int block_size) {
                                       const Launch<Real> launch = {pad, version, block_size, shift};
                                       expect_relative(launch.norm(slices, 1.0f), want, 1e-6);
                                   });
    }
}

TYPED_TEST(GlobalNormTyped, ClipsOnlyAbove) {
    using Real = TypeParam;
    const std::vector<std::vector<float>> slices = {{3.0f}, {4.0f}};
    for (auto [max_norm, scale] :
         {std::pair{5.0f, 1.0f}, {10.0f, 1.0f}, {2.5f, 0.5f}, {0.0f, 1.0f}, {-1.0f, 1.0f}}) {
        const std::vector<float> want = {5.0f, scale};
        EXPECT_EQ(cpu_norm<Real>(slices, max_norm), want);
        auto check = [&, limit = max_norm](LaunchPad& pad, auto& version, int block_size) {
            const Launch<Real> launch = {pad, version, block_size};
            expect_close("norm and scale", launch.norm(slices, limit), want, 1e-6);
        };
        for_each_version<Real>(with_baselines(global_norm_versions<Real>()), check);
    }
}

TYPED_TEST(GlobalNormTyped, GradientsThatAreNotFinite) {
    using Real = TypeParam;
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        std::vector<std::vector<float>> slices = {random_values<Real>(100, 1), random_values<Real>(20001, 2)};
        slices[1][20000] = bad;
        const std::vector<float> got = cpu_norm<Real>(slices, 1.0f);
        EXPECT_FALSE(std::isfinite(got[0]));
        EXPECT_EQ(got[1], 0.0f);
        for_each_version<Real>(
            with_baselines(global_norm_versions<Real>()), [&](LaunchPad& pad, auto& version, int block_size) {
                const std::vector<float> result = Launch<Real>{pad, version, block_size}.norm(slices, 1.0f);
                EXPECT_FALSE(std::isfinite(result[0])) << result[0];
                EXPECT_EQ(result[1], 0.0f);
            });
    }
}

// The norm is still reported, but the scale of 0 tells the optimizer to skip the step.
TYPED_TEST(GlobalNormTyped, LossThatIsNotFinite) {
    using Real = TypeParam;
    const std::vector<std::vector<float>> slices = {{3.0f}, {4.0f}};
    const float nan = std::numeric_limits<float>::quiet_NaN(),
                infinity = std::numeric_limits<float>::infinity();
    for (float loss : {2.5f, nan, infinity, -infinity}) {
        const std::vector<float> want = {5.0f, std::isfinite(loss) ? 0.2f : 0.0f};
        EXPECT_EQ(cpu_norm<Real>(slices, 1.0f, 1.0f, &loss), want);
        for_each_version<Real>(
            with_baselines(global_norm_versions<Real>()), [&](LaunchPad& pad, auto& version, int block_size) {
                DeviceArray<float> device_loss(pad, std::vector<float>{loss});
                const Launch<Real> launch = {pad, version, block_size};
                expect_close("norm and scale", launch.norm(slices, 1.0f, 1.0f, device_loss), want, 1e-6);
            });
    }
}

// Gradients and loss that are too small, since only some of the tokens count.
TYPED_TEST(GlobalNormTyped, Weight) {
    using Real = TypeParam;
    const std::vector<std::vector<float>> slices = {{3.0f}, {4.0f}};
    const float weight = 3;
    for (const float max_norm : {7.5f, 0.0f}) {
        const float scale = max_norm > 0 ? 1.5f : 3.0f;  // the norm is 15
        std::vector<Real> values[] = {{Real(3.0f)}, {Real(4.0f)}};
        std::vector<GradientSlice<Real>> gradients = {{values[0].data(), 1}, {values[1].data(), 1}};
        std::vector<float> result = nans(2), loss = {0.5f};
        global_norm<Real>(nullptr, {.norm_and_scale = result.data(),
                                    .gradients = gradients,
                                    .max_norm = max_norm,
                                    .loss = loss.data(),
                                    .weight = &weight});
        EXPECT_EQ(result, (std::vector<float>{15, scale}));
        EXPECT_EQ(loss[0], 1.5f);
        for_each_version<Real>(with_baselines(global_norm_versions<Real>()),
                               [&](LaunchPad& pad, auto& version, int block_size) {
                                   const DeviceSlices<Real> device(pad, slices, 0);
                                   DeviceArray<float> norm(pad, 2), of_loss(pad, std::vector<float>{0.5f}),
                                       by(pad, std::vector<float>{weight});
                                   version.launch(pad,
                                                  {.norm_and_scale = norm,
                                                   .gradients = device.gradients,
                                                   .max_norm = max_norm,
                                                   .loss = of_loss,
                                                   .weight = by},
                                                  block_size);
                                   expect_close("norm and scale", norm.values(), {15, scale}, 1e-6);
                                   EXPECT_EQ(of_loss.values()[0], 1.5f);
                               });
    }
}

TYPED_TEST(GlobalNormTyped, ZerosAndNoGradients) {
    using Real = TypeParam;
    for (const std::vector<std::vector<float>>& slices :
         {std::vector<std::vector<float>>{std::vector<float>(50, 0.0f)}, {}}) {
        const std::vector<float> want = {0.0f, 1.0f};
        EXPECT_EQ(cpu_norm<Real>(slices, 1.0f), want);
        for_each_version<Real>(
            with_baselines(global_norm_versions<Real>()), [&](LaunchPad& pad, auto& version, int block_size) {
                EXPECT_EQ((Launch<Real>{pad, version, block_size}.norm(slices, 1.0f)), want);
            });
    }
}

// With equal values, every rounding error has the same sign: the worst case for sums.
TYPED_TEST(GlobalNormTyped, ManyElements) {
    using Real = TypeParam;
    const std::vector<std::vector<float>> slices = {std::vector<float>(3000001, float(Real(0.1f)))};
    const std::vector<float> want = expected_norm(slices, 0);
    EXPECT_TRUE(std::abs(cpu_norm<Real>(slices, 0)[0] / want[0] - 1) < 2e-7);
    for_each_version<Real>(with_baselines(global_norm_versions<Real>()),
                           [&](LaunchPad& pad, auto& version, int block_size) {
                               if (block_size != version.configs[0]) return;
                               const float got = Launch<Real>{pad, version, block_size}.norm(slices, 0)[0];
                               EXPECT_TRUE(std::abs(got / want[0] - 1) < 1e-6) << got << " " << want[0];
                           });
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
        auto check = [&](const std::vector<float>& got) { expect_relative(got, want, 1e-6); };
        check(cpu_norm<Real>(slices, max_norm, unscale));
        for_each_version<Real>(
            with_baselines(global_norm_versions<Real>()), [&](LaunchPad& pad, auto& version, int block_size) {
                check(Launch<Real>{pad, version, block_size}.norm(slices, max_norm, unscale));
            });
        for (const auto& pad : test_pads()) {
            const DeviceSlices<Real> device(*pad, slices, 0);
            DeviceArray<float> result(*pad, 2);
            global_norm<Real>(pad.get(), {.norm_and_scale = result,
                                          .gradients = device.gradients,
                                          .max_norm = max_norm,
                                          .unscale = unscale});
            check(result.values());
        }
    }
}
