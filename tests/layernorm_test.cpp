// LayerNorm: the CPU version against a reference in double, every GPU version against the CPU version.
#include "llmc/layernorm.h"

#include "tests/layer_test.h"

struct Shape {
    int N, C;
};
static const Shape shapes[] = {{1, 1}, {3, 5}, {7, 48}, {5, 129}, {33, 768}, {300, 17}};

struct ForwardCase {
    std::vector<float> inp, weight, bias, out, mean, rstd;
    ForwardCase(int N, int C)
        : inp(random_values(size_t(N) * C, 1)), weight(random_values(C, 2)), bias(random_values(C, 3)),
          out(nans(size_t(N) * C)), mean(nans(N)), rstd(nans(N)) {
        layernorm_forward_cpu(out.data(), mean.data(), rstd.data(), inp.data(), weight.data(), bias.data(), N, C);
    }
};

TEST(LayernormForward, CpuMatchesDouble) {
    for (auto [N, C] : shapes) {
        const ForwardCase c(N, C);
        std::vector<float> out(size_t(N) * C), mean(N), rstd(N);
        for (int n = 0; n < N; n++) {
            double m = 0, v = 0;
            for (int i = 0; i < C; i++) m += c.inp[size_t(n) * C + i];
            m /= C;
            for (int i = 0; i < C; i++) v += std::pow(c.inp[size_t(n) * C + i] - m, 2);
            const double s = 1 / std::sqrt(v / C + 1e-5);
            for (int i = 0; i < C; i++)
                out[size_t(n) * C + i] = float((c.inp[size_t(n) * C + i] - m) * s * c.weight[i] + c.bias[i]);
            mean[n] = float(m);
            rstd[n] = float(s);
        }
        SCOPED_TRACE(format_string("N %d C %d", N, C));
        expect_close("out", c.out, out, 1e-6);
        expect_close("mean", c.mean, mean, 1e-6);
        expect_close("rstd", c.rstd, rstd, 1e-6);
    }
}

TEST(LayernormForward, GpuMatchesCpu) {
    for (auto [N, C] : shapes) {
        const ForwardCase c(N, C);
        SCOPED_TRACE(format_string("N %d C %d", N, C));
        for_each_version(layernorm_forward_versions<float>(), [&, N = N, C = C](LaunchPad& pad, auto& version, int block) {
            DeviceArray<float> inp(pad, c.inp), weight(pad, c.weight), bias(pad, c.bias);
            DeviceArray<float> out(pad, c.out.size()), mean(pad, N), rstd(pad, N);
            version.launch(pad, out, mean, rstd, inp, weight, bias, N, C, block);
            expect_close("out", out.values(), c.out);
            expect_close("mean", mean.values(), c.mean);
            expect_close("rstd", rstd.values(), c.rstd);
        });
    }
}
