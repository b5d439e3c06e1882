// The fused classifier: the CPU version against softmax and cross-entropy in double; the CPU and GPU versions
// of every storage type against the CPU version in fp32, and fp32's against PyTorch. The sum of the losses.
#include "llmc/layers/classifier.h"

#include <algorithm>
#include <fstream>

#include "llmc/data/ignored_target.h"
#include "tests/table_rows.h"

struct Shape {
    int num_rows, V, Vp;
};
// 1 and 3 columns; padding or none; rows that are whole vec4s or not; a last row or column that is alone in a
// workgroup.
static const Shape shapes[] = {{1, 1, 1},        {3, 3, 4},       {7, 5, 5},         {5, 17, 20},
                               {33, 48, 48},     {130, 61, 64},   {4, 129, 132},     {3, 129, 131},
                               {3, 769, 1024},   {2, 5001, 5008}, {5, 16381, 16384}, {2, 20001, 20004},
                               {2, 50257, 50304}};
static const float DLOSS = 0.25f;

template <class Real, class Check>
static void for_each(Check check) {
    for_cpu_and_each_version<Real>(fused_classifier<Real>, with_baselines(fused_classifier_versions<Real>()),
                                   check);
}

template <class Real>
static FusedClassifier<Real> params(const Shape& shape, Real* logits, float* losses, const int* targets,
                                    bool write_gradients) {
    return {.logits = logits,
            .losses = losses,
            .targets = targets,
            .dloss = DLOSS,
            .num_rows = shape.num_rows,
            .V = shape.V,
            .Vp = shape.Vp,
            .write_gradients = write_gradients};
}

// Logits that are exact in Real, and the results of the CPU version in fp32.
template <class Real>
struct ClassifierCase {
    std::vector<float> logits, gradients, losses;
    std::vector<int> targets;
    ClassifierCase(const Shape& s, uint32_t seed = 1)
        : logits(random_values<Real>(size_t(s.num_rows) * s.Vp, seed, 3.0f)),
          losses(nans(s.num_rows)),
          targets(random_integers(s.num_rows, seed + 1, s.V)) {
        targets[s.num_rows - 1] = s.V - 1;
        for (int row = 0; row < s.num_rows; row++)  // large padding, which shows if it is used
            for (int c = s.V; c < s.Vp; c++) logits[size_t(row) * s.Vp + c] = 100;
        gradients = logits;
        fused_classifier(nullptr, params<float>(s, gradients.data(), losses.data(), targets.data(), true));
    }
};

static double loss_in_double(const float* x, int V, int target) {
    const double largest = *std::max_element(x, x + V);
    double sum = 0;
    for (int c = 0; c < V; c++) sum += std::exp(double(x[c]) - largest);
    return std::log(sum) + largest - double(x[target]);
}

TEST(FusedClassifier, CpuMatchesDouble) {
    for (const Shape& shape : shapes) {
        const ClassifierCase<float> c(shape);
        std::vector<float> losses(shape.num_rows), gradients(c.logits.size(), 0.0f);
        for (int row = 0; row < shape.num_rows; row++) {
            const float* x = &c.logits[size_t(row) * shape.Vp];
            losses[row] = float(loss_in_double(x, shape.V, c.targets[row]));
            for (int i = 0; i < shape.V; i++)
                gradients[size_t(row) * shape.Vp + i] =
                    float(DLOSS * (std::exp(-loss_in_double(x, shape.V, i)) - (i == c.targets[row] ? 1 : 0)));
        }
        SCOPED_TRACE(format_string("%d rows, V %d Vp %d", shape.num_rows, shape.V, shape.Vp));
        expect_close("losses", c.losses, losses, 1e-6);
        if (shape.V > 1) expect_close("gradients", c.gradients, gradients, 1e-6);
        for (int row = 0; row < shape.num_rows; row++)
            for (int i = shape.V; i < shape.Vp; i++) ASSERT_EQ(c.gradients[size_t(row) * shape.Vp + i], 0.0f);
        if (shape.V > 2000) break;  // the reference above takes V^2 operations
    }
}

