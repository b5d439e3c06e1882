// The linear layer of the newest rows: the CPU and GPU versions against sums in double.
#include "llmc/layers/decode_linear.h"

#include "llmc/layers/gelu.h"
#include "tests/layer_test.h"

struct Shape {
    int B, C, OC;
};
static const Shape shapes[] = {{1, 1, 1}, {17, 5, 3}, {3, 48, 33}, {2, 264, 17}, {1, 1040, 9}};
const int T = 3;  // rows of a text in `out`, of which one is written

template <class Real>
struct Case {
    Shape s;
    bool norm;
    DecodeEpilogue epilogue;
    std::vector<float> inp, added, gain, shift, weight, bias, out;
    std::vector<int> positions;

    Case(const Shape& shape, bool with_norm, DecodeEpilogue with)
        : s(shape),
          norm(with_norm),
          epilogue(with),
          inp(norm ? random_values<float>(size_t(s.B) * s.C, 1) : random_values<Real>(size_t(s.B) * s.C, 1)),
          added(random_values<float>(size_t(s.B) * s.OC, 2)),
          gain(random_values<Real>(s.C, 3)),
          shift(random_values<Real>(s.C, 4)),
          weight(random_values<Real>(size_t(s.OC) * s.C, 5)),
          bias(random_values<Real>(s.OC, 6)),
          positions(random_integers(s.B, 7, T)) {
        for (int b = 0; b < s.B; b++) {
            const std::vector<double> x = input_of(b);
            for (int o = 0; o < s.OC; o++) {
                double sum = bias[o];
                for (int c = 0; c < s.C; c++) sum += x[c] * weight[size_t(o) * s.C + c];
                if (epilogue == DecodeEpilogue::add) sum += added[size_t(b) * s.OC + o];
                if (epilogue == DecodeEpilogue::gelu)
                    sum *= 0.5 * (1 + std::tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
                out.push_back(float(sum));
            }
        }
    }

    std::vector<double> input_of(int b) const {
        std::vector<double> x(inp.begin() + size_t(b) * s.C, inp.begin() + size_t(b + 1) * s.C);
        if (!norm) return x;
        double mean = 0, variance = 0;
        for (double v : x) mean += v / s.C;
        for (double v : x) variance += (v - mean) * (v - mean) / s.C;
        for (int c = 0; c < s.C; c++)
            x[c] = (x[c] - mean) / std::sqrt(variance + 1e-5) * double(gain[c]) + double(shift[c]);
        return x;
    }

    // The rows that were written; all others must still be NaN.
    std::vector<float> written(const std::vector<float>& rows) const {
        std::vector<float> result;
        for (int b = 0; b < s.B; b++)
            for (int t = 0; t < T; t++)
                for (int o = 0; o < s.OC; o++) {
                    const float v = rows[(size_t(b) * T + t) * s.OC + o];
                    if (t == positions[b])
                        result.push_back(v);
                    else
                        EXPECT_TRUE(std::isnan(v)) << "text " << b << " row " << t;
                }
        return result;
    }

    // With arrays on the host or on a device; the epilogue writes to `stream` if it adds, else to `rows`.
    DecodeLinear<Real> layer(Real* rows, float* stream, const Real* x, const Real* w) const {
        return {.out = rows,
                .stream = stream,
                .inp = norm ? nullptr : x,
                .weight = w,
                .text_stride = size_t(T) * s.OC,
                .num_texts = s.B,
                .C = s.C,
                .OC = s.OC,
                .epilogue = epilogue};
    }
};

template <class Real, class Check>
static void for_each_case(Check check) {
    for (const Shape& s : shapes)
        for (DecodeEpilogue e : {DecodeEpilogue::store, DecodeEpilogue::gelu, DecodeEpilogue::add}) {
            SCOPED_TRACE(format_string("B %d C %d OC %d epilogue %d", s.B, s.C, s.OC, int(e)));
            check(Case<Real>(s, e == DecodeEpilogue::gelu, e));
        }
}

template <class Real>
struct DecodeLinearOf : testing::Test {};
TYPED_TEST_SUITE(DecodeLinearOf, RealTypes);

TYPED_TEST(DecodeLinearOf, MatchesDouble) {
    using Real = TypeParam;
    for_each_case<Real>([](const Case<Real>& c) {
        const auto check = [&](LaunchPad* pad, const auto& launch) {
            DeviceArray<Real> inp(pad, c.inp), weight(pad, c.weight), bias(pad, c.bias), gain(pad, c.gain),
                shift(pad, c.shift), rows(pad, size_t(c.s.B) * T * c.s.OC);
            DeviceArray<float> stream(pad, c.norm ? c.inp : c.added);
            DeviceArray<int> positions(pad, c.positions);
            DecodeLinear<Real> p = c.layer(rows, stream, inp, weight);
            p.gain = gain, p.shift = shift, p.bias = bias, p.positions = positions;
            launch(p);
            const bool add = c.epilogue == DecodeEpilogue::add;
            expect_close("out", add ? stream.values() : c.written(rows.values()), c.out,
                         add ? 1e-5 : (pad ? 1 : 2) * tolerance<Real>());  // the CPU rounds GELU's argument
        };
        for_cpu_and_each_version<Real>(decode_linear<Real>, decode_linear_versions<Real>(), check);
    });
}
