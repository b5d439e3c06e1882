// LayerNorm: the CPU versions against references in double (backward: finite differences), each GPU version
// against the CPU version.
#include "llmc/layers/layernorm.h"

#include <functional>

#include "tests/table_rows.h"

struct Shape {
    int num_rows, C;
};
static const Shape shapes[] = {{1, 1}, {3, 5}, {7, 48}, {5, 129}, {33, 768}, {300, 17}, {600, 48}, {4, 4100}};

// Inputs that Real represents, and the fp32 results of the CPU version.
template <class Real>
struct ForwardCase {
    std::vector<float> inp, weight, bias, out, mean, rstd;
    ForwardCase(int num_rows, int C)
        : inp(random_values<Real>(size_t(num_rows) * C, 1)),
          weight(random_values<Real>(C, 2)),
          bias(random_values<Real>(C, 3)),
          out(nans(size_t(num_rows) * C)),
          mean(nans(num_rows)),
          rstd(nans(num_rows)) {
        layernorm_forward<float>(nullptr, {.out = out.data(),
                                           .mean = mean.data(),
                                           .rstd = rstd.data(),
                                           .inp = inp.data(),
                                           .weight = weight.data(),
                                           .bias = bias.data(),
                                           .num_rows = num_rows,
                                           .C = C});
    }
};

TEST(LayernormForward, CpuMatchesDouble) {
    for (auto [num_rows, C] : shapes) {
        const ForwardCase<float> c(num_rows, C);
        std::vector<float> out(size_t(num_rows) * C), mean(num_rows), rstd(num_rows);
        for (int row = 0; row < num_rows; row++) {
            const float* x = &c.inp[size_t(row) * C];
            double m = 0, v = 0;
            for (int i = 0; i < C; i++) m += x[i];
            m /= C;
            for (int i = 0; i < C; i++) v += std::pow(x[i] - m, 2);
            const double s = 1 / std::sqrt(v / C + 1e-5);
            for (int i = 0; i < C; i++)
                out[size_t(row) * C + i] = float((x[i] - m) * s * c.weight[i] + c.bias[i]);
            mean[row] = float(m);
            rstd[row] = float(s);
        }
        SCOPED_TRACE(format_string("num_rows %d C %d", num_rows, C));
        expect_close("out", c.out, out, 1e-6);
        expect_close("mean", c.mean, mean, 1e-5);  // the mean is small, the terms of its rounded sum are not
        expect_close("rstd", c.rstd, rstd, 1e-6);
    }
}

template <class Real>
struct Layernorm : testing::Test {};
TYPED_TEST_SUITE(Layernorm, RealTypes);

static KernelShape shape_of(int num_rows, int C) { return {.B = num_rows, .T = 1, .C = C, .NH = 1}; }

TYPED_TEST(Layernorm, ForwardGpuMatchesCpu) {
    for (const char* layer : {"layernorm_forward", "residual_layernorm_forward"}) {
        for (auto [num_rows, C] : shapes) check_rows<TypeParam>(layer, shape_of(num_rows, C));
        // addresses that rule out 16-byte accesses although C would allow them
        for (const size_t margin : {1, 4}) check_rows<TypeParam>(layer, shape_of(5, 16), margin);
    }
}

// LayerNorm of a sum against one after the other, then with the sum in place of an operand.
TYPED_TEST(Layernorm, CpuAddsTheResidual) {
    using Real = TypeParam;
    for (auto [num_rows, C] : shapes) {
        ForwardCase<Real> c(num_rows, C);
        const std::vector<float> added = random_values<Real>(c.inp.size(), 8);
        DeviceArray<Real> sum(nullptr, added.size()), out(nullptr, added.size()), inp(nullptr, c.inp),
            other(nullptr, added), weight(nullptr, c.weight), bias(nullptr, c.bias);
        for (size_t i = 0; i < added.size(); i++) c.inp[i] += added[i];
        c.inp = rounded<Real>(c.inp);
        LayerNormForward<Real> p = {.out = out,
                                    .mean = c.mean.data(),
                                    .rstd = c.rstd.data(),
                                    .inp = inp,
                                    .added = other,
                                    .sum = sum,
                                    .weight = weight,
                                    .bias = bias,
                                    .num_rows = num_rows,
                                    .C = C};
        layernorm_forward<Real>(nullptr, p);
        const std::vector<float> normed = out.values(), mean = c.mean, rstd = c.rstd;
        EXPECT_EQ(sum.values(), c.inp);
        p.inp = sum;
        p.added = nullptr, p.sum = nullptr;
        layernorm_forward<Real>(nullptr, p);
        EXPECT_EQ(normed, out.values());
        EXPECT_EQ(mean, c.mean);
        EXPECT_EQ(rstd, c.rstd);
        p.inp = p.sum = inp;
        p.added = other;
        layernorm_forward<Real>(nullptr, p);
        EXPECT_EQ(inp.values(), c.inp) << "in place";
    }
}

// The sum over all elements of dout * layernorm(inp), in double.
static double loss(const std::vector<double>& inp, const std::vector<double>& weight,
                   const std::vector<double>& bias, const std::vector<float>& dout) {
    const size_t C = weight.size();
    double sum = 0;
    for (size_t row = 0; row < inp.size() / C; row++) {
        const double* x = &inp[row * C];
        double m = 0, v = 0;
        for (size_t i = 0; i < C; i++) m += x[i] / double(C);
        for (size_t i = 0; i < C; i++) v += (x[i] - m) * (x[i] - m) / double(C);
        for (size_t i = 0; i < C; i++)
            sum += dout[row * C + i] * ((x[i] - m) / std::sqrt(v + 1e-5) * weight[i] + bias[i]);
    }
    return sum;
}