// The CPU version reads a row in tiles of 1024 and a tile in vectors; one logit is far above all others,
// anywhere.
TEST(FusedClassifier, CpuFindsTheLargestLogitAnywhere) {
    const Shape shape = {1, 2100, 2100};
    for (int largest = 0; largest < shape.V; largest++) {
        std::vector<float> logits(shape.V, 0.0f), loss = nans(1);
        logits[size_t(largest)] = 200;  // exp(200) overflows
        const int target = (largest + 7) % shape.V;
        fused_classifier(nullptr, params<float>(shape, logits.data(), loss.data(), &target, true));
        EXPECT_FLOAT_EQ(loss[0], 200) << largest;
        EXPECT_FLOAT_EQ(logits[size_t(largest)], DLOSS) << largest;
    }
}

template <class Real>
struct FusedClassifierTyped : testing::Test {};
TYPED_TEST_SUITE(FusedClassifierTyped, RealTypes);

// Compares what these targets give: losses and gradients in fp32.
template <class Real>
static void check(const Shape& shape, const ClassifierCase<Real>& c) {
    SCOPED_TRACE(format_string("%d rows, V %d Vp %d", shape.num_rows, shape.V, shape.Vp));
    for_each<Real>([&](LaunchPad* pad, const auto& launch) {
        DeviceArray<Real> logits(pad, c.logits);
        DeviceArray<float> losses(pad, shape.num_rows), again(pad, shape.num_rows);
        DeviceArray<int> targets(pad, c.targets);
        launch(params<Real>(shape, logits, losses, targets, false));
        expect_rounded<float>(pad, "losses", losses.values(), c.losses);
        EXPECT_TRUE(logits.values() == c.logits) << "without gradients, the logits must not change";
        launch(params<Real>(shape, logits, again, targets, true));
        expect_rounded<float>(pad, "losses", again.values(), c.losses);
        const std::vector<float> got = logits.values();
        if (shape.V > 1) expect_rounded<Real>(pad, "gradients", got, c.gradients);
        for (size_t i = 0; i < got.size(); i++)  // of padding, and of rows that do not count
            if (int(i % shape.Vp) >= shape.V || unsigned(c.targets[i / shape.Vp]) >= unsigned(shape.V)) {
                ASSERT_EQ(got[i], 0.0f) << i;
            }
    });
}

TYPED_TEST(FusedClassifierTyped, MatchesFloat) {
    for (const Shape& shape : shapes) check(shape, ClassifierCase<TypeParam>(shape));
}

// One logit is far above all others, in any subgroup of a workgroup.
TYPED_TEST(FusedClassifierTyped, FindsTheLargestLogit) {
    using Real = TypeParam;
    const Shape shape = {1, 1500, 1504};
    for (const int largest : {0, 5, 13, 30, 70, 100, 300, 600, 1499}) {
        std::vector<float> logits(shape.Vp, 0.0f);
        logits[size_t(largest)] = 200;  // exp(200) overflows
        for_each<Real>([&](LaunchPad* pad, const auto& launch) {
            DeviceArray<Real> values(pad, logits);
            DeviceArray<float> loss(pad, 1);
            DeviceArray<int> targets(pad, std::vector<int>{7});
            launch(params<Real>(shape, values, loss, targets, true));
            EXPECT_FLOAT_EQ(loss.values()[0], 200) << largest;
            EXPECT_FLOAT_EQ(values.values()[size_t(largest)], DLOSS) << largest;
        });
    }
}

// Rows that begin 1 or 4 elements past aligned memory rule out accesses of four or of eight elements.
TYPED_TEST(FusedClassifierTyped, UnalignedLogits) {
    for (const size_t margin : {1, 4})
        check_rows<TypeParam>("fused_classifier", {.B = 3, .T = 1, .C = 8, .NH = 1, .V = 30, .Vp = 32},
                              margin);
}

