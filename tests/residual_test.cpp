// Residual and residual with LayerNorm: the CPU versions against references, every GPU version against the
// CPU version.
#include "llmc/residual.h"

#include "llmc/layernorm.h"
#include "tests/layer_test.h"

static const size_t sizes[] = {1, 3, 4, 17, 129, 768, 4099, 70001};

static std::vector<float> sum_of(const std::vector<float>& a, const std::vector<float>& b) {
    std::vector<float> sum(a);
    for (size_t i = 0; i < a.size(); i++) sum[i] += b[i];
    return sum;
}

TEST(ResidualForward, CpuAdds) {
    for (size_t n : sizes) {
        const std::vector<float> a = random_values(n, 1), b = random_values(n, 2);
        std::vector<float> out = nans(n);
        residual_forward<float>(nullptr, out.data(), a.data(), b.data(), n);
        EXPECT_EQ(out, sum_of(a, b));
    }
}

TEST(ResidualForward, GpuAdds) {
    for (size_t n : sizes) {
        SCOPED_TRACE(format_string("n %zu", n));
        const std::vector<float> a = random_values(n, 1), b = random_values(n, 2), want = sum_of(a, b);
        for_each_version(residual_forward_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<float> inp1(pad, a), inp2(pad, b), out(pad, n + 1);
            version.launch(pad, out, inp1, inp2, n, block);
            std::vector<float> got = out.values();
            EXPECT_TRUE(std::isnan(got.back())) << "wrote past the end";
            got.pop_back();
            expect_close("out", got, want, 1e-7);
            version.launch(pad, inp1, inp1, inp2, n, block);
            expect_close("out in place of inp1", inp1.values(), want, 1e-7);
        });
    }
}

struct Shape {
    int N, C;
};
static const Shape shapes[] = {{1, 1}, {3, 5}, {7, 48}, {5, 129}, {33, 768}, {300, 17}, {4, 4100}};

struct FusedCase {
    std::vector<float> inp1, inp2, weight, bias, residual, normed, mean, rstd;
    FusedCase(int N, int C)
        : inp1(random_values(size_t(N) * C, 1)),
          inp2(random_values(size_t(N) * C, 2)),
          weight(random_values(C, 3)),
          bias(random_values(C, 4)),
          residual(nans(size_t(N) * C)),
          normed(residual),
          mean(nans(N)),
          rstd(nans(N)) {
        fused_residual_layernorm_forward<float>(nullptr, residual.data(), normed.data(), mean.data(),
                                                rstd.data(), inp1.data(), inp2.data(), weight.data(),
                                                bias.data(), N, C);
    }
};

TEST(FusedResidualLayernormForward, CpuIsTheTwoInTurn) {
    for (auto [N, C] : shapes) {
        SCOPED_TRACE(format_string("N %d C %d", N, C));
        const FusedCase c(N, C);
        const std::vector<float> sum = sum_of(c.inp1, c.inp2);
        std::vector<float> normed = nans(sum.size()), mean = nans(N), rstd = nans(N);
        layernorm_forward<float>(nullptr, normed.data(), mean.data(), rstd.data(), sum.data(),
                                 c.weight.data(), c.bias.data(), N, C);
        expect_close("residual", c.residual, sum, 1e-7);
        expect_close("normed", c.normed, normed, 1e-6);
        expect_close("mean", c.mean, mean, 1e-6);
        expect_close("rstd", c.rstd, rstd, 1e-6);
    }
}

TEST(FusedResidualLayernormForward, GpuMatchesCpu) {
    for (auto [N, C] : shapes) {
        SCOPED_TRACE(format_string("N %d C %d", N, C));
        const FusedCase c(N, C);
        auto check = [&, N = N, C = C](LaunchPad& pad, auto& version, int block) {
            DeviceArray<float> inp1(pad, c.inp1), inp2(pad, c.inp2), weight(pad, c.weight), bias(pad, c.bias);
            DeviceArray<float> residual(pad, c.residual.size()), normed(pad, c.normed.size());
            DeviceArray<float> mean(pad, N), rstd(pad, N);
            pad.begin_group();  // the launcher must order its own kernels
            version.launch(pad, residual, normed, mean, rstd, inp1, inp2, weight, bias, N, C, block);
            pad.end_group();
            expect_close("residual", residual.values(), c.residual, 1e-7);
            expect_close("normed", normed.values(), c.normed);
            expect_close("mean", mean.values(), c.mean);
            expect_close("rstd", rstd.values(), c.rstd);
        };
        for_each_version(fused_residual_layernorm_forward_versions<float>(), check);
    }
}

// Addresses that rule out 16-byte accesses although C would allow them.
TEST(Residual, UnalignedAddresses) {
    const int N = 5, C = 12;
    const FusedCase c(N, C);
    std::vector<float> shifted(c.inp1);
    shifted.insert(shifted.begin(), 77.0f);
    for_each_version(fused_residual_layernorm_forward_versions<float>(), [&](LaunchPad& pad, auto& version,
                                                                             int block) {
        DeviceArray<float> inp1(pad, shifted), inp2(pad, c.inp2), weight(pad, c.weight), bias(pad, c.bias);
        DeviceArray<float> residual(pad, c.residual.size()), normed(pad, c.normed.size()), mean(pad, N),
            rstd(pad, N);
        version.launch(pad, residual, normed, mean, rstd, inp1 + 1, inp2, weight, bias, N, C, block);
        expect_close("residual", residual.values(), c.residual, 1e-7);
        expect_close("normed", normed.values(), c.normed);
    });
    for_each_version(residual_forward_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
        DeviceArray<float> inp1(pad, shifted), inp2(pad, c.inp2), sum(pad, c.residual.size());
        version.launch(pad, sum, inp1 + 1, inp2, sum.size, block);
        expect_close("sum", sum.values(), c.residual, 1e-7);
    });
}

TEST(Residual, TrainingFunctions) {
    const int N = 9, C = 48;
    const FusedCase c(N, C);
    for (const auto& pad : test_pads()) {
        DeviceArray<float> inp1(*pad, c.inp1), inp2(*pad, c.inp2), weight(*pad, c.weight), bias(*pad, c.bias);
        DeviceArray<float> sum(*pad, c.residual.size()), normed(*pad, c.normed.size()), mean(*pad, N),
            rstd(*pad, N);
        residual_forward<float>(pad.get(), sum, inp1, inp2, sum.size);
        expect_close("sum", sum.values(), c.residual, 1e-7);
        fused_residual_layernorm_forward<float>(pad.get(), inp1, normed, mean, rstd, inp1, inp2, weight, bias,
                                                N, C);
        expect_close("residual in place of inp1", inp1.values(), c.residual, 1e-7);
        expect_close("normed", normed.values(), c.normed);
    }
}
