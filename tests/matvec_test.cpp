// The linear layer of a single row: the CPU version against sums in double, the GPU version against the
// CPU's.
#include "llmc/matvec.h"

#include "tests/layer_test.h"

struct Shape {
    int C, OC;
};
static const Shape shapes[] = {{1, 1}, {5, 3}, {48, 33}, {129, 70}, {768, 97}, {4100, 5}};

template <class T>
struct Case {
    std::vector<float> inp, weight, bias, out;
    Case(int C, int OC, bool with_bias)
        : inp(random_values<T>(C, 1)),
          weight(random_values<T>(size_t(OC) * C, 2)),
          bias(random_values<T>(OC, 3)),
          out(OC) {
        for (int o = 0; o < OC; o++) {
            double sum = with_bias ? double(bias[o]) : 0;
            for (int c = 0; c < C; c++) sum += double(inp[c]) * weight[size_t(o) * C + c];
            out[o] = float(sum);
        }
    }
};

template <class T>
struct Matvec : testing::Test {};
TYPED_TEST_SUITE(Matvec, RealTypes);

TYPED_TEST(Matvec, ForwardCpuMatchesDouble) {
    using T = TypeParam;
    for (auto [C, OC] : shapes)
        for (bool with_bias : {true, false}) {
            const Case<T> c(C, OC, with_bias);
            const std::vector<T> inp = from_floats<T>(c.inp), weight = from_floats<T>(c.weight),
                                 bias = from_floats<T>(c.bias);
            std::vector<T> out = from_floats<T>(nans(OC));
            matvec_forward_cpu(out.data(), inp.data(), weight.data(), with_bias ? bias.data() : nullptr, C,
                               OC);
            SCOPED_TRACE(format_string("C %d OC %d", C, OC));
            expect_close("out", to_floats(out), c.out, tolerance<T>());
        }
}

TYPED_TEST(Matvec, ForwardGpuMatchesDouble) {
    using T = TypeParam;
    for (auto [C, OC] : shapes) {
        const Case<T> plain(C, OC, false), biased(C, OC, true);
        SCOPED_TRACE(format_string("C %d OC %d", C, OC));
        auto check = [&, C = C, OC = OC](LaunchPad& pad, auto& version, int block) {
            DeviceArray<T> inp(pad, plain.inp), weight(pad, plain.weight), bias(pad, plain.bias);
            DeviceArray<T> out(pad, OC), with_bias(pad, OC);
            version.launch(pad, out, inp, weight, nullptr, C, OC, block);
            version.launch(pad, with_bias, inp, weight, bias, C, OC, block);
            expect_close("out", out.values(), plain.out, tolerance<T>());
            expect_close("out with bias", with_bias.values(), biased.out, tolerance<T>());
        };
        for_each_version<T>(matvec_forward_versions<T>(), check);
    }
}
