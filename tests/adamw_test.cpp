// AdamW over several steps: the CPU version against a reference in double, and every GPU version against the
// CPU version; the stochastic rounding of 16-bit parameters.
#include "llmc/layers/adamw.h"

#include <set>

#include "tests/layer_test.h"

using SmallTypes = testing::Types<bf16, fp16>;

static const int STEPS = 5;
static const float LEARNING_RATE = 1e-3f, BETA1 = 0.9f, BETA2 = 0.95f, EPS = 1e-8f, DECAY = 0.1f;

static AdamWStep step_number(int t) { return adamw_step(LEARNING_RATE * float(t), BETA1, BETA2, EPS, t); }

template <class Real = float>
static std::vector<float> gradients_of_step(size_t n, int t) {
    return random_values<Real>(n, uint32_t(100 + t));
}

// Parameters that are exact in Real, and the result of the CPU version in fp32.
template <class Real>
struct AdamWCase {
    std::vector<float> start, params, m, v;
    AdamWCase(size_t n, float weight_decay, const float* norm_and_scale)
        : start(random_values<Real>(n, 1)), params(start), m(n, 0.0f), v(n, 0.0f) {
        for (int t = 1; t <= STEPS; t++) {
            const AdamWStep step = step_number(t);
            const std::vector<float> grads = gradients_of_step<Real>(n, t);
            adamw_update<float>(nullptr, {.params = params.data(),
                                          .master = nullptr,
                                          .m = m.data(),
                                          .v = v.data(),
                                          .grads = grads.data(),
                                          .n = n,
                                          .step = &step,
                                          .weight_decay = weight_decay,
                                          .norm_and_scale = norm_and_scale});
        }
    }
    // Tests compare changes, since errors are small relative to the parameters themselves.
    std::vector<float> change(const std::vector<float>& now) const {
        std::vector<float> difference(now);
        for (size_t i = 0; i < now.size(); i++) difference[i] -= start[i];
        return difference;
    }
};

TEST(AdamW, StepCorrections) {
    const AdamWStep first = adamw_step(0.1f, 0.9f, 0.999f, 1e-8f, 1),
                    late = adamw_step(0.1f, 0.9f, 0.999f, 1e-8f, 1000);
    EXPECT_NEAR(first.beta1_correction, 10, 1e-5);
    EXPECT_NEAR(first.beta2_correction * 0.001, 1.0, 2e-5);  // 0.999f is not 0.999
    EXPECT_EQ(first.beta2_correction, float(1 / (1 - double(0.999f))));
    EXPECT_NEAR(late.beta1_correction, 1.0, 1e-7);
    EXPECT_NEAR(late.beta2_correction, 1 / (1 - std::pow(0.999, 1000)), 4e-5);
    EXPECT_EQ(first.learning_rate, 0.1f);
    EXPECT_EQ(first.eps, 1e-8f);
}

TEST(AdamW, CpuMatchesDouble) {
    const size_t n = 20001;
    const float norm_and_scale[2] = {4.0f, 0.25f};
    for (float decay : {0.0f, 0.1f}) {
        const AdamWCase<float> c(n, decay, norm_and_scale);
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
        // the tolerance allows for the rounding of the parameters
        expect_close("change", c.change(c.params), c.change({p.begin(), p.end()}), 2e-5);
        expect_close("m", c.m, {m.begin(), m.end()}, 1e-6);
        expect_close("v", c.v, {v.begin(), v.end()}, 1e-6);
    }
}

