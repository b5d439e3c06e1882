// The gradients' norm and clip factor: CPU and every GPU version against sums in double.
#include "llmc/global_norm.h"

#include "tests/layer_test.h"

// Slices of these sizes: one element, less than a vec4, a piece of 16384 less and more one, several pieces.
static const std::vector<std::vector<size_t>> slice_sizes = {
    {1}, {3, 5, 1}, {16384}, {16383, 16385, 7}, {768, 0, 100003, 2, 49152, 131}};

// In double; the gradients are 1 / unscale times too large.
static std::vector<float> slices_norm(const std::vector<std::vector<float>>& slices, double max_norm,
                                      double unscale = 1) {
    double sum = 0;
    for (const auto& slice : slices)
        for (float g : slice) sum += double(g) * double(g);
    const double norm = unscale * std::sqrt(sum);
    return {float(norm), float(max_norm > 0 && norm > max_norm ? unscale * max_norm / norm : unscale)};
}

template <class T>
static std::vector<float> cpu_norm(const std::vector<std::vector<float>>& slices, float max_norm,
                                   float unscale = 1, const float* loss = nullptr) {
    std::vector<std::vector<T>> arrays;
    std::vector<GradientSlice<T>> gradients;
    for (const auto& slice : slices) {
        arrays.push_back(from_floats<T>(slice));
        gradients.push_back({arrays.back().data(), slice.size()});
    }
    std::vector<float> result = nans(2);
    global_norm_cpu(result.data(), gradients, max_norm, unscale, loss);
    return result;
}

// Runs one version on copies of the slices, laid out so that each begins `shift` elements past aligned
// memory.
template <class T, class Version>
static std::vector<float> gpu_norm(LaunchPad& pad, const Version& version, int block,
                                   const std::vector<std::vector<float>>& slices, float max_norm,
                                   size_t shift, float unscale = 1, const float* loss = nullptr) {
    std::vector<std::unique_ptr<DeviceArray<T>>> arrays;
    std::vector<GradientSlice<T>> gradients;
    for (const auto& slice : slices) {
        std::vector<float> padded(shift, 1e18f);
        padded.insert(padded.end(), slice.begin(), slice.end());
        padded.push_back(1e18f);  // an element too many shows
        arrays.push_back(std::make_unique<DeviceArray<T>>(pad, padded));
        gradients.push_back({arrays.back()->data + shift, slice.size()});
    }
    DeviceArray<float> result(pad, 2), scratch(pad, global_norm_scratch(&pad, gradients) + 1);
    version.launch(pad, result, scratch, gradients, max_norm, unscale, loss, block);
    return result.values();
}

template <class T>
struct GlobalNormTyped : testing::Test {};
TYPED_TEST_SUITE(GlobalNormTyped, RealTypes);

TYPED_TEST(GlobalNormTyped, MatchesDouble) {
    using T = TypeParam;
    for (const auto& sizes : slice_sizes) {
        std::vector<std::vector<float>> slices;
        for (size_t n : sizes) {
            slices.push_back(random_values<T>(n, uint32_t(n)));
            if (n) slices.back()[n - 1] = 3;  // the last element weighs
        }
        SCOPED_TRACE(format_string("%zu slices, the first of %zu", sizes.size(), sizes[0]));
        for (float max_norm : {1.0f, 1e6f, 0.0f}) {
            const std::vector<float> want = slices_norm(slices, double(max_norm));
            const std::vector<float> got = cpu_norm<T>(slices, max_norm);
            EXPECT_TRUE(std::abs(got[0] / want[0] - 1) < 2e-7) << got[0] << " " << want[0];
            EXPECT_TRUE(std::abs(got[1] / want[1] - 1) < 2e-7) << got[1] << " " << want[1];
        }
        const std::vector<float> want = slices_norm(slices, 1.0);
        for (size_t shift : {0, 1, 4})
            for_each_version<T>(global_norm_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
                const std::vector<float> got = gpu_norm<T>(pad, version, block, slices, 1.0f, shift);
                EXPECT_TRUE(std::abs(got[0] / want[0] - 1) < 1e-6) << got[0] << " " << want[0];
                EXPECT_TRUE(std::abs(got[1] / want[1] - 1) < 1e-6) << got[1] << " " << want[1];
            });
    }
}

TYPED_TEST(GlobalNormTyped, ClipsOnlyAbove) {
    using T = TypeParam;
    const std::vector<std::vector<float>> slices = {{3.0f}, {4.0f}};
    for (auto [max_norm, scale] :
         {std::pair{5.0f, 1.0f}, {10.0f, 1.0f}, {2.5f, 0.5f}, {0.0f, 1.0f}, {-1.0f, 1.0f}}) {
        const std::vector<float> want = {5.0f, scale};
        EXPECT_EQ(cpu_norm<T>(slices, max_norm), want);
        for_each_version<T>(global_norm_versions<T>(), [&, max_norm = max_norm](LaunchPad& pad, auto& version,
                                                                                int block) {
            expect_close("norm and scale", gpu_norm<T>(pad, version, block, slices, max_norm, 0), want, 1e-6);
        });
    }
}

