// LayerNorm of the sum of a residual connection: the CPU version against one after the other, each GPU
// version against the CPU version.
#include "dev/vulkan/baselines/baselines.h"
#include "llmc/layers/layernorm.h"

#include "tests/layer_test.h"

static std::vector<float> sum_of(const std::vector<float>& a, const std::vector<float>& b) {
    std::vector<float> sum(a);
    for (size_t i = 0; i < a.size(); i++) sum[i] += b[i];
    return sum;
}

template <class Real>
struct Residual : testing::Test {};
TYPED_TEST_SUITE(Residual, RealTypes);

struct Shape {
    int num_rows, C;
};
static const Shape shapes[] = {{1, 1}, {3, 5}, {7, 48}, {5, 129}, {33, 768}, {300, 17}, {4, 4100}};

// Inputs that Real represents, their sum rounded to Real, and its LayerNorm in fp32.
template <class Real>
struct FusedCase {
    std::vector<float> inp1, inp2, weight, bias, residual, normed, mean, rstd;
    FusedCase(int num_rows, int C)
        : inp1(random_values<Real>(size_t(num_rows) * C, 1)),
          inp2(random_values<Real>(size_t(num_rows) * C, 2)),
          weight(random_values<Real>(C, 3)),
          bias(random_values<Real>(C, 4)),
          residual(rounded<Real>(sum_of(inp1, inp2))),
          normed(nans(residual.size())),
          mean(nans(num_rows)),
          rstd(nans(num_rows)) {
        layernorm_forward<float>(nullptr, {.out = normed.data(),
                                           .mean = mean.data(),
                                           .rstd = rstd.data(),
                                           .inp = residual.data(),
                                           .weight = weight.data(),
                                           .bias = bias.data(),
                                           .num_rows = num_rows,
                                           .C = C});
    }
};

// Its tensors on a device.
template <class Real>
struct FusedArrays {
    DeviceArray<Real> residual, normed;
    DeviceArray<float> mean, rstd;
    DeviceArray<Real> inp1, inp2, weight, bias;
    FusedArrays(LaunchPad& pad, const FusedCase<Real>& c)
        : residual(pad, c.residual.size()),
          normed(pad, c.normed.size()),
          mean(pad, c.mean.size()),
          rstd(pad, c.rstd.size()),
          inp1(pad, c.inp1),
          inp2(pad, c.inp2),
          weight(pad, c.weight),
          bias(pad, c.bias) {}
    LayerNormForward<Real> params() const {
        const size_t num_rows = mean.size, C = weight.size;
        return {.out = normed,
                .mean = mean,
                .rstd = rstd,
                .inp = inp1,
                .added = inp2,
                .sum = residual,
                .weight = weight,
                .bias = bias,
                .num_rows = int(num_rows),
                .C = int(C)};
    }
};

TYPED_TEST(Residual, FusedCpuMatchesBothLayers) {
    using Real = TypeParam;
    for (auto [num_rows, C] : shapes) {
        SCOPED_TRACE(format_string("num_rows %d C %d", num_rows, C));
        const FusedCase<Real> c(num_rows, C);
        const std::vector<Real> inp1 = from_floats<Real>(c.inp1), inp2 = from_floats<Real>(c.inp2),
                                weight = from_floats<Real>(c.weight), bias = from_floats<Real>(c.bias);
        std::vector<Real> residual(c.residual.size(), Real(NAN)), normed(residual);
        std::vector<float> mean = nans(num_rows), rstd = nans(num_rows);
        layernorm_forward<Real>(nullptr, {.out = normed.data(),
                                          .mean = mean.data(),
                                          .rstd = rstd.data(),
                                          .inp = inp1.data(),
                                          .added = inp2.data(),
                                          .sum = residual.data(),
                                          .weight = weight.data(),
                                          .bias = bias.data(),
                                          .num_rows = num_rows,
                                          .C = C});
        EXPECT_EQ(to_floats(residual), c.residual);
        expect_close("normed", to_floats(normed), c.normed, tolerance<Real>(1e-6));
        expect_close("mean", mean, c.mean, 1e-6);
        expect_close("rstd", rstd, c.rstd, 1e-6);
    }
}

// layernorm_test runs every shape; the sum, in place as in training, is the exact one.
TYPED_TEST(Residual, SumInPlace) {
    using Real = TypeParam;
    const FusedCase<Real> c(9, 48);
    const auto check = [&](LaunchPad& pad, auto& version, int block) {
        const FusedArrays<Real> arrays(pad, c);
        LayerNormForward<Real> params = arrays.params();
        params.sum = arrays.inp1;
        version.launch(pad, params, block);
        EXPECT_EQ(arrays.inp1.values(), c.residual);
        expect_close("normed", arrays.normed.values(), c.normed, tolerance<Real>());
    };
    for_each_version<Real>(with_baselines(layernorm_forward_versions<Real>()), check);
}