// AdamW's arrays on the host or a device. Parameters and gradients begin `shift` elements past aligned
// memory; guard elements around the parameters show accesses out of bounds.
template <class Real>
struct Arrays {
    LaunchPad* pad;
    size_t n, shift;
    DeviceArray<Real> params, grads;
    DeviceArray<float> master, m, v;
    AdamWStep of_host, *step;
    Arrays(LaunchPad* p, const std::vector<float>& start, size_t shift_ = 0)
        : pad(p),
          n(start.size()),
          shift(shift_),
          params(p, guarded(start)),
          grads(p, n + shift_),
          master(p, guarded(start)),
          m(p, std::vector<float>(n, 0.0f)),
          v(p, std::vector<float>(n, 0.0f)),
          step(p ? p->allocate<AdamWStep>(1, "step") : &of_host) {}
    ~Arrays() {
        if (pad) pad->free(step);
    }
    void upload(const AdamWStep& now, const std::vector<float>& gradients) {
        const std::vector<Real> values = from_floats<Real>(gradients);
        if (pad) {
            pad->upload(step, &now, sizeof now);
            pad->upload(grads + shift, values.data(), n * sizeof(Real));
        } else {
            of_host = now;
            std::copy(values.begin(), values.end(), grads + shift);
        }
    }
    // The elements begin..end.
    AdamWUpdate<Real> range(size_t begin, size_t end, bool with_master = false,
                            const float* norm_and_scale = nullptr) const {
        return {.params = params + shift + begin,
                .master = with_master ? master + shift + begin : nullptr,
                .m = m + begin,
                .v = v + begin,
                .grads = grads + shift + begin,
                .n = end - begin,
                .first = begin,
                .step = step,
                .weight_decay = DECAY,
                .norm_and_scale = norm_and_scale};
    }
    AdamWUpdate<Real> all(bool with_master = false, const float* norm_and_scale = nullptr) const {
        return range(0, n, with_master, norm_and_scale);
    }
    template <class Array>
    std::vector<float> values(const Array& array) const {
        const std::vector<float> all = array.values();
        EXPECT_EQ(all.back(), 42.0f);
        EXPECT_EQ(shift ? all[0] : 42.0f, 42.0f);
        return {all.begin() + long(shift), all.end() - 1};
    }

   private:
    std::vector<float> guarded(const std::vector<float>& inner) const {
        std::vector<float> all(shift, 42.0f);
        all.insert(all.end(), inner.begin(), inner.end());
        all.push_back(42.0f);
        return all;
    }
};

// Calls check(pad, launch) for the CPU and each version with its first config.
template <class Real, class Check>
static void for_each(Check check) {
    auto versions = adamw_update_versions<Real>();
    for (auto& version : versions) version.configs.resize(1);
    for_cpu_and_each_version<Real>(adamw_update<Real>, versions, check);
}

// Weight decay is a share of the master weight, not of the parameter that was rounded from it.
TEST(AdamW, TheMasterWeightDecays) {
    const float start = 1.003f;  // 1 in bf16
    Arrays<bf16> host(nullptr, {start});
    host.upload(adamw_step(0.1f, BETA1, BETA2, EPS, 1), {0.0f});
    adamw_update(nullptr, host.all(true));
    EXPECT_NEAR(host.values(host.master)[0], start - 0.1f * DECAY * start, 1e-6);
}

// The distance between neighbours of Real at v, subnormals of fp16 included.
template <class Real>
static float spacing(float v) {
    const int digits = std::is_same_v<Real, bf16> ? 8 : std::is_same_v<Real, fp16> ? 11 : 24;
    const float step = std::ldexp(1.0f, std::ilogb(v) + 1 - digits);
    return std::is_same_v<Real, fp16> ? std::max(step, 0x1p-24f) : step;
}

// Stochastic rounding can amplify a difference in the last bit of fp32 to the last bit of Real. This is rare,
// since the random bits must lie between the two results.
template <class Real>
static void expect_nearly_equal(const std::vector<float>& got, const std::vector<float>& want) {
    size_t different = 0;
    for (size_t i = 0; i < want.size(); i++) {
        different += got[i] != want[i];
        ASSERT_TRUE(std::abs(got[i] - want[i]) <= 2 * spacing<Real>(want[i]))
            << i << ": " << got[i] << " " << want[i];
    }
    EXPECT_LE(different, 1 + want.size() / 50);
}

template <class Real>
struct AdamWTyped : testing::Test {};
TYPED_TEST_SUITE(AdamWTyped, RealTypes);

static const std::vector<float> NORM_AND_SCALE = {4.0f, 0.25f};

