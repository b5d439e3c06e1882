// AdamW over several steps: the CPU version against a reference in double, every GPU version against the CPU
// version; and what the random rounding of 16-bit parameters does.
#include "llmc/adamw.h"

#include "tests/layer_test.h"

using SmallTypes = testing::Types<bf16, fp16>;

static const int STEPS = 5;
static const float LEARNING_RATE = 1e-3f, BETA1 = 0.9f, BETA2 = 0.95f, EPS = 1e-8f, DECAY = 0.1f;

static AdamWStep step_number(int t) { return adamw_step(LEARNING_RATE * float(t), BETA1, BETA2, EPS, t); }

template <class T = float>
static std::vector<float> gradients_of_step(size_t n, int t) {
    return random_values<T>(n, uint32_t(100 + t));
}

// Numbers that T represents, and what the CPU version in fp32 makes of them.
template <class T>
struct AdamWCase {
    std::vector<float> start, params, m, v;
    AdamWCase(size_t n, float weight_decay, const float* norm_and_scale)
        : start(random_values<T>(n, 1)), params(start), m(n, 0.0f), v(n, 0.0f) {
        for (int t = 1; t <= STEPS; t++) {
            const AdamWStep step = step_number(t);
            const std::vector<float> grads = gradients_of_step<T>(n, t);
            adamw_update_cpu<float>(params.data(), nullptr, m.data(), v.data(), grads.data(), n, &step,
                                    weight_decay, norm_and_scale);
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
        expect_close("change", c.change(c.params), c.change({p.begin(), p.end()}),
                     2e-5);  // params are rounded
        expect_close("m", c.m, {m.begin(), m.end()}, 1e-6);
        expect_close("v", c.v, {v.begin(), v.end()}, 1e-6);
    }
}

TEST(AdamW, DecayShows) {
    const AdamWCase<float> with(1000, 0.1f, nullptr), without(1000, 0.0f, nullptr);
    double difference = 0;
    for (size_t i = 0; i < 1000; i++) difference += std::abs(double(with.params[i] - without.params[i]));
    EXPECT_GT(difference / 1000, 5e-4);  // 15 learning rates of 1e-3 times 0.1 times |param|
}

// Parameters on a device and what belongs to them. The arrays begin `shift` elements past aligned memory, and
// an element is behind them, so that one too many shows.
template <class T>
struct Device {
    LaunchPad& pad;
    size_t n, shift;
    DeviceArray<T> params, grads;
    DeviceArray<float> master, m, v;
    AdamWStep* step;
    Device(LaunchPad& p, const std::vector<float>& start, size_t shift_ = 0)
        : pad(p),
          n(start.size()),
          shift(shift_),
          params(p, guarded(start)),
          grads(p, n + shift_),
          master(p, guarded(start)),
          m(p, std::vector<float>(n, 0.0f)),
          v(p, std::vector<float>(n, 0.0f)),
          step(p.allocate<AdamWStep>(1, "step")) {}
    ~Device() { pad.free(step); }
    template <class Version>
    void update(const Version& version, int block, const AdamWStep& now, const std::vector<float>& g,
                bool with_master, const float* norm) {
        pad.upload(step, &now, sizeof now);
        pad.upload(grads + shift, from_floats<T>(g).data(), n * sizeof(T));
        version.launch(pad, params + shift, with_master ? master + shift : nullptr, m, v, grads + shift, n,
                       step, DECAY, norm, 0, block);
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

// The distance from v to the next number of T; of fp16's subnormals where v is small.
template <class T>
static float spacing(float v) {
    const int digits = std::is_same_v<T, bf16> ? 8 : std::is_same_v<T, fp16> ? 11 : 24;
    const float step = std::ldexp(1.0f, std::ilogb(v) + 1 - digits);
    return std::is_same_v<T, fp16> ? std::max(step, 0x1p-24f) : step;
}

// Random rounding amplifies a last bit of fp32 that differs to one of T, but seldom: the random bits must lie
// between.
template <class T>
static void expect_nearly_equal(const std::vector<float>& got, const std::vector<float>& want) {
    size_t different = 0;
    for (size_t i = 0; i < want.size(); i++) {
        different += got[i] != want[i];
        ASSERT_TRUE(std::abs(got[i] - want[i]) <= 2 * spacing<T>(want[i]))
            << i << ": " << got[i] << " " << want[i];
    }
    EXPECT_LE(different, 1 + want.size() / 50);
}

template <class T>
struct AdamWTyped : testing::Test {};
TYPED_TEST_SUITE(AdamWTyped, RealTypes);

// Without master weights 16-bit parameters take another path in each step than the case's, in fp32: those are
// compared with the CPU version of the same type.
TYPED_TEST(AdamWTyped, GpuMatchesCpu) {
    using T = TypeParam;
    const bool is_float = std::is_same_v<T, float>;
    const std::vector<float> norm_values = {4.0f, 0.25f};
    for (size_t n : {1, 3, 5, 17, 129, 768, 4099})
        for (bool scaled : {false, true})
            for (size_t shift : {0, 1}) {
                if (shift && (scaled || n != 129)) continue;  // unaligned: not the path of wide accesses
                const AdamWCase<T> c(n, DECAY, scaled ? norm_values.data() : nullptr);
                std::vector<T> want = from_floats<T>(c.start);
                std::vector<float> m(n, 0.0f), v(n, 0.0f);
                for (int t = 1; t <= STEPS; t++) {
                    const AdamWStep now = step_number(t);
                    const std::vector<T> grads = from_floats<T>(gradients_of_step<T>(n, t));
                    adamw_update_cpu<T>(want.data(), nullptr, m.data(), v.data(), grads.data(), n, &now,
                                        DECAY, scaled ? norm_values.data() : nullptr);
                }
                SCOPED_TRACE(format_string("n %zu, shift %zu", n, shift));
                for_each_version<T>(adamw_update_versions<T>(), [&](LaunchPad& pad, auto& version,
                                                                    int block) {
                    DeviceArray<float> norm(pad, norm_values);
                    Device<T> plain(pad, c.start, shift), mastered(pad, c.start, shift);
                    for (int t = 1; t <= STEPS; t++) {
                        const std::vector<float> grads = gradients_of_step<T>(n, t);
                        const float* scale = scaled ? norm.data : nullptr;
                        plain.update(version, block, step_number(t), grads, false, scale);
                        if (!is_float) mastered.update(version, block, step_number(t), grads, true, scale);
                    }
                    expect_close("m", plain.m.values(), c.m, 1e-6);
                    expect_close("v", plain.v.values(), c.v, 1e-6);
                    const std::vector<float> got = plain.values(plain.params);
                    if (is_float) return expect_close("change", c.change(got), c.change(c.params), 2e-5);
                    expect_nearly_equal<T>(got, to_floats(want));
                    expect_close("m", mastered.m.values(), c.m, 1e-6);
                    expect_close("v", mastered.v.values(), c.v, 1e-6);
                    const std::vector<float> master = mastered.values(mastered.master),
                                             copies = mastered.values(mastered.params);
                    // differences of weights, whose last bits weigh more in them
                    expect_close("change of the master weights", c.change(master), c.change(c.params), 1e-4);
                    for (size_t i = 0; i < n; i++)
                        ASSERT_LT(std::abs(copies[i] - master[i]), spacing<T>(master[i]));
                });
            }
}

// Updates whose arithmetic is exact (a learning rate of 0 leaves the master weights), n copies of one number:
// parameters on CPU and GPU have the same bits.
template <class T>
static std::vector<float> rounded_copies(float value, size_t n, int t) {
    const AdamWStep now = adamw_step(0, BETA1, BETA2, EPS, t);
    std::vector<float> master(n, value), m(n, 0.0f), v(n, 0.0f);
    std::vector<T> params(n, T(0.0f)), grads(n, T(1.0f));
    adamw_update_cpu<T>(params.data(), master.data(), m.data(), v.data(), grads.data(), n, &now, DECAY,
                        nullptr);
    for (float kept : master) EXPECT_TRUE(kept == value || std::isnan(value));
    const std::vector<float> got = to_floats(params);
    for_each_version<T>(adamw_update_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
        if (block != version.block_sizes[0]) return;
        Device<T> device(pad, std::vector<float>(n, value));
        device.update(version, block, now, std::vector<float>(n, 1.0f), true, nullptr);
        const std::vector<float> here = device.values(device.params);
        for (size_t i = 0; i < n; i++)
            ASSERT_TRUE(here[i] == got[i] || (std::isnan(here[i]) && std::isnan(got[i])))
                << value << ": " << here[i] << " on the GPU, " << got[i] << " on the CPU";
    });
    return got;
}

// A tensor that is updated piece by piece has the bits of one that is updated whole, random ones included; a
// piece may begin anywhere.
TYPED_TEST(AdamWTyped, PiecesGiveTheSameBits) {
    using T = TypeParam;
    const size_t n = 40000, cut = 17000;
    const AdamWStep now = step_number(3);
    const std::vector<float> start = random_values<T>(n, 1), g = gradients_of_step<T>(n, 1);
    std::vector<T> whole = from_floats<T>(start), pieces = whole;
    const std::vector<T> grads = from_floats<T>(g);
    std::vector<float> m(n, 0.0f), v(m), m2(m), v2(m);
    adamw_update_cpu<T>(whole.data(), nullptr, m.data(), v.data(), grads.data(), n, &now, DECAY, nullptr);
    for (const auto& [first, end] : {std::pair<size_t, size_t>{0, cut}, {cut, n}})
        adamw_update_cpu<T>(pieces.data() + first, nullptr, m2.data() + first, v2.data() + first,
                            grads.data() + first, end - first, &now, DECAY, nullptr, first);
    EXPECT_EQ(to_floats(pieces), to_floats(whole));
    for_each_version<T>(adamw_update_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
        if (block != version.block_sizes[0]) return;
        Device<T> device(pad, start);
        device.update(version, block, now, g, false, nullptr);
        const std::vector<float> expected = device.values(device.params);
        Device<T> other(pad, start);
        pad.upload(other.step, &now, sizeof now);
        pad.upload(other.grads, grads.data(), n * sizeof(T));
        for (const auto& [first, end] : {std::pair<size_t, size_t>{0, cut}, {cut, n}})
            version.launch(pad, other.params + first, nullptr, other.m + first, other.v + first,
                           other.grads + first, end - first, other.step, DECAY, nullptr, first, block);
        EXPECT_EQ(other.values(other.params), expected);
    });
}

template <class T>
struct AdamWRandom : testing::Test {};
TYPED_TEST_SUITE(AdamWRandom, SmallTypes);

// The mean of n numbers that are rounded up with probability p has a standard deviation of sqrt(p (1-p) / n)
// spacings; 4.5 of them are passed once in 150,000 tries.
TYPED_TEST(AdamWRandom, RoundingIsUnbiased) {
    using T = TypeParam;
    const size_t n = 40003;
    for (float scale : {1.0f, -1.0f, 0x1.8p-3f, 0x1p-15f, 0x1p-24f, 3000.0f})
        for (float value : {1.0003f, 1.0012f, 1.0071f, 1.93f}) {
            value *= scale;
            SCOPED_TRACE(value);
            const std::vector<float> got = rounded_copies<T>(value, n, 3);
            const double unit = double(spacing<T>(value));
            const double low = std::floor(double(value) / unit) * unit, up = (double(value) - low) / unit;
            double sum = 0;
            for (float r : got) {
                ASSERT_TRUE(double(r) == low || double(r) == low + unit) << r;
                sum += (double(r) - low) / unit;
            }
            EXPECT_LE(std::abs(sum / n - up), 4.5 * std::sqrt(up * (1 - up) / n));
        }
}

TYPED_TEST(AdamWRandom, RepresentedNumbersStay) {
    using T = TypeParam;
    const float inf = std::numeric_limits<float>::infinity();
    for (float value : {0.0f, 1.0f, -1.0f, 0x1.02p0f, 0x1.fep-14f, 0x1p-14f, 0x1p-24f, 65280.0f})
        for (float r : rounded_copies<T>(value, 1000, 1)) ASSERT_EQ(r, value);
    for (float r : rounded_copies<T>(NAN, 10, 1)) ASSERT_TRUE(std::isnan(r));
    for (uint32_t random : {0u, 1u, 0x8000u, 0xffffu, 0xffffffffu}) {
        EXPECT_EQ(float(round_randomly<T>(inf, random)), inf);
        EXPECT_EQ(float(round_randomly<T>(-inf, random)), -inf);
        EXPECT_TRUE(std::isnan(float(round_randomly<T>(NAN, random))));
        EXPECT_TRUE(std::isnan(float(round_randomly<T>(std::bit_cast<float>(0x7f800001u), random))));
        for (int bits = 0; bits < 0x10000; bits++) {
            T t;
            t.bits = uint16_t(bits);
            if (std::isnan(float(t))) continue;
            ASSERT_EQ(round_randomly<T>(float(t), random).bits, bits);
        }
    }
    EXPECT_EQ(float(round_randomly<fp16>(1e5f, 0)), inf);
}

// Each step draws new random bits, the same ones in each run; changes far below the spacing add up over
// steps.
TYPED_TEST(AdamWRandom, StepsDiffer) {
    using T = TypeParam;
    const std::vector<float> first = rounded_copies<T>(1.0021f, 1000, 1),
                             second = rounded_copies<T>(1.0021f, 1000, 2);
    EXPECT_NE(first, second);
    EXPECT_EQ(first, rounded_copies<T>(1.0021f, 1000, 1));
    const size_t n = 5000;
    std::vector<T> params(n, T(1.0f)), grads(n, T(1.0f));
    std::vector<float> m(n, 0.0f), v(n, 0.0f);
    for (int t = 1; t <= 100; t++) {  // of 2e-5, where the spacing below 1 is 4e-3 or 5e-4
        const AdamWStep now = adamw_step(2e-5f, BETA1, BETA2, EPS, t);
        adamw_update_cpu<T>(params.data(), nullptr, m.data(), v.data(), grads.data(), n, &now, 0, nullptr);
    }
    double sum = 0;
    for (T p : params) sum += double(float(p));
    EXPECT_NEAR(sum / n, 1 - 100 * 2e-5, 4 * 0.004 / std::sqrt(double(n)));
}

TEST(AdamW, MasterWeightsAreForSmallTypes) {
    float x[4] = {1, 1, 1, 1};
    const AdamWStep now = step_number(1);
    EXPECT_THROW(adamw_update<float>(nullptr, x, x + 1, x + 2, x + 3, x, 1, &now, 0, nullptr), Error);
}

TYPED_TEST(AdamWTyped, SkipsWhereTheNormIsNotFiniteOrTheScaleIsZero) {
    using T = TypeParam;
    const size_t n = 50;
    const AdamWStep now = step_number(1);
    const std::vector<float> start = random_values<T>(n, 1), zero(n, 0.0f), grads = nans(n);
    const bool with_master = !std::is_same_v<T, float>;
    // the last: what global_norm() says of a loss that is not finite
    for (float norm :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1.0f}) {
        const std::vector<float> norm_values = {norm, 0.0f};
        std::vector<T> params = from_floats<T>(start), g = from_floats<T>(grads);
        std::vector<float> master = start, m = zero, v = zero;
        adamw_update_cpu<T>(params.data(), with_master ? master.data() : nullptr, m.data(), v.data(),
                            g.data(), n, &now, DECAY, norm_values.data());
        EXPECT_EQ(to_floats(params), start);
        EXPECT_EQ(master, start);
        EXPECT_EQ(m, zero);
        EXPECT_EQ(v, zero);
        for_each_version<T>(adamw_update_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<float> device_norm(pad, norm_values);
            Device<T> device(pad, start);
            device.update(version, block, now, grads, with_master, device_norm);
            EXPECT_EQ(device.values(device.params), start);
            EXPECT_EQ(device.values(device.master), start);
            EXPECT_EQ(device.m.values(), zero);
            EXPECT_EQ(device.v.values(), zero);
        });
    }
}

TYPED_TEST(AdamWTyped, TrainingFunction) {
    using T = TypeParam;
    const size_t n = 100;
    const AdamWStep now = step_number(1);
    const AdamWCase<T> c(n, DECAY, nullptr);
    std::vector<T> want = from_floats<T>(c.start), grads = from_floats<T>(gradients_of_step<T>(n, 1));
    std::vector<float> m(n, 0.0f), v(n, 0.0f);
    adamw_update<T>(nullptr, want.data(), nullptr, m.data(), v.data(), grads.data(), n, &now, DECAY, nullptr);
    for (const auto& pad : test_pads()) {
        Device<T> device(*pad, c.start);
        pad->upload(device.step, &now, sizeof now);
        pad->upload(device.grads, grads.data(), n * sizeof(T));
        adamw_update<T>(pad.get(), device.params, nullptr, device.m, device.v, device.grads, n, device.step,
                        DECAY, nullptr);
        expect_nearly_equal<T>(device.values(device.params), to_floats(want));
    }
}