TYPED_TEST(GlobalNormTyped, NotFiniteShows) {
    using T = TypeParam;
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        std::vector<std::vector<float>> slices = {random_values<T>(100, 1), random_values<T>(20001, 2)};
        slices[1][20000] = bad;
        const std::vector<float> got = cpu_norm<T>(slices, 1.0f);
        EXPECT_FALSE(std::isfinite(got[0]));
        EXPECT_EQ(got[1], 0.0f);
        for_each_version<T>(global_norm_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            const std::vector<float> result = gpu_norm<T>(pad, version, block, slices, 1.0f, 0);
            EXPECT_FALSE(std::isfinite(result[0])) << result[0];
            EXPECT_EQ(result[1], 0.0f);
        });
    }
}

// The norm is still told, but the factor says that the step is to be skipped.
TYPED_TEST(GlobalNormTyped, ALossThatIsNotFiniteShows) {
    using T = TypeParam;
    const std::vector<std::vector<float>> slices = {{3.0f}, {4.0f}};
    const float nan = std::numeric_limits<float>::quiet_NaN(),
                infinity = std::numeric_limits<float>::infinity();
    for (float loss : {2.5f, nan, infinity, -infinity}) {
        const std::vector<float> want = {5.0f, std::isfinite(loss) ? 0.2f : 0.0f};
        EXPECT_EQ(cpu_norm<T>(slices, 1.0f, 1.0f, &loss), want);
        for_each_version<T>(global_norm_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<float> device_loss(pad, std::vector<float>{loss});
            expect_close("norm and scale",
                         gpu_norm<T>(pad, version, block, slices, 1.0f, 0, 1.0f, device_loss), want, 1e-6);
        });
    }
}

TYPED_TEST(GlobalNormTyped, ZeroAndNothing) {
    using T = TypeParam;
    for (const std::vector<std::vector<float>>& slices :
         {std::vector<std::vector<float>>{std::vector<float>(50, 0.0f)}, {}}) {
        const std::vector<float> want = {0.0f, 1.0f};
        EXPECT_EQ(cpu_norm<T>(slices, 1.0f), want);
        for_each_version<T>(global_norm_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            EXPECT_EQ(gpu_norm<T>(pad, version, block, slices, 1.0f, 0), want);
        });
    }
}

// Equal values make every rounding error point the same way, the worst case for sums.
TYPED_TEST(GlobalNormTyped, ManyElements) {
    using T = TypeParam;
    const std::vector<std::vector<float>> slices = {std::vector<float>(3000001, float(T(0.1f)))};
    const std::vector<float> want = slices_norm(slices, 0);
    EXPECT_TRUE(std::abs(cpu_norm<T>(slices, 0)[0] / want[0] - 1) < 2e-7);
    for_each_version<T>(global_norm_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
        if (block != version.block_sizes[0]) return;
        const float got = gpu_norm<T>(pad, version, block, slices, 0, 0)[0];
        EXPECT_TRUE(std::abs(got / want[0] - 1) < 1e-6) << got << " " << want[0];
    });
}

// Gradients that loss scaling made 1024 times too large: norm, limit and clipped gradients are of the true
// ones.
TYPED_TEST(GlobalNormTyped, LossScaling) {
    using T = TypeParam;
    const float unscale = 1.0f / 1024;
    const std::vector<std::vector<float>> slices = {random_values<T>(5003, 1, 30.0f)};  // a norm of about 2
    for (float max_norm : {1.0f, 10.0f, 0.0f}) {
        SCOPED_TRACE(max_norm);
        const std::vector<float> want = slices_norm(slices, double(max_norm), double(unscale));
        EXPECT_EQ(want[1] < 0.9f * unscale, max_norm == 1.0f);
        auto check = [&](const std::vector<float>& got) {
            EXPECT_TRUE(std::abs(got[0] / want[0] - 1) < 1e-6) << got[0] << " " << want[0];
            EXPECT_TRUE(std::abs(got[1] / want[1] - 1) < 1e-6) << got[1] << " " << want[1];
        };
        check(cpu_norm<T>(slices, max_norm, unscale));
        for_each_version<T>(global_norm_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            check(gpu_norm<T>(pad, version, block, slices, max_norm, 0, unscale));
        });
        for (const auto& pad : test_pads()) {
            DeviceArray<T> grads(*pad, slices[0]);
            const std::vector<GradientSlice<T>> gradients = {{grads.data, grads.size}};
            DeviceArray<float> result(*pad, 2), scratch(*pad, global_norm_scratch(pad.get(), gradients));
            global_norm(pad.get(), result.data, scratch.data, gradients, max_norm, unscale);
            check(result.values());
        }
    }
}
