// The gradients' norm and clip factor: CPU and every GPU version against sums in double.
#include "llmc/global_norm.h"

#include "tests/layer_test.h"

// Slices of these sizes: one element, less than a vec4, a piece of 16384 less and more one, several pieces.
static const std::vector<std::vector<size_t>> slice_sizes = {
    {1}, {3, 5, 1}, {16384}, {16383, 16385, 7}, {768, 0, 100003, 2, 49152, 131}};

static std::vector<float> slices_norm(const std::vector<std::vector<float>>& slices, double max_norm) {
    double sum = 0;
    for (const auto& slice : slices)
        for (float g : slice) sum += double(g) * double(g);
    const double norm = std::sqrt(sum);
    return {float(norm), float(max_norm > 0 && norm > max_norm ? max_norm / norm : 1)};
}

static std::vector<float> cpu_norm(const std::vector<std::vector<float>>& slices, float max_norm) {
    std::vector<GradientSlice<float>> gradients;
    for (const auto& slice : slices) gradients.push_back({slice.data(), slice.size()});
    std::vector<float> result = nans(2);
    global_norm_cpu(result.data(), gradients, max_norm);
    return result;
}

// Runs one version on copies of the slices, laid out so that each begins `shift` floats past aligned memory.
template <class Version>
static std::vector<float> gpu_norm(LaunchPad& pad, const Version& version, int block,
                                   const std::vector<std::vector<float>>& slices, float max_norm,
                                   size_t shift) {
    std::vector<std::unique_ptr<DeviceArray<float>>> arrays;
    std::vector<GradientSlice<float>> gradients;
    for (const auto& slice : slices) {
        std::vector<float> padded(shift, 1e18f);
        padded.insert(padded.end(), slice.begin(), slice.end());
        padded.push_back(1e18f);  // an element too many shows
        arrays.push_back(std::make_unique<DeviceArray<float>>(pad, padded));
        gradients.push_back({arrays.back()->data + shift, slice.size()});
    }
    DeviceArray<float> result(pad, 2), scratch(pad, global_norm_scratch(&pad, gradients) + 1);
    version.launch(pad, result, scratch, gradients, max_norm, block);
    return result.values();
}

TEST(GlobalNorm, MatchesDouble) {
    for (const auto& sizes : slice_sizes) {
        std::vector<std::vector<float>> slices;
        for (size_t n : sizes) {
            slices.push_back(random_values(n, uint32_t(n)));
            if (n) slices.back()[n - 1] = 3;  // the last element weighs
        }
        SCOPED_TRACE(format_string("%zu slices, the first of %zu", sizes.size(), sizes[0]));
        for (float max_norm : {1.0f, 1e6f, 0.0f}) {
            const std::vector<float> want = slices_norm(slices, double(max_norm));
            const std::vector<float> got = cpu_norm(slices, max_norm);
            EXPECT_TRUE(std::abs(got[0] / want[0] - 1) < 2e-7) << got[0] << " " << want[0];
            EXPECT_TRUE(std::abs(got[1] / want[1] - 1) < 2e-7) << got[1] << " " << want[1];
        }
        const std::vector<float> want = slices_norm(slices, 1.0);
        for (size_t shift : {0, 1})
            for_each_version(global_norm_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
                const std::vector<float> got = gpu_norm(pad, version, block, slices, 1.0f, shift);
                EXPECT_TRUE(std::abs(got[0] / want[0] - 1) < 1e-6) << got[0] << " " << want[0];
                EXPECT_TRUE(std::abs(got[1] / want[1] - 1) < 1e-6) << got[1] << " " << want[1];
            });
    }
}

TEST(GlobalNorm, ClipsOnlyAbove) {
    const std::vector<std::vector<float>> slices = {{3.0f}, {4.0f}};
    for (auto [max_norm, scale] :
         {std::pair{5.0f, 1.0f}, {10.0f, 1.0f}, {2.5f, 0.5f}, {0.0f, 1.0f}, {-1.0f, 1.0f}}) {
        const std::vector<float> want = {5.0f, scale};
        EXPECT_EQ(cpu_norm(slices, max_norm), want);
        for_each_version(global_norm_versions<float>(), [&, max_norm = max_norm](LaunchPad& pad,
                                                                                 auto& version, int block) {
            expect_close("norm and scale", gpu_norm(pad, version, block, slices, max_norm, 0), want, 1e-6);
        });
    }
}

TEST(GlobalNorm, NotFiniteShows) {
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        std::vector<std::vector<float>> slices = {random_values(100, 1), random_values(20001, 2)};
        slices[1][20000] = bad;
        const std::vector<float> got = cpu_norm(slices, 1.0f);
        EXPECT_FALSE(std::isfinite(got[0]));
        EXPECT_EQ(got[1], 0.0f);
        for_each_version(global_norm_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
            const std::vector<float> result = gpu_norm(pad, version, block, slices, 1.0f, 0);
            EXPECT_FALSE(std::isfinite(result[0])) << result[0];
            EXPECT_EQ(result[1], 0.0f);
        });
    }
}

TEST(GlobalNorm, ZeroAndNothing) {
    for (const std::vector<std::vector<float>>& slices :
         {std::vector<std::vector<float>>{std::vector<float>(50, 0.0f)}, {}}) {
        const std::vector<float> want = {0.0f, 1.0f};
        EXPECT_EQ(cpu_norm(slices, 1.0f), want);
        for_each_version(global_norm_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
            EXPECT_EQ(gpu_norm(pad, version, block, slices, 1.0f, 0), want);
        });
    }
}

// Equal values make every rounding error point the same way, the worst case for sums.
TEST(GlobalNorm, ManyElements) {
    const std::vector<std::vector<float>> slices = {std::vector<float>(3000001, 0.1f)};
    const std::vector<float> want = slices_norm(slices, 0);
    EXPECT_TRUE(std::abs(cpu_norm(slices, 0)[0] / want[0] - 1) < 2e-7);
    for_each_version(global_norm_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
        if (block != version.block_sizes[0]) return;
        const float got = gpu_norm(pad, version, block, slices, 0, 0)[0];
        EXPECT_TRUE(std::abs(got / want[0] - 1) < 1e-6) << got << " " << want[0];
    });
}
