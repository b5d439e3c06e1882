// The linear layer of a single row: the CPU and GPU versions against sums in double.
#include "llmc/layers/matvec.h"

#include "tests/layer_test.h"

struct Shape {
    int C, OC;
};
static const Shape shapes[] = {{1, 1}, {5, 3}, {48, 33}, {129, 70}, {768, 97}, {4100, 5}};

template <class Real>
struct Case {
    std::vector<float> inp, weight, bias, out;
    Case(int C, int OC, bool with_bias)
        : inp(random_values<Real>(C, 1)),
          weight(random_values<Real>(size_t(OC) * C, 2)),
          bias(random_values<Real>(OC, 3)),
          out(OC) {
        for (int o = 0; o < OC; o++) {
            double sum = with_bias ? double(bias[o]) : 0;
            for (int c = 0; c < C; c++) sum += double(inp[c]) * weight[size_t(o) * C + c];
            out[o] = float(sum);
        }
    }
};

template <class Real>
struct Matvec : testing::Test {};
TYPED_TEST_SUITE(Matvec, RealTypes);

TYPED_TEST(Matvec, ForwardCpuMatchesDouble) {
    using Real = TypeParam;
    for (auto [C, OC] : shapes)
        for (bool with_bias : {true, false}) {
            const Case<Real> c(C, OC, with_bias);
            const std::vector<Real> inp = from_floats<Real>(c.inp), weight = from_floats<Real>(c.weight),
                                    bias = from_floats<Real>(c.bias);
            std::vector<Real> out = from_floats<Real>(nans(OC));
            matvec_forward_cpu<Real>({.out = out.data(),
                                      .inp = inp.data(),
                                      .weight = weight.data(),
                                      .bias = with_bias ? bias.data() : nullptr,
                                      .C = C,
                                      .OC = OC});
            SCOPED_TRACE(format_string("C %d OC %d", C, OC));
            expect_close("out", to_floats(out), c.out, tolerance<Real>());
        }
}

TYPED_TEST(Matvec, ForwardGpuMatchesDouble) {
    using Real = TypeParam;
    for (auto [C, OC] : shapes) {
        const Case<Real> plain(C, OC, false), biased(C, OC, true);
        SCOPED_TRACE(format_string("C %d OC %d", C, OC));
        auto check = [&, C = C, OC = OC](LaunchPad& pad, auto& version, int block_size) {
            DeviceArray<Real> inp(pad, plain.inp), weight(pad, plain.weight), bias(pad, plain.bias);
            DeviceArray<Real> out(pad, OC), with_bias(pad, OC);
            MatvecForward<Real> p = {
                .out = out, .inp = inp, .weight = weight, .bias = nullptr, .C = C, .OC = OC};
            version.launch(pad, p, block_size);
            p.out = with_bias;
            p.bias = bias;
            version.launch(pad, p, block_size);
            expect_close("out", out.values(), plain.out, tolerance<Real>());
            expect_close("out with bias", with_bias.values(), biased.out, tolerance<Real>());
        };
        for_each_version<Real>(matvec_forward_versions<Real>(), check);
    }
}
