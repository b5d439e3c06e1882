// Matrix products: the CPU versions against products in double, every GPU version against those too.
#include "llmc/matmul.h"

#include "tests/layer_test.h"

struct Shape {
    int N, C, OC;
};
// Of one element; odd, so that nothing can be read four at a time; a little more than one tile of 64 or 128;
// filling tiles exactly. Rows enough to be cut into slices. (Equal C and OC share a pipeline, which takes
// long to compile.)
static const Shape shapes[] = {{1, 1, 1},     {17, 33, 48},   {300, 33, 48},  {1, 68, 132},
                               {65, 68, 132}, {300, 68, 132}, {512, 128, 128}};

// Inputs, and the results in double. dweight and dbias start from what is in them.
struct MatmulCase {
    std::vector<float> inp, weight, bias, dout, dweight_before, dbias_before;
    std::vector<float> out, dinp, dweight, dbias;
    MatmulCase(int N, int C, int OC)
        : inp(random_values(size_t(N) * C, 1)),
          weight(random_values(size_t(OC) * C, 2)),
          bias(random_values(OC, 3)),
          dout(random_values(size_t(N) * OC, 4)),
          dweight_before(random_values(size_t(OC) * C, 5)),
          dbias_before(random_values(OC, 6)),
          out(size_t(N) * OC) {
        std::vector<double> x(size_t(N) * C), w(dweight_before.begin(), dweight_before.end());
        std::vector<double> b(dbias_before.begin(), dbias_before.end());
        for (size_t n = 0; n < size_t(N); n++)
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
        dbias.assign(b.begin(), b.end());
    }
    std::vector<float> out_without_bias() const {
        std::vector<float> plain(out);
        for (size_t i = 0; i < plain.size(); i++) plain[i] -= bias[i % bias.size()];
        return plain;
    }
};

// Calls check(case, N, C, OC) for each shape.
template <class Check>
static void for_each_shape(Check check) {
    for (auto [N, C, OC] : shapes) {
        SCOPED_TRACE(format_string("N %d C %d OC %d", N, C, OC));
        check(MatmulCase(N, C, OC), N, C, OC);
    }
}

TEST(MatmulForward, CpuMatchesDouble) {
    for_each_shape([](const MatmulCase& c, int N, int C, int OC) {
        std::vector<float> out = nans(c.out.size());
        matmul_forward_cpu(out.data(), c.inp.data(), c.weight.data(), c.bias.data(), N, C, OC);
        expect_close("out", out, c.out, 1e-6);
        matmul_forward_cpu<float>(out.data(), c.inp.data(), c.weight.data(), nullptr, N, C, OC);
        expect_close("out without bias", out, c.out_without_bias(), 1e-6);
    });
}

TEST(MatmulBackward, CpuMatchesDouble) {
    for_each_shape([](const MatmulCase& c, int N, int C, int OC) {
        std::vector<float> dinp = nans(c.dinp.size()), dweight = c.dweight_before, dbias = c.dbias_before;
        matmul_backward<float>(nullptr, dinp.data(), dweight.data(), dbias.data(), nullptr, c.dout.data(),
                               c.inp.data(), c.weight.data(), N, C, OC);
        expect_close("dinp", dinp, c.dinp, 1e-6);
        expect_close("dweight", dweight, c.dweight, 1e-6);
        expect_close("dbias", dbias, c.dbias, 1e-6);
    });
}

// The shape of the trainer's larger layers, more than one stretch of K and several tiles of the output.
TEST(MatmulCpu, LargeMatchesDouble) {
    const MatmulCase c(270, 777, 390);
    std::vector<float> out = nans(c.out.size()), dinp = nans(c.dinp.size()), dweight = c.dweight_before;
    matmul_forward_cpu(out.data(), c.inp.data(), c.weight.data(), c.bias.data(), 270, 777, 390);
    matmul_dinp_cpu(dinp.data(), c.dout.data(), c.weight.data(), 270, 777, 390);
    matmul_dweight_cpu(dweight.data(), c.dout.data(), c.inp.data(), 270, 777, 390);
    expect_close("out", out, c.out, 1e-6);
    expect_close("dinp", dinp, c.dinp, 1e-6);
    expect_close("dweight", dweight, c.dweight, 1e-6);
}

