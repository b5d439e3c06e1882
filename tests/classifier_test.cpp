// The fused classifier: the CPU version against softmax and cross-entropy in double and finite differences of
// it, every type's CPU and GPU versions against the CPU version in fp32; and the sum of the losses.
#include "llmc/classifier.h"

#include <algorithm>

#include "tests/layer_test.h"

struct Shape {
    int N, V, Vp;
};
// 1 and 3 columns; padding or none; rows of whole vec4 and not; a last row and column that are alone in a
// workgroup
static const Shape shapes[] = {{1, 1, 1},        {3, 3, 4},       {7, 5, 5},         {5, 17, 20},
                               {33, 48, 48},     {130, 61, 64},   {4, 129, 132},     {3, 129, 131},
                               {3, 769, 1024},   {2, 5001, 5008}, {5, 16381, 16384}, {2, 20001, 20004},
                               {2, 50257, 50304}};
static const float DLOSS = 0.25f;

// Logits that T represents, and what the CPU version in fp32 makes of them.
template <class T>
struct ClassifierCase {
    std::vector<float> logits, gradients, losses;
    std::vector<int> targets;
    ClassifierCase(const Shape& shape, uint32_t seed = 1)
        : logits(random_values<T>(size_t(shape.N) * shape.Vp, seed, 3.0f)),
          gradients(logits),
          losses(nans(shape.N)),
          targets(random_integers(shape.N, seed + 1, shape.V)) {
        targets[shape.N - 1] = shape.V - 1;
        for (int row = 0; row < shape.N; row++)  // padding that leaks in shows
            for (int c = shape.V; c < shape.Vp; c++) logits[size_t(row) * shape.Vp + c] = 100;
        gradients = logits;
        fused_classifier_cpu(gradients.data(), losses.data(), targets.data(), DLOSS, shape.N, shape.V,
                             shape.Vp, true);
    }
};

static double loss_in_double(const float* x, int V, int target, double shift_of_target = 0,
                             int shifted = -1) {
    auto logit = [&](int c) { return double(x[c]) + (c == shifted ? shift_of_target : 0); };
    double largest = logit(0), sum = 0;
    for (int c = 1; c < V; c++) largest = std::max(largest, logit(c));
    for (int c = 0; c < V; c++) sum += std::exp(logit(c) - largest);
    return std::log(sum) + largest - logit(target);
}

TEST(FusedClassifier, CpuMatchesDouble) {
    for (const Shape& shape : shapes) {
        const ClassifierCase<float> c(shape);
        std::vector<float> losses(shape.N), gradients(c.logits.size(), 0.0f);
        for (int row = 0; row < shape.N; row++) {
            const float* x = &c.logits[size_t(row) * shape.Vp];
            losses[row] = float(loss_in_double(x, shape.V, c.targets[row]));
            for (int i = 0; i < shape.V; i++)
                gradients[size_t(row) * shape.Vp + i] =
                    float(DLOSS * (std::exp(-loss_in_double(x, shape.V, i)) - (i == c.targets[row] ? 1 : 0)));
        }
        SCOPED_TRACE(format_string("N %d V %d Vp %d", shape.N, shape.V, shape.Vp));
        expect_close("losses", c.losses, losses, 1e-6);
        if (shape.V > 1) expect_close("gradients", c.gradients, gradients, 1e-6);
        for (int row = 0; row < shape.N; row++)
            for (int i = shape.V; i < shape.Vp; i++) ASSERT_EQ(c.gradients[size_t(row) * shape.Vp + i], 0.0f);
        if (shape.V > 2000) break;  // the reference above takes V^2 operations
    }
}

TEST(FusedClassifier, CpuMatchesFiniteDifferences) {
    const Shape shape = {3, 17, 20};
    const ClassifierCase<float> c(shape);
    std::vector<float> differences(c.logits.size(), 0.0f);
    const double h = 1e-5;
    for (int row = 0; row < shape.N; row++) {
        const float* x = &c.logits[size_t(row) * shape.Vp];
        for (int i = 0; i < shape.V; i++)
            differences[size_t(row) * shape.Vp + i] =
                float(DLOSS *
                      (loss_in_double(x, shape.V, c.targets[row], h, i) -
                       loss_in_double(x, shape.V, c.targets[row], -h, i)) /
                      (2 * h));
    }
    expect_close("gradients", c.gradients, differences, 1e-6);
}

template <class T>
struct FusedClassifierTyped : testing::Test {};
TYPED_TEST_SUITE(FusedClassifierTyped, RealTypes);

TYPED_TEST(FusedClassifierTyped, MatchesFloat) {
    using T = TypeParam;
    for (const Shape& shape : shapes) {
        const ClassifierCase<T> c(shape);
        SCOPED_TRACE(format_string("N %d V %d Vp %d", shape.N, shape.V, shape.Vp));
        std::vector<T> on_cpu = from_floats<T>(c.logits);
        std::vector<float> cpu_losses = nans(shape.N);
        fused_classifier_cpu(on_cpu.data(), cpu_losses.data(), c.targets.data(), DLOSS, shape.N, shape.V,
                             shape.Vp, false);
        EXPECT_EQ(to_floats(on_cpu), c.logits) << "without gradients the logits must stay";
        fused_classifier_cpu(on_cpu.data(), cpu_losses.data(), c.targets.data(), DLOSS, shape.N, shape.V,
                             shape.Vp, true);
        EXPECT_EQ(cpu_losses, c.losses);
        EXPECT_EQ(to_floats(on_cpu), rounded<T>(c.gradients));
        for_each_version<T>(fused_classifier_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<T> logits(pad, c.logits);
            DeviceArray<float> losses(pad, shape.N);
            DeviceArray<int> targets(pad, c.targets);
            version.launch(pad, logits, losses, targets, DLOSS, shape.N, shape.V, shape.Vp, false, block);
            expect_close("losses", losses.values(), c.losses);
            EXPECT_TRUE(logits.values() == c.logits) << "without gradients the logits must stay";
            pad.fill(losses, 0x7fc00000, shape.N * sizeof(float));
            version.launch(pad, logits, losses, targets, DLOSS, shape.N, shape.V, shape.Vp, true, block);
            expect_close("losses", losses.values(), c.losses);
            const std::vector<float> gradients = logits.values();
            if (shape.V > 1) expect_close("gradients", gradients, c.gradients, tolerance<T>());
            for (int row = 0; row < shape.N; row++)
                for (int i = shape.V; i < shape.Vp; i++)
                    ASSERT_EQ(gradients[size_t(row) * shape.Vp + i], 0.0f);
        });
    }
}