// `before` plus the gradient of the loss with respect to `values`, by central differences.
static std::vector<float> finite_differences(std::vector<double>& values, const std::vector<float>& before,
                                             const std::function<double()>& current_loss) {
    std::vector<float> result(before);
    for (size_t i = 0; i < values.size(); i++) {
        const double value = values[i], step = 1e-4;
        values[i] = value + step;
        const double up = current_loss();
        values[i] = value - step;
        result[i] += float((up - current_loss()) / (2 * step));
        values[i] = value;
    }
    return result;
}

// Inputs of the backward pass, and the fp32 results of the CPU version. dweight and dbias are accumulated
// into: they hold random values before it.
template <class Real>
struct BackwardCase {
    ForwardCase<Real> forward;
    std::vector<float> dout, added, dweight, dbias;
    std::vector<float> dinp_after, dweight_after, dbias_after;
    BackwardCase(int num_rows, int C)
        : forward(num_rows, C),
          dout(random_values<Real>(size_t(num_rows) * C, 4)),
          added(random_values<Real>(size_t(num_rows) * C, 5)),
          dweight(random_values<Real>(C, 6)),
          dbias(random_values<Real>(C, 7)),
          dinp_after(added.size()),
          dweight_after(dweight),
          dbias_after(dbias) {
        layernorm_backward<float>(nullptr, {.dinp = dinp_after.data(),
                                            .dweight = dweight_after.data(),
                                            .dbias = dbias_after.data(),
                                            .added = added.data(),
                                            .dout = dout.data(),
                                            .inp = forward.inp.data(),
                                            .weight = forward.weight.data(),
                                            .mean = forward.mean.data(),
                                            .rstd = forward.rstd.data(),
                                            .num_rows = num_rows,
                                            .C = C});
    }
};

TEST(LayernormBackward, CpuMatchesFiniteDifferences) {
    for (auto [num_rows, C] : {Shape{1, 7}, {3, 5}, {7, 48}, {130, 3}}) {
        SCOPED_TRACE(format_string("num_rows %d C %d", num_rows, C));
        const BackwardCase<float> c(num_rows, C);
        const ForwardCase<float>& f = c.forward;
        std::vector<double> inp(f.inp.begin(), f.inp.end()), weight(f.weight.begin(), f.weight.end()),
            bias(f.bias.begin(), f.bias.end());
        auto current_loss = [&] { return loss(inp, weight, bias, c.dout); };
        expect_close("dinp", c.dinp_after, finite_differences(inp, c.added, current_loss), 1e-5);
        expect_close("dweight", c.dweight_after, finite_differences(weight, c.dweight, current_loss), 1e-5);
        expect_close("dbias", c.dbias_after, finite_differences(bias, c.dbias, current_loss), 1e-5);
    }
}

// In place, as in training.
TYPED_TEST(Layernorm, BackwardGpuMatchesCpu) {
    std::vector<Shape> all(std::begin(shapes), std::end(shapes));
    all.push_back({1070, 24});   // the workgroups of versions 2 and 3 take several rows each
    all.push_back({1071, 136});  // in workgroups of several subgroups, which share the sums of a row; odd
    for (auto [num_rows, C] : all) check_rows<TypeParam>("layernorm_backward", shape_of(num_rows, C));
    for (const size_t margin : {1, 4}) check_rows<TypeParam>("layernorm_backward", shape_of(5, 12), margin);
}

TEST(LayernormBackward, RefusesRowsThatNoWorkgroupHolds) {
    if (test_pads().empty()) GTEST_SKIP() << "no device";
    LaunchPad& pad = *test_pads()[0];
    float x = 0;
    const LayerNormBackward<float> p = {.dinp = &x,
                                        .dweight = &x,
                                        .dbias = &x,
                                        .added = nullptr,
                                        .dout = &x,
                                        .inp = &x,
                                        .weight = &x,
                                        .mean = &x,
                                        .rstd = &x,
                                        .num_rows = 1,
                                        .C = 16 * int(pad.limits().max_block) + 1};
    EXPECT_THROW(pad.dry_run([&] { layernorm_backward<float>(&pad, p); }), Error);
}

// added = null gives the same results as zeros.
TYPED_TEST(Layernorm, BackwardWithNothingAdded) {
    using Real = TypeParam;
    const int num_rows = 7, C = 48;
    const BackwardCase<Real> c(num_rows, C);
    const auto check = [&](LaunchPad* pad, const auto& launch) {
        DeviceArray<Real> dinp(pad, c.added.size()), with_zeros(pad, c.added.size()), dweight(pad, c.dweight),
            dbias(pad, c.dbias), zeros(pad, std::vector<float>(c.added.size())), dout(pad, c.dout),
            inp(pad, c.forward.inp), weight(pad, c.forward.weight);
        DeviceArray<float> mean(pad, c.forward.mean), rstd(pad, c.forward.rstd);
        LayerNormBackward<Real> p = {.dinp = with_zeros,
                                     .dweight = dweight,
                                     .dbias = dbias,
                                     .added = zeros,
                                     .dout = dout,
                                     .inp = inp,
                                     .weight = weight,
                                     .mean = mean,
                                     .rstd = rstd,
                                     .num_rows = num_rows,
                                     .C = C};
        launch(p);
        p.dinp = dinp;
        p.added = nullptr;
        launch(p);
        EXPECT_EQ(dinp.values(), with_zeros.values());
    };
    for_cpu_and_each_version<Real>(layernorm_backward<Real>, layernorm_backward_versions<Real>(), check);
}
