// GELU: the CPU versions against references in double (backward: finite differences too), every GPU version
// against the CPU version, and what happens to NaN and to very large numbers.
#include "llmc/gelu.h"

#include <algorithm>

#include "tests/layer_test.h"

static const size_t sizes[] = {1, 3, 4, 17, 129, 768, 4099, 70001};

static double gelu(double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

// n numbers of about GPT-2's activations, and one in four far larger.
static std::vector<float> inputs(size_t n) {
    std::vector<float> values = random_values(n, 1, 1.5f);
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

TEST(GeluForward, GpuMatchesCpu) {
    for (size_t n : sizes) {
        SCOPED_TRACE(format_string("n %zu", n));
        const std::vector<float> x = inputs(n);
        std::vector<float> want = nans(n);
        gelu_forward_cpu(want.data(), x.data(), n);
        for_each_version(gelu_forward_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<float> inp(pad, x), out(pad, n + 1);
            version.launch(pad, out, inp, n, block);
            std::vector<float> got = out.values();
            EXPECT_TRUE(std::isnan(got.back())) << "wrote past the end";
            got.pop_back();
            expect_close("out", got, want, 2e-6);
        });
    }
}

TEST(GeluBackward, GpuMatchesCpu) {
    for (size_t n : sizes) {
        SCOPED_TRACE(format_string("n %zu", n));
        const std::vector<float> x = inputs(n), dy = random_values(n, 2);
        std::vector<float> want = nans(n);
        gelu_backward_cpu(want.data(), x.data(), dy.data(), n);
        for_each_version(gelu_backward_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<float> inp(pad, x), dout(pad, dy), dinp(pad, n + 1);
            version.launch(pad, dinp, inp, dout, n, block);
            std::vector<float> got = dinp.values();
            EXPECT_TRUE(std::isnan(got.back())) << "wrote past the end";
            got.pop_back();
            expect_close("dinp", got, want, 2e-6);
            version.launch(pad, dout, inp, dout, n, block);
            expect_close("dinp in place of dout", dout.values(), want, 2e-6);
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

TEST(Gelu, Extremes) {
    const float largest = std::numeric_limits<float>::max(), nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> x = {20,    -20,    1e4f,    -1e4f,    1e13f, -1e13f,
                                  1e20f, -1e20f, largest, -largest, nan,   0};
    const std::vector<float> ones(x.size(), 1.0f);
    std::vector<float> y = nans(x.size()), dx = nans(x.size());
    const size_t n = x.size() - 1;  // gelu'(0) is a half
    gelu_forward_cpu(y.data(), x.data(), n);
    gelu_backward_cpu(dx.data(), x.data(), ones.data(), n);
    const std::vector<float> inputs_used(x.begin(), x.end() - 1);
    check_extremes(inputs_used, y, dx);
    const auto backward = gelu_backward_versions<float>();
    for_each_version(gelu_forward_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
        DeviceArray<float> inp(pad, x), out(pad, x.size()), dout(pad, ones), dinp(pad, x.size());
        version.launch(pad, out, inp, n, block);
        for (const auto& b : backward) {
            b.launch(pad, dinp, inp, dout, n, block);
            check_extremes(inputs_used, out.values(), dinp.values());
        }
    });
}

// Addresses that rule out 16-byte accesses, and the functions that training calls.
TEST(Gelu, UnalignedAddressesAndTrainingFunctions) {
    const std::vector<float> x = inputs(1001), dy = random_values(1001, 2);
    std::vector<float> y = nans(1000), dx = nans(1000);
    gelu_forward<float>(nullptr, y.data(), x.data() + 1, 1000);
    gelu_backward<float>(nullptr, dx.data(), x.data() + 1, dy.data() + 1, 1000);
    for (const auto& pad : test_pads()) {
        DeviceArray<float> inp(*pad, x), out(*pad, 1000), dout(*pad, dy), dinp(*pad, 1000);
        gelu_forward<float>(pad.get(), out, inp + 1, 1000);
        gelu_backward<float>(pad.get(), dinp, inp + 1, dout + 1, 1000);
        expect_close("out", out.values(), y, 2e-6);
        expect_close("dinp", dinp.values(), dx, 2e-6);
    }
}