// Rows that begin 1 or 4 elements past aligned memory must not take the path of packs, or not that of eight.
TYPED_TEST(FusedClassifierTyped, GpuTakesUnalignedLogits) {
    using T = TypeParam;
    const Shape shape = {3, 30, 32};
    const ClassifierCase<T> c(shape);
    for (size_t shift : {1, 4})
        for_each_version<T>(fused_classifier_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            std::vector<float> shifted(shift, 7.0f);
            shifted.insert(shifted.end(), c.logits.begin(), c.logits.end());
            DeviceArray<T> logits(pad, shifted);
            DeviceArray<float> losses(pad, shape.N);
            DeviceArray<int> targets(pad, c.targets);
            version.launch(pad, logits + shift, losses, targets, DLOSS, shape.N, shape.V, shape.Vp, true,
                           block);
            const std::vector<float> gradients = logits.values();
            EXPECT_EQ(gradients[shift - 1], 7.0f);
            expect_close("gradients", {gradients.begin() + long(shift), gradients.end()}, c.gradients,
                         tolerance<T>());
            expect_close("losses", losses.values(), c.losses);
        });
}

TYPED_TEST(FusedClassifierTyped, TrainingFunction) {
    using T = TypeParam;
    const Shape shape = {5, 61, 64};
    const ClassifierCase<T> c(shape);
    for (const auto& pad : test_pads()) {
        DeviceArray<T> logits(*pad, c.logits);
        DeviceArray<float> losses(*pad, shape.N);
        DeviceArray<int> targets(*pad, c.targets);
        fused_classifier<T>(pad.get(), logits, losses, targets, DLOSS, shape.N, shape.V, shape.Vp, true);
        expect_close("losses", losses.values(), c.losses);
        expect_close("gradients", logits.values(), c.gradients, tolerance<T>());
    }
}

// Large logits must not overflow; minus infinity is a column of probability 0; NaN and infinity show in the
// loss.
TYPED_TEST(FusedClassifierTyped, ExtremeLogits) {
    using T = TypeParam;
    const int N = 5, V = 6, Vp = 8;
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const float lowest = float(T(std::is_same_v<T, fp16> ? -6e4f : -1e30f));
    const float first = float(T(30000.0f)), second = float(T(std::is_same_v<T, bf16> ? 29760.0f : 29984.0f));
    std::vector<float> logits(N * Vp, 0.0f);
    logits[0] = first, logits[1] = second;
    logits[Vp + 2] = -inf;
    logits[2 * Vp + 3] = nan;
    logits[3 * Vp + 5] = inf;
    logits[4 * Vp + 1] = lowest;
    const std::vector<int> target_values(N, 1);
    auto check = [&](const std::vector<float>& losses, const std::vector<float>& gradients) {
        EXPECT_NEAR(losses[0], first - second, 1e-3);
        EXPECT_NEAR(losses[1], std::log(5.0), 1e-5);
        EXPECT_NEAR(gradients[Vp + 2], 0.0, 1e-30);
        EXPECT_NEAR(gradients[Vp + 3], 0.2, tolerance<T>(1e-6));
        EXPECT_FALSE(std::isfinite(losses[2]));
        EXPECT_FALSE(std::isfinite(losses[3]));
        EXPECT_NEAR(losses[4] / -lowest, 1, 1e-4);
    };
    std::vector<T> gradients = from_floats<T>(logits);
    std::vector<float> losses = nans(N);
    fused_classifier_cpu<T>(gradients.data(), losses.data(), target_values.data(), 1.0f, N, V, Vp, true);
    check(losses, to_floats(gradients));
    for_each_version<T>(fused_classifier_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
        DeviceArray<T> device_logits(pad, logits);
        DeviceArray<float> device_losses(pad, N);
        DeviceArray<int> targets(pad, target_values);
        version.launch(pad, device_logits, device_losses, targets, 1.0f, N, V, Vp, true, block);
        check(device_losses.values(), device_logits.values());
    });
}

TEST(SumLosses, AddsUp) {
    for (int n : {1, 3, 33, 1024, 2049, 4100}) {
        std::vector<float> values = random_values(size_t(n), 5);
        double want = 7;
        for (float& v : values) want += 0.5 * double(v = std::abs(v));  // as losses are: nothing cancels
        SCOPED_TRACE(format_string("n %d", n));
        std::vector<float> total = {7.0f};
        sum_losses_cpu(total.data(), values.data(), n, 0.5f);
        expect_close("total", total, {float(want)}, 1e-6);
        for_each_version(sum_losses_versions(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<float> losses(pad, values), sum(pad, std::vector<float>{7.0f});
            version.launch(pad, sum, losses, n, 0.5f, block);
            expect_close("total", sum.values(), {float(want)}, 2e-6);
        });
    }
}
