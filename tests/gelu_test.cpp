// GELU: the CPU versions against references in double (backward: finite differences too), every type's
// CPU and GPU versions against the CPU version in fp32, and what happens to NaN and to very large numbers.
#include "llmc/gelu.h"

#include <algorithm>

#include "tests/layer_test.h"

static const size_t sizes[] = {1, 3, 4, 17, 129, 768, 4099, 70001};

static double gelu(double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

// n numbers of about GPT-2's activations, and one in four far larger.
template <class T = float>
static std::vector<float> inputs(size_t n) {
    std::vector<float> values = random_values<T>(n, 1, 1.5f);
    for (size_t i = 0; i < n; i += 4) values[i] *= 8;
    return values;
}

TEST(GeluForward, CpuMatchesDouble) {
    std::vector<float> inp, out;
    for (float x = -8; x < 12; x += 0.001f) inp.push_back(x);
    out = nans(inp.size());
    gelu_forward_cpu(out.data(), inp.data(), inp.size());
    for (size_t i = 0; i < inp.size(); i++) {
        // Relative to the value: below -5 the exponent's own rounding, |2 u| * 2^-24, is amplified.
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
    gelu_backward_cpu(dinp.data(), inp.data(), dout.data(), inp.size());
    for (size_t i = 0; i < inp.size(); i++) want[i] = float(dout[i] * gelu_slope(inp[i]));
    expect_close("dinp", dinp, want, 1e-6);
}

template <class T>
struct Gelu : testing::Test {};
TYPED_TEST_SUITE(Gelu, RealTypes);

TYPED_TEST(Gelu, ForwardMatchesFloat) {
    using T = TypeParam;
    for (size_t n : sizes) {
        SCOPED_TRACE(format_string("n %zu", n));
        const std::vector<float> x = inputs<T>(n);
        std::vector<float> want = nans(n);
        gelu_forward_cpu(want.data(), x.data(), n);
        std::vector<T> on_cpu(n, T(NAN));
        gelu_forward_cpu<T>(on_cpu.data(), from_floats<T>(x).data(), n);
        EXPECT_EQ(to_floats(on_cpu), rounded<T>(want));
        for_each_version<T>(gelu_forward_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<T> inp(pad, x), out(pad, n + 1);
            version.launch(pad, out, inp, n, block);
            std::vector<float> got = out.values();
            EXPECT_TRUE(std::isnan(got.back())) << "wrote past the end";
            got.pop_back();
            expect_close("out", got, want, tolerance<T>(2e-6));
            version.launch(pad, inp, inp, n, block);
            expect_close("out in place of inp", inp.values(), want, tolerance<T>(2e-6));
        });
    }
}

TYPED_TEST(Gelu, BackwardMatchesFloat) {
    using T = TypeParam;
    for (size_t n : sizes) {
        SCOPED_TRACE(format_string("n %zu", n));
        const std::vector<float> x = inputs<T>(n), dy = random_values<T>(n, 2);
        std::vector<float> want = nans(n);
        gelu_backward_cpu(want.data(), x.data(), dy.data(), n);
        std::vector<T> on_cpu(n, T(NAN));
        gelu_backward_cpu<T>(on_cpu.data(), from_floats<T>(x).data(), from_floats<T>(dy).data(), n);
        EXPECT_EQ(to_floats(on_cpu), rounded<T>(want));
        for_each_version<T>(gelu_backward_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<T> inp(pad, x), dout(pad, dy), dinp(pad, n + 1);
            version.launch(pad, dinp, inp, dout, n, block);
            std::vector<float> got = dinp.values();
            EXPECT_TRUE(std::isnan(got.back())) << "wrote past the end";
            got.pop_back();
            expect_close("dinp", got, want, tolerance<T>(2e-6));
            version.launch(pad, dout, inp, dout, n, block);
            expect_close("dinp in place of dout", dout.values(), want, tolerance<T>(2e-6));
        });
    }
}

// NaN stays NaN; the largest numbers give themselves (or 0) and a slope of 1 (or 0), on every version.
static void check_extremes(const std::vector<float>& x, const std::vector<float>& y,
                           const std::vector<float>& dx) {
    for (size_t i = 0; i < x.size(); i++) {
        SCOPED_TRACE(format_string("x = %g", x[i]));
        if (std::isnan(x[i])) {
            EXPECT_TRUE(std::isnan(y[i]) && std::isnan(dx[i])) << y[i] << " " << dx[i];
        } else {
            EXPECT_EQ(y[i], x[i] > 0 ? x[i] : 0);
            EXPECT_EQ(dx[i], x[i] > 0 ? 1 : 0);
        }
    }
}

TYPED_TEST(Gelu, Extremes) {
    using T = TypeParam;
    const float largest = std::is_same_v<T, fp16>   ? 65504.0f
                          : std::is_same_v<T, bf16> ? 0x1.fep127f
                                                    : std::numeric_limits<float>::max();
    std::vector<float> x = {20, -20, 1e4f, -1e4f, 1e13f, -1e13f, 1e20f, -1e20f, largest, -largest, NAN, 0};
    for (float& v : x) v = float(T(std::isnan(v) ? v : std::clamp(v, -largest, largest)));
    const std::vector<float> ones(x.size(), 1.0f);
    const size_t n = x.size() - 1;  // gelu'(0) is a half
    std::vector<T> y(x.size(), T(NAN)), dx(y), inp_values = from_floats<T>(x),
                                               dout_values = from_floats<T>(ones);
    gelu_forward_cpu<T>(y.data(), inp_values.data(), n);
    gelu_backward_cpu<T>(dx.data(), inp_values.data(), dout_values.data(), n);
    const std::vector<float> inputs_used(x.begin(), x.end() - 1);
    check_extremes(inputs_used, to_floats(y), to_floats(dx));
    const auto backward = gelu_backward_versions<T>();
    for_each_version<T>(gelu_forward_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
        DeviceArray<T> inp(pad, x), out(pad, x.size()), dout(pad, ones), dinp(pad, x.size());
        version.launch(pad, out, inp, n, block);
        for (const auto& b : backward) {
            b.launch(pad, dinp, inp, dout, n, block);
            check_extremes(inputs_used, out.values(), dinp.values());
        }
    });
}

// Addresses that rule out accesses of 16 bytes, and (4 elements past aligned memory) those of eight elements;
// and the functions that training calls.
TYPED_TEST(Gelu, UnalignedAddressesAndTrainingFunctions) {
    using T = TypeParam;
    for (size_t shift : {1, 4}) {
        const size_t n = 1000;
        const std::vector<float> x = inputs<T>(n + shift), dy = random_values<T>(n + shift, 2);
        std::vector<float> y = nans(n), dx = nans(n);
        gelu_forward<float>(nullptr, y.data(), x.data() + shift, n);
        gelu_backward<float>(nullptr, dx.data(), x.data() + shift, dy.data() + shift, n);
        for (const auto& pad : test_pads()) {
            DeviceArray<T> inp(*pad, x), out(*pad, n), dout(*pad, dy), dinp(*pad, n);
            gelu_forward<T>(pad.get(), out, inp + shift, n);
            gelu_backward<T>(pad.get(), dinp, inp + shift, dout + shift, n);
            expect_close("out", out.values(), y, tolerance<T>(2e-6));
            expect_close("dinp", dinp.values(), dx, tolerance<T>(2e-6));
        }
    }
}
