// Shared by the tests of the linear layers: shapes, inputs, and results in double precision.
#pragma once
#include <span>

#include "llmc/layers/matmul.h"
#include "tests/layer_test.h"

struct Shape {
    int num_rows, C, OC;
};
// One element; odd sizes, which rule out vector loads; a little more than one tile of 64 or 128; exactly
// filled tiles; enough rows for split-K.
static const Shape shapes[] = {{1, 1, 1},     {17, 33, 48},   {300, 33, 48},   {1, 68, 132},
                               {65, 68, 132}, {300, 68, 132}, {512, 128, 128}, {1100, 33, 48}};
// The 16-bit types skip some of them.
static const Shape shapes16[] = {{1, 1, 1}, {17, 33, 48}, {65, 68, 132}, {300, 68, 132}, {1100, 33, 48}};

// Inputs, and the results in double precision. dbias starts from dbias_before; dweight_added is dweight
// accumulated onto dweight_before.
template <class Real>
struct MatmulCase {
    int num_rows, C, OC;
    std::vector<float> inp, weight, bias, dout, dweight_before, dbias_before;
    std::vector<float> out, dinp, dweight, dweight_added, dbias;
    explicit MatmulCase(const Shape& s)
        : num_rows(s.num_rows),
          C(s.C),
          OC(s.OC),
          inp(random_values<Real>(size_t(num_rows) * C, 1)),
          weight(random_values<Real>(size_t(OC) * C, 2)),
          bias(random_values<Real>(OC, 3)),
          dout(random_values<Real>(size_t(num_rows) * OC, 4)),
          dweight_before(random_values<Real>(size_t(OC) * C, 5)),
          dbias_before(random_values<Real>(OC, 6)),
          out(size_t(num_rows) * OC) {
        std::vector<double> x(inp.size()), w(weight.size()), b(dbias_before.begin(), dbias_before.end());
        for (size_t n = 0; n < size_t(num_rows); n++)
            for (size_t o = 0; o < size_t(OC); o++) {
                const double d = dout[n * OC + o];
                double sum = bias[o];
                for (size_t c = 0; c < size_t(C); c++) {
                    sum += double(inp[n * C + c]) * weight[o * C + c];
                    x[n * C + c] += d * weight[o * C + c];
                    w[o * C + c] += d * inp[n * C + c];
                }
                out[n * OC + o] = float(sum);
                b[o] += d;
            }
        dinp.assign(x.begin(), x.end());
        dweight.assign(w.begin(), w.end());
        for (size_t i = 0; i < w.size(); i++) dweight_added.push_back(float(w[i] + dweight_before[i]));
        dbias.assign(b.begin(), b.end());
    }
    std::vector<float> out_without_bias() const {
        std::vector<float> plain(out);
        for (size_t i = 0; i < plain.size(); i++) plain[i] -= bias[i % bias.size()];
        return plain;
    }
};

// A case's arrays on a device, or on the host (null); outputs start as NaN.
template <class Real>
struct MatmulArrays {
    const MatmulCase<Real>& c;
    DeviceArray<Real> inp, weight, bias, dout, out, dinp, dweight, dbias;
    MatmulArrays(LaunchPad* pad, const MatmulCase<Real>& the_case)
        : c(the_case),
          inp(pad, c.inp),
          weight(pad, c.weight),
          bias(pad, c.bias),
          dout(pad, c.dout),
          out(pad, c.out.size()),
          dinp(pad, c.dinp.size()),
          dweight(pad, c.dweight.size()),
          dbias(pad, c.dbias_before) {}
    MatmulForward<Real> forward(bool with_bias = true) const {
        return {.out = out,
                .inp = inp,
                .weight = weight,
                .bias = with_bias ? bias.data : nullptr,
                .num_rows = c.num_rows,
                .C = c.C,
                .OC = c.OC};
    }
    MatmulBackwardInput<Real> backward_input() const {
        return {.dinp = dinp, .dout = dout, .weight = weight, .num_rows = c.num_rows, .C = c.C, .OC = c.OC};
    }
    MatmulBackwardParameters<Real> backward_parameters(bool accumulate) const {
        return {.dweight = dweight,
                .dout = dout,
                .inp = inp,
                .num_rows = c.num_rows,
                .C = c.C,
                .OC = c.OC,
                .accumulate = accumulate};
    }
    // All of the backward pass, as training calls it.
    void backward() const {
        matmul_backward<Real>(dinp.pad, {.dinp = dinp,
                                         .dweight = dweight,
                                         .dbias = dbias,
                                         .dout = dout,
                                         .inp = inp,
                                         .weight = weight,
                                         .num_rows = c.num_rows,
                                         .C = c.C,
                                         .OC = c.OC,
                                         .accumulate = false});
    }
    void expect_out(double fp32 = 1e-5) const {
        expect_close("out", out.values(), c.out, tolerance<Real>(fp32));
    }
    void expect_dinp(double fp32 = 1e-5) const {
        expect_close("dinp", dinp.values(), c.dinp, tolerance<Real>(fp32));
    }
    void expect_dweight(double fp32 = 1e-5) const {
        expect_close("dweight", dweight.values(), c.dweight, tolerance<Real>(fp32));
    }
};

// Calls check(case) for each of the shapes.
template <class Real, class Check>
void for_shapes(std::span<const Shape> some, Check check) {
    for (const Shape& shape : some) {
        SCOPED_TRACE(format_string("%d rows, C %d, OC %d", shape.num_rows, shape.C, shape.OC));
        check(MatmulCase<Real>(shape));
    }
}

template <class Real, class Check>
void for_each_shape(Check check) {
    const bool is_fp32 = std::is_same_v<Real, float>;
    for_shapes<Real>(is_fp32 ? std::span<const Shape>(shapes) : std::span<const Shape>(shapes16), check);
}