// STEPS steps are compared with those of the CPU: in fp32 (c), or in the same type for 16-bit parameters
// without master weights, which diverge from fp32 in each step. The CPU comes first.
TYPED_TEST(AdamWTyped, GpuMatchesCpu) {
    using Real = TypeParam;
    const bool is_float = std::is_same_v<Real, float>;
    for (size_t n : {1, 3, 5, 17, 129, 768, 4099})
        for (bool scaled : {false, true})
            for (size_t shift : {0, 1}) {
                if (shift && (scaled || n != 129)) continue;  // unaligned: no wide accesses
                SCOPED_TRACE(format_string("n %zu, shift %zu", n, shift));
                const AdamWCase<Real> c(n, DECAY, scaled ? NORM_AND_SCALE.data() : nullptr);
                std::vector<float> want;
                const auto check = [&](LaunchPad* pad, const auto& launch) {
                    DeviceArray<float> norm(pad, NORM_AND_SCALE);
                    Arrays<Real> plain(pad, c.start, shift), mastered(pad, c.start, shift);
                    for (Arrays<Real>* a : {&plain, &mastered})
                        for (int t = 1; t <= STEPS; t++) {
                            a->upload(step_number(t), gradients_of_step<Real>(n, t));
                            launch(a->all(a == &mastered && !is_float, scaled ? norm.data : nullptr));
                        }
                    for (const Arrays<Real>* a : {&plain, &mastered}) {
                        expect_close("m", a->m.values(), c.m, 1e-6);
                        expect_close("v", a->v.values(), c.v, 1e-6);
                    }
                    const std::vector<float> params = plain.values(plain.params);
                    if (is_float) return expect_close("change", c.change(params), c.change(c.params), 2e-5);
                    if (!pad) want = params;
                    expect_nearly_equal<Real>(params, want);
                    const std::vector<float> master = mastered.values(mastered.master),
                                             copies = mastered.values(mastered.params);
                    // the rounding of the weights is large relative to their changes
                    expect_close("change of the master weights", c.change(master), c.change(c.params), 1e-4);
                    for (size_t i = 0; i < n; i++)
                        ASSERT_LT(std::abs(copies[i] - master[i]), spacing<Real>(master[i]));
                };
                for_cpu_and_each_version<Real>(adamw_update<Real>, adamw_update_versions<Real>(), check);
            }
}

// Rounds n copies of a value: an update whose arithmetic is exact, since a learning rate of 0 keeps the
// master weights. The parameters on CPU and GPU must be bit-identical.
template <class Real>
static std::vector<float> rounded_copies(float value, size_t n, int t, uint64_t first = 0) {
    std::vector<float> of_cpu;
    for_each<Real>([&](LaunchPad* pad, const auto& launch) {
        Arrays<Real> arrays(pad, std::vector<float>(n, value));
        arrays.upload(adamw_step(0, BETA1, BETA2, EPS, t), std::vector<float>(n, 1.0f));
        AdamWUpdate<Real> update = arrays.all(true);
        update.first = first;
        launch(update);
        for (float kept : arrays.values(arrays.master)) EXPECT_TRUE(kept == value || std::isnan(value));
        const std::vector<float> here = arrays.values(arrays.params);
        if (!pad) of_cpu = here;
        for (size_t i = 0; i < n; i++)
            ASSERT_TRUE(here[i] == of_cpu[i] || (std::isnan(here[i]) && std::isnan(of_cpu[i])))
                << value << ": " << here[i] << " on the GPU, " << of_cpu[i] << " on the CPU";
    });
    return of_cpu;
}

// A tensor that is updated in parts is bit-identical to one that is updated at once, stochastic rounding
// included. A part may begin anywhere.
TYPED_TEST(AdamWTyped, PartsAreBitIdentical) {
    using Real = TypeParam;
    const size_t n = 40000, middle = 17000;
    const std::vector<float> start = random_values<Real>(n, 1), grads = gradients_of_step<Real>(n, 1);
    for_each<Real>([&](LaunchPad* pad, const auto& launch) {
        Arrays<Real> whole(pad, start), parts(pad, start);
        whole.upload(step_number(3), grads);
        parts.upload(step_number(3), grads);
        launch(whole.all());
        launch(parts.range(0, middle));
        launch(parts.range(middle, n));
        EXPECT_EQ(parts.values(parts.params), whole.values(whole.params));
    });
}

template <class Real>
struct AdamWRandom : testing::Test {};
TYPED_TEST_SUITE(AdamWRandom, SmallTypes);

// The mean of n values that are rounded up with probability p has a standard deviation of sqrt(p (1-p) / n)
// spacings. An error of 4.5 standard deviations has a probability of 1 in 150,000.
TYPED_TEST(AdamWRandom, RoundingIsUnbiased) {
    using Real = TypeParam;
    const size_t n = 40003;
    for (float scale : {1.0f, -1.0f, 0x1.8p-3f, 0x1p-15f, 0x1p-24f, 3000.0f})
        for (float value : {1.0003f, 1.0012f, 1.0071f, 1.93f}) {
            value *= scale;
            SCOPED_TRACE(value);
            const std::vector<float> got = rounded_copies<Real>(value, n, 3);
            const double unit = double(spacing<Real>(value));
            const double low = std::floor(double(value) / unit) * unit, up = (double(value) - low) / unit;
            double sum = 0;
            for (float r : got) {
                ASSERT_TRUE(double(r) == low || double(r) == low + unit) << r;
                sum += (double(r) - low) / unit;
            }
            EXPECT_LE(std::abs(sum / n - up), 4.5 * std::sqrt(up * (1 - up) / n));
        }
}

