// GELU: the CPU versions against references in double (backward: finite differences), the CPU and GPU
// versions of every storage type against the CPU version in fp32, and the results for NaN and for very large
// values.
#include "llmc/layers/gelu.h"

#include <algorithm>

#include "tests/table_rows.h"

static const size_t sizes[] = {1, 3, 4, 17, 129, 768, 4099, 70001};

static double gelu(double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

// n values of the size of GPT-2's activations, one in four far larger.
template <class Real = float>
static std::vector<float> inputs(size_t n) {
    std::vector<float> values = random_values<Real>(n, 1, 1.5f);
    for (size_t i = 0; i < n; i += 4) values[i] *= 8;
    return values;
}

TEST(GeluForward, CpuMatchesDouble) {
    std::vector<float> inp, out;
    for (float x = -8; x < 12; x += 0.001f) inp.push_back(x);
    out = nans(inp.size());
    gelu_forward<float>(nullptr, {.out = out.data(), .inp = inp.data(), .n = inp.size()});
    for (size_t i = 0; i < inp.size(); i++) {
        // relative error: for negative x, the exponential amplifies the rounding of its argument, |2 u| *
        // 2^-24
        const double u = std::sqrt(2 / M_PI) * (inp[i] + 0.044715 * std::pow(double(inp[i]), 3));
        const double want = inp[i] / (1 + std::exp(-2 * u));
        const double allowed = std::abs(want) * (5e-7 + 2e-7 * std::max(0.0, -2 * u)) + 1e-34;
        ASSERT_TRUE(std::abs(out[i] - want) <= allowed)
            << "gelu(" << inp[i] << ") is " << out[i] << ", not " << want;
    }
}

TEST(GeluBackward, CpuMatchesFiniteDifferences) {
    const std::vector<float> inp = inputs(20000), dout = random_values(20000, 2);
    std::vector<float> dinp = nans(inp.size()), want(inp.size());
    gelu_backward<float>(nullptr,
                         {.dinp = dinp.data(), .inp = inp.data(), .dout = dout.data(), .n = inp.size()});
    for (size_t i = 0; i < inp.size(); i++) want[i] = float(dout[i] * gelu_slope(inp[i]));
    expect_close("dinp", dinp, want, 1e-6);
}

template <class Real>
struct Gelu : testing::Test {};
TYPED_TEST_SUITE(Gelu, RealTypes);

TYPED_TEST(Gelu, ForwardMatchesFloat) {
    using Real = TypeParam;
    for (size_t n : sizes) {
        SCOPED_TRACE(format_string("n %zu", n));
        const std::vector<float> x = inputs<Real>(n);
        std::vector<float> want = nans(n);
        gelu_forward<float>(nullptr, {.out = want.data(), .inp = x.data(), .n = n});
        const auto check = [&](LaunchPad* pad, const auto& launch) {
            DeviceArray<Real> inp(pad, x), out(pad, n + 1);
            launch({.out = out, .inp = inp, .n = n});
            std::vector<float> got = out.values();
            EXPECT_TRUE(std::isnan(got.back())) << "wrote past the end";
            got.pop_back();
            expect_rounded<Real>(pad, "out", got, want, 2e-6);
            launch({.out = inp, .inp = inp, .n = n});
            expect_rounded<Real>(pad, "out in place of inp", inp.values(), want, 2e-6);
        };
        for_cpu_and_each_version<Real>(gelu_forward<Real>, with_baselines(gelu_forward_versions<Real>()),
                                       check);
    }
}

TYPED_TEST(Gelu, BackwardMatchesFloat) {
    using Real = TypeParam;
    for (size_t n : sizes) {
        SCOPED_TRACE(format_string("n %zu", n));
        const std::vector<float> x = inputs<Real>(n), dy = random_values<Real>(n, 2);
        std::vector<float> want = nans(n);
        gelu_backward<float>(nullptr, {.dinp = want.data(), .inp = x.data(), .dout = dy.data(), .n = n});
        const auto check = [&](LaunchPad* pad, const auto& launch) {
            DeviceArray<Real> inp(pad, x), dout(pad, dy), dinp(pad, n + 1);
            launch({.dinp = dinp, .inp = inp, .dout = dout, .n = n});
            std::vector<float> got = dinp.values();
            EXPECT_TRUE(std::isnan(got.back())) << "wrote past the end";
            got.pop_back();
            expect_rounded<Real>(pad, "dinp", got, want, 2e-6);
            launch({.dinp = dout, .inp = inp, .dout = dout, .n = n});
            expect_rounded<Real>(pad, "dinp in place of dout", dout.values(), want, 2e-6);
        };
        for_cpu_and_each_version<Real>(gelu_backward<Real>, with_baselines(gelu_backward_versions<Real>()),
                                       check);
    }
}

// NaN gives NaN. Large positive x gives x and a slope of 1, large negative x gives 0 and a slope of 0.
TYPED_TEST(Gelu, Extremes) {
    using Real = TypeParam;
    const float largest = std::is_same_v<Real, fp16>   ? 65504.0f
                          : std::is_same_v<Real, bf16> ? 0x1.fep127f
                                                       : std::numeric_limits<float>::max();
    std::vector<float> x = {20, -20, 1e4f, -1e4f, 1e13f, -1e13f, 1e20f, -1e20f, largest, -largest, NAN};
    for (float& v : x) v = float(Real(std::isnan(v) ? v : std::clamp(v, -largest, largest)));
    const size_t n = x.size();
    const auto expect = [&](const std::vector<float>& got, float of_positive) {  // 0: x itself
        for (size_t i = 0; i < n; i++) {
            if (std::isnan(x[i]))
                EXPECT_TRUE(std::isnan(got[i])) << got[i];
            else
                EXPECT_EQ(got[i], x[i] < 0 ? 0 : of_positive ? of_positive : x[i]) << "x = " << x[i];
        }
    };
    const auto forward = [&](LaunchPad* pad, const auto& launch) {
        DeviceArray<Real> inp(pad, x), out(pad, n);
        launch({.out = out, .inp = inp, .n = n});
        expect(out.values(), 0);
    };
    for_cpu_and_each_version<Real>(gelu_forward<Real>, with_baselines(gelu_forward_versions<Real>()),
                                   forward);
    const auto backward = [&](LaunchPad* pad, const auto& launch) {
        DeviceArray<Real> inp(pad, x), dout(pad, std::vector<float>(n, 1.0f)), dinp(pad, n);
        launch({.dinp = dinp, .inp = inp, .dout = dout, .n = n});
        expect(dinp.values(), 1);
    };
    for_cpu_and_each_version<Real>(gelu_backward<Real>, with_baselines(gelu_backward_versions<Real>()),
                                   backward);
}

// Addresses that rule out accesses of four elements (1 element past aligned memory) or of eight (4 elements).
TYPED_TEST(Gelu, UnalignedAddresses) {
    for (const char* layer : {"gelu_forward", "gelu_backward"})
        for (const size_t margin : {1, 4})
            check_rows<TypeParam>(layer, {.B = 1, .T = 25, .C = 10, .NH = 1}, margin);
}
