// AdamW over several steps: the CPU version against a reference in double, every GPU version against the CPU
// version.
#include "llmc/adamw.h"

#include "tests/layer_test.h"

static const int STEPS = 5;
static const float LEARNING_RATE = 1e-3f, BETA1 = 0.9f, BETA2 = 0.95f, EPS = 1e-8f;

static AdamWStep step_number(int t) { return adamw_step(LEARNING_RATE * float(t), BETA1, BETA2, EPS, t); }

static std::vector<float> gradients_of_step(size_t n, int t) { return random_values(n, uint32_t(100 + t)); }

struct AdamWCase {
    std::vector<float> start, params, m, v;
    AdamWCase(size_t n, float weight_decay, const float* norm_and_scale)
        : start(random_values(n, 1)), params(start), m(n, 0.0f), v(n, 0.0f) {
        for (int t = 1; t <= STEPS; t++) {
            const AdamWStep step = step_number(t);
            const std::vector<float> grads = gradients_of_step(n, t);
            adamw_update_cpu(params.data(), m.data(), v.data(), grads.data(), n, &step, weight_decay,
                             norm_and_scale);
        }
    }
    std::vector<float> change(
        const std::vector<float>& now) const {  // the parameters themselves hide an error
        std::vector<float> difference(now);
        for (size_t i = 0; i < now.size(); i++) difference[i] -= start[i];
        return difference;
    }
};

TEST(AdamW, StepCorrections) {
    const AdamWStep first = adamw_step(0.1f, 0.9f, 0.999f, 1e-8f, 1),
                    late = adamw_step(0.1f, 0.9f, 0.999f, 1e-8f, 1000);
    EXPECT_NEAR(first.beta1_correction, 0.1, 1e-7);
    EXPECT_NEAR(first.beta2_correction / 0.001, 1.0, 2e-5);  // 0.999f is not 0.999
    EXPECT_EQ(first.beta2_correction, float(1 - double(0.999f)));
    EXPECT_NEAR(late.beta1_correction, 1.0, 1e-7);
    EXPECT_NEAR(late.beta2_correction, 1 - std::pow(0.999, 1000), 2e-5);
    EXPECT_EQ(first.learning_rate, 0.1f);
    EXPECT_EQ(first.eps, 1e-8f);
}

TEST(AdamW, CpuMatchesDouble) {
    const size_t n = 20001;
    const float norm_and_scale[2] = {4.0f, 0.25f};
    for (float decay : {0.0f, 0.1f}) {
        const AdamWCase c(n, decay, norm_and_scale);
        std::vector<double> p(c.start.begin(), c.start.end()), m(n, 0.0), v(n, 0.0);
        for (int t = 1; t <= STEPS; t++) {
            const std::vector<float> grads = gradients_of_step(n, t);
            const double lr = double(LEARNING_RATE) * t, b1 = double(BETA1), b2 = double(BETA2);
            for (size_t i = 0; i < n; i++) {
                const double g = double(grads[i]) * 0.25;
                m[i] = b1 * m[i] + (1 - b1) * g;
                v[i] = b2 * v[i] + (1 - b2) * g * g;
                const double m_hat = m[i] / (1 - std::pow(b1, t)), v_hat = v[i] / (1 - std::pow(b2, t));
                p[i] -= lr * (m_hat / (std::sqrt(v_hat) + double(EPS)) + double(decay) * p[i]);
            }
        }
        SCOPED_TRACE(format_string("weight decay %g", double(decay)));
        expect_close("change", c.change(c.params), c.change({p.begin(), p.end()}),
                     2e-5);  // params are rounded
        expect_close("m", c.m, {m.begin(), m.end()}, 1e-6);
        expect_close("v", c.v, {v.begin(), v.end()}, 1e-6);
    }
}

TEST(AdamW, DecayShows) {
    const AdamWCase with(1000, 0.1f, nullptr), without(1000, 0.0f, nullptr);
    double difference = 0;
    for (size_t i = 0; i < 1000; i++) difference += std::abs(double(with.params[i] - without.params[i]));
    EXPECT_GT(difference / 1000, 5e-4);  // 15 learning rates of 1e-3 times 0.1 times |param|
}