TEST(MatmulForward, GpuMatchesDouble) {
    for_each_shape([](const MatmulCase& c, int N, int C, int OC) {
        for_each_version(matmul_forward_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<float> inp(pad, c.inp), weight(pad, c.weight), bias(pad, c.bias),
                out(pad, c.out.size());
            version.launch(pad, out, inp, weight, bias, N, C, OC, block);
            expect_close("out", out.values(), c.out);
        });
    });
}

TEST(MatmulDinp, GpuMatchesDouble) {
    for_each_shape([](const MatmulCase& c, int N, int C, int OC) {
        for_each_version(matmul_dinp_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<float> dout(pad, c.dout), weight(pad, c.weight), dinp(pad, c.dinp.size());
            version.launch(pad, dinp, dout, weight, N, C, OC, block);
            expect_close("dinp", dinp.values(), c.dinp);
        });
    });
}

TEST(MatmulDweight, GpuMatchesDouble) {
    for_each_shape([](const MatmulCase& c, int N, int C, int OC) {
        for_each_version(matmul_dweight_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<float> dout(pad, c.dout), inp(pad, c.inp), dweight(pad, c.dweight_before);
            DeviceArray<float> scratch(pad, matmul_backward_scratch(&pad, N, C, OC));
            version.launch(pad, dweight, scratch, dout, inp, N, C, OC, block);
            expect_close("dweight", dweight.values(), c.dweight);
        });
    });
}

TEST(MatmulDbias, GpuMatchesDouble) {
    for_each_shape([](const MatmulCase& c, int N, int C, int OC) {
        for_each_version(matmul_dbias_versions<float>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<float> dout(pad, c.dout), dbias(pad, c.dbias_before);
            DeviceArray<float> scratch(pad, matmul_backward_scratch(&pad, N, C, OC));
            version.launch(pad, dbias, scratch, dout, N, OC, block);
            expect_close("dbias", dbias.values(), c.dbias);
        });
    });
}

// The functions that training calls, with and without the optional tensors; twice, since gradients
// accumulate.
TEST(MatmulBackward, GpuMatchesDouble) {
    for_each_shape([](const MatmulCase& c, int N, int C, int OC) {
        for (const auto& pad : test_pads()) {
            DeviceArray<float> inp(*pad, c.inp), weight(*pad, c.weight), bias(*pad, c.bias),
                dout(*pad, c.dout);
            DeviceArray<float> out(*pad, c.out.size()), dinp(*pad, c.dinp.size());
            DeviceArray<float> dweight(*pad, c.dweight_before), dbias(*pad, c.dbias_before);
            DeviceArray<float> scratch(*pad, matmul_backward_scratch(pad.get(), N, C, OC));
            matmul_forward<float>(pad.get(), out, inp, weight, nullptr, N, C, OC);
            expect_close("out without bias", out.values(), c.out_without_bias());
            matmul_forward<float>(pad.get(), out, inp, weight, bias, N, C, OC);
            expect_close("out", out.values(), c.out);
            matmul_backward<float>(pad.get(), dinp, dweight, dbias, scratch, dout, inp, weight, N, C, OC);
            expect_close("dinp", dinp.values(), c.dinp);
            expect_close("dweight", dweight.values(), c.dweight);
            expect_close("dbias", dbias.values(), c.dbias);
            matmul_backward<float>(pad.get(), nullptr, dweight, nullptr, scratch, dout, inp, weight, N, C,
                                   OC);
            std::vector<float> twice(c.dweight);
            for (size_t i = 0; i < twice.size(); i++) twice[i] += c.dweight[i] - c.dweight_before[i];
            expect_close("dweight after two calls", dweight.values(), twice);
            expect_close("dbias, not asked for", dbias.values(), c.dbias);
        }
    });
}