// Elements past 2^32 have random bits of their own, the same on CPU and GPU.
TYPED_TEST(AdamWRandom, ElementsPast32Bits) {
    std::set<std::vector<float>> seen;
    for (const uint64_t first : {uint64_t(0), uint64_t(1) << 32, uint64_t(5) << 32})
        EXPECT_TRUE(seen.insert(rounded_copies<TypeParam>(1.0021f, 1000, 3, first)).second) << first;
}

TYPED_TEST(AdamWRandom, ExactValuesStay) {
    using Real = TypeParam;
    const float inf = std::numeric_limits<float>::infinity();
    for (float value : {0.0f, 1.0f, -1.0f, 0x1.02p0f, 0x1.fep-14f, 0x1p-14f, 0x1p-24f, 65280.0f})
        for (float r : rounded_copies<Real>(value, 1000, 1)) ASSERT_EQ(r, value);
    for (float r : rounded_copies<Real>(NAN, 10, 1)) ASSERT_TRUE(std::isnan(r));
    for (uint32_t random : {0u, 1u, 0x8000u, 0xffffu, 0xffffffffu}) {
        EXPECT_EQ(float(round_randomly<Real>(inf, random)), inf);
        EXPECT_EQ(float(round_randomly<Real>(-inf, random)), -inf);
        EXPECT_TRUE(std::isnan(float(round_randomly<Real>(NAN, random))));
        EXPECT_TRUE(std::isnan(float(round_randomly<Real>(std::bit_cast<float>(0x7f800001u), random))));
        for (int bits = 0; bits < 0x10000; bits++) {
            Real t;
            t.bits = uint16_t(bits);
            if (std::isnan(float(t))) continue;
            ASSERT_EQ(round_randomly<Real>(float(t), random).bits, bits);
        }
    }
    EXPECT_EQ(float(round_randomly<fp16>(1e5f, 0)), inf);
}

// Each step has random bits of its own, the same in each run. Changes far below the spacing add up over
// steps.
TYPED_TEST(AdamWRandom, StepsDiffer) {
    using Real = TypeParam;
    const std::vector<float> first = rounded_copies<Real>(1.0021f, 1000, 1),
                             second = rounded_copies<Real>(1.0021f, 1000, 2);
    EXPECT_NE(first, second);
    EXPECT_EQ(first, rounded_copies<Real>(1.0021f, 1000, 1));
    const size_t n = 5000;
    const std::vector<float> ones(n, 1.0f);
    Arrays<Real> host(nullptr, ones);
    for (int t = 1; t <= 100; t++) {  // changes of 2e-5; the spacing below 1 is 4e-3 or 5e-4
        host.upload(adamw_step(2e-5f, BETA1, BETA2, EPS, t), ones);
        AdamWUpdate<Real> update = host.all();
        update.weight_decay = 0;
        adamw_update(nullptr, update);
    }
    double sum = 0;
    for (float p : host.values(host.params)) sum += double(p);
    EXPECT_NEAR(sum / n, 1 - 100 * 2e-5, 4 * 0.004 / std::sqrt(double(n)));
}

TEST(AdamW, RejectsMasterWeightsOfFloats) {
    const Arrays<float> host(nullptr, {1});
    EXPECT_THROW(adamw_update<float>(nullptr, host.all(true)), Error);
}

TYPED_TEST(AdamWTyped, SkipsIfTheNormIsNotFiniteOrTheScaleIsZero) {
    using Real = TypeParam;
    const size_t n = 50;
    const std::vector<float> start = random_values<Real>(n, 1), zero(n, 0.0f);
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    // a finite norm with a scale of 0: the result of global_norm() for a loss that is not finite
    for (const std::vector<float>& norm_and_scale : std::vector<std::vector<float>>{
             {nan, 0.0f}, {inf, 0.0f}, {1.0f, 0.0f}, {nan, 1.0f}, {inf, 1.0f}, {-inf, 1.0f}})
        for_each<Real>([&](LaunchPad* pad, const auto& launch) {
            DeviceArray<float> norm(pad, norm_and_scale);
            Arrays<Real> arrays(pad, start);
            arrays.upload(step_number(1), nans(n));
            launch(arrays.all(!std::is_same_v<Real, float>, norm));
            EXPECT_EQ(arrays.values(arrays.params), start);
            EXPECT_EQ(arrays.values(arrays.master), start);
            EXPECT_EQ(arrays.m.values(), zero);
            EXPECT_EQ(arrays.v.values(), zero);
        });
}