TEST(AdamW, GpuMatchesCpu) {
    const std::vector<float> norm_values = {4.0f, 0.25f};
    for (size_t n : {1, 3, 5, 17, 129, 768, 4099})
        for (bool scaled : {false, true}) {
            const AdamWCase c(n, 0.1f, scaled ? norm_values.data() : nullptr);
            SCOPED_TRACE(format_string("n %zu", n));
            for_each_version(adamw_update_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
                std::vector<float> guarded = c.start;  // an element too many shows
                guarded.push_back(42.0f);
                DeviceArray<float> params(pad, guarded), m(pad, std::vector<float>(n, 0.0f));
                DeviceArray<float> v(pad, std::vector<float>(n, 0.0f)), grads(pad, n), norm(pad, norm_values);
                AdamWStep* step = pad.allocate<AdamWStep>(1, "step");
                for (int t = 1; t <= STEPS; t++) {
                    const AdamWStep now = step_number(t);
                    pad.upload(step, &now, sizeof now);
                    pad.upload(grads, gradients_of_step(n, t).data(), n * sizeof(float));
                    version.launch(pad, params, m, v, grads, n, step, 0.1f, scaled ? norm.data : nullptr,
                                   block);
                }
                std::vector<float> got = params.values();
                EXPECT_EQ(got.back(), 42.0f);
                got.pop_back();
                expect_close("change", c.change(got), c.change(c.params), 2e-5);
                expect_close("m", m.values(), c.m, 1e-6);
                expect_close("v", v.values(), c.v, 1e-6);
                pad.free(step);
            });
        }
}

// Arrays that begin 4 bytes past a multiple of 16 must not take the 16-byte path.
TEST(AdamW, GpuTakesUnalignedArrays) {
    const size_t n = 100;
    const AdamWCase c(n, 0.1f, nullptr);
    for_each_version(adamw_update_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
        std::vector<float> shifted = c.start;
        shifted.insert(shifted.begin(), 42.0f);
        DeviceArray<float> params(pad, shifted), m(pad, std::vector<float>(n, 0.0f));
        DeviceArray<float> v(pad, std::vector<float>(n, 0.0f)), grads(pad, n);
        AdamWStep* step = pad.allocate<AdamWStep>(1, "step");
        for (int t = 1; t <= STEPS; t++) {
            const AdamWStep now = step_number(t);
            pad.upload(step, &now, sizeof now);
            pad.upload(grads, gradients_of_step(n, t).data(), n * sizeof(float));
            version.launch(pad, params + 1, m, v, grads, n, step, 0.1f, nullptr, block);
        }
        std::vector<float> got = params.values();
        EXPECT_EQ(got[0], 42.0f);
        got.erase(got.begin());
        expect_close("change", c.change(got), c.change(c.params), 2e-5);
        pad.free(step);
    });
}

TEST(AdamW, SkipsWhereTheNormIsNotFinite) {
    const size_t n = 50;
    const AdamWStep now = step_number(1);
    const std::vector<float> start = random_values(n, 1), zero(n, 0.0f);
    for (float norm : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        const std::vector<float> norm_values = {norm, 0.0f}, grads = nans(n);
        std::vector<float> params = start, m = zero, v = zero;
        adamw_update_cpu(params.data(), m.data(), v.data(), grads.data(), n, &now, 0.1f, norm_values.data());
        EXPECT_EQ(params, start);
        EXPECT_EQ(m, zero);
        EXPECT_EQ(v, zero);
        for_each_version(adamw_update_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<float> p(pad, start), device_m(pad, zero), device_v(pad, zero), g(pad, grads),
                s(pad, norm_values);
            AdamWStep* step = pad.allocate<AdamWStep>(1, "step");
            pad.upload(step, &now, sizeof now);
            version.launch(pad, p, device_m, device_v, g, n, step, 0.1f, s, block);
            EXPECT_EQ(p.values(), start);
            EXPECT_EQ(device_m.values(), zero);
            EXPECT_EQ(device_v.values(), zero);
            pad.free(step);
        });
    }
}
