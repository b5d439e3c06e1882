// LayerNorm of the sum of a residual connection, on the CPU and by each GPU version, against one after the
// other on the CPU.
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

// Both results, then the sum in place, as in training. The sum is the exact one. The GPU versions run one
// shape here: layernorm_test runs every shape.
TYPED_TEST(Residual, MatchesBothLayers) {
    using Real = TypeParam;
    for (auto [num_rows, C] : shapes) {
        SCOPED_TRACE(format_string("num_rows %d C %d", num_rows, C));
        const FusedCase<Real> c(num_rows, C);
        auto versions = with_baselines(layernorm_forward_versions<Real>());
        if (C != 48) versions.clear();
        const auto check = [&, num_rows = num_rows, C = C](LaunchPad* pad, const auto& launch) {
            DeviceArray<Real> residual(pad, c.residual.size()), normed(pad, c.normed.size()),
                inp1(pad, c.inp1), inp2(pad, c.inp2), weight(pad, c.weight), bias(pad, c.bias);
            DeviceArray<float> mean(pad, c.mean.size()), rstd(pad, c.rstd.size());
            LayerNormForward<Real> p = {.out = normed,
                                        .mean = mean,
                                        .rstd = rstd,
                                        .inp = inp1,
                                        .added = inp2,
                                        .sum = residual,
                                        .weight = weight,
                                        .bias = bias,
                                        .num_rows = num_rows,
                                        .C = C};
            launch(p);
            EXPECT_EQ(residual.values(), c.residual);
            expect_close("normed", normed.values(), c.normed, tolerance<Real>(pad ? 1e-5 : 1e-6));
            expect_close("mean", mean.values(), c.mean, pad ? 1e-5 : 1e-6);
            expect_close("rstd", rstd.values(), c.rstd, pad ? 1e-5 : 1e-6);
            p.sum = inp1;
            launch(p);
            EXPECT_EQ(inp1.values(), c.residual) << "in place";
        };
        for_cpu_and_each_version<Real>(layernorm_forward<Real>, versions, check);
    }
}