// Large logits must not overflow, minus infinity means a probability of 0, and NaN and infinity give a loss
// that is not finite.
TYPED_TEST(FusedClassifierTyped, ExtremeLogits) {
    using Real = TypeParam;
    const int num_rows = 5, V = 6, Vp = 8;
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const float lowest = float(Real(std::is_same_v<Real, fp16> ? -6e4f : -1e30f));
    const float first = float(Real(30000.0f)),
                second = float(Real(std::is_same_v<Real, bf16> ? 29760.0f : 29984.0f));
    std::vector<float> logits(num_rows * Vp, 0.0f);
    logits[0] = first, logits[1] = second;
    logits[Vp + 2] = -inf;
    logits[2 * Vp + 3] = nan;
    logits[3 * Vp + 5] = inf;
    logits[4 * Vp + 1] = lowest;
    for_each<Real>([&](LaunchPad* pad, const auto& launch) {
        DeviceArray<Real> on_device(pad, logits);
        DeviceArray<float> of_rows(pad, num_rows);
        DeviceArray<int> targets(pad, std::vector<int>(num_rows, 1));
        FusedClassifier<Real> p = params<Real>({num_rows, V, Vp}, on_device, of_rows, targets, true);
        p.dloss = 1;
        launch(p);
        const std::vector<float> losses = of_rows.values(), gradients = on_device.values();
        EXPECT_NEAR(losses[0], first - second, 1e-3);
        EXPECT_NEAR(losses[1], std::log(5.0), 1e-5);
        EXPECT_NEAR(gradients[Vp + 2], 0.0, 1e-30);
        EXPECT_NEAR(gradients[Vp + 3], 0.2, tolerance<Real>(1e-6));
        EXPECT_FALSE(std::isfinite(losses[2]));
        EXPECT_FALSE(std::isfinite(losses[3]));
        EXPECT_NEAR(losses[4] / -lowest, 1, 1e-4);
    });
}

// A case of PyTorch's, whose file dev/make_cross_entropy.py makes.
struct Reference {
    Shape shape;
    std::vector<int> targets;
    std::vector<float> logits, losses, gradients;  // gradients of the mean over the rows that count

    bool read(std::istream& file) {
        int rows, V;
        if (!(file >> rows >> V)) return false;
        shape = {rows, V, V + 3};
        targets.resize(rows);
        losses.resize(rows);
        logits.assign(size_t(rows) * shape.Vp, 100.0f);
        gradients.assign(logits.size(), 0.0f);
        for (int& target : targets) file >> target;
        for (float& loss : losses) file >> loss;
        for (int row = 0, i = 0; row < rows; row++)
            for (int c = 0; c < V; c++, i++) {
                logits[size_t(row) * shape.Vp + c] = float(i * 7919 % 1000) / 125 - 4;
                file >> gradients[size_t(row) * shape.Vp + c];
            }
        return bool(file);
    }
};

TEST(IgnoredTargets, MatchPyTorch) {
    std::ifstream file(SOURCE_DIR "/tests/reference/cross_entropy.txt");
    int cases = 0;
    for (Reference r; r.read(file); cases++)
        for_each<float>([&](LaunchPad* pad, const auto& launch) {
            DeviceArray<float> logits(pad, r.logits), losses(pad, r.losses.size());
            DeviceArray<int> targets(pad, r.targets);
            FusedClassifier<float> p = params<float>(r.shape, logits, losses, targets, true);
            p.dloss = 1 / float(std::ranges::count_if(r.targets, [](int t) { return t != ignored_target; }));
            launch(p);
            expect_close("losses", losses.values(), r.losses, 1e-6);
            expect_close("gradients", logits.values(), r.gradients, 1e-6);
        });
    EXPECT_EQ(cases, 4);
}

// In every shape and storage type: the rows whose targets count are what they are without the others.
TYPED_TEST(FusedClassifierTyped, IgnoresTargets) {
    using Real = TypeParam;
    for (const Shape& shape : shapes) {
        ClassifierCase<Real> c(shape);
        for (int row = 0; row < shape.num_rows; row++) {
            if (row % 3 == 1) continue;
            c.targets[row] = row % 2 ? ignored_target : shape.V;  // a column of padding, or past it
            c.losses[row] = 0;
            std::fill_n(c.gradients.begin() + long(row) * shape.Vp, shape.Vp, 0.0f);
        }
        check(shape, c);
    }
}

TEST(SumLosses, AddsUp) {
    for (int n : {1, 3, 33, 1024, 2049, 4100}) {
        std::vector<float> values = random_values(size_t(n), 5);
        double want = 7;
        for (float& v : values) want += 0.5 * double(v = std::abs(v));  // positive, like losses
        SCOPED_TRACE(format_string("n %d", n));
        const auto check = [&](LaunchPad* pad, const auto& launch) {
            DeviceArray<float> losses(pad, values), sum(pad, std::vector<float>{7.0f});
            launch({.total = sum, .losses = losses, .n = n, .scale = 0.5f});
            expect_close("total", sum.values(), {float(want)}, pad ? 2e-6 : 1e-6);
        };
        for_cpu_and_each_version(sum_losses, with_baselines(sum_losses_versions()), check);
    }
}
