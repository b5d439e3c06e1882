// LayerNorm: the CPU versions against references in double (backward: against finite differences), every GPU
// version against the CPU version.
#include "llmc/layernorm.h"

#include <functional>

#include "tests/layer_test.h"

struct Shape {
    int N, C;
};
static const Shape shapes[] = {{1, 1}, {3, 5}, {7, 48}, {5, 129}, {33, 768}, {300, 17}, {600, 48}, {4, 4100}};

// Inputs that T represents, and the results of the CPU version in fp32.
template <class T>
struct ForwardCase {
    std::vector<float> inp, weight, bias, out, mean, rstd;
    ForwardCase(int N, int C)
        : inp(random_values<T>(size_t(N) * C, 1)),
          weight(random_values<T>(C, 2)),
          bias(random_values<T>(C, 3)),
          out(nans(size_t(N) * C)),
          mean(nans(N)),
          rstd(nans(N)) {
        layernorm_forward_cpu(out.data(), mean.data(), rstd.data(), inp.data(), weight.data(), bias.data(), N,
                              C);
    }
};

TEST(LayernormForward, CpuMatchesDouble) {
    for (auto [N, C] : shapes) {
        const ForwardCase<float> c(N, C);
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
        expect_close("mean", c.mean, mean, 1e-5);  // small against its terms, whose sum is rounded
        expect_close("rstd", c.rstd, rstd, 1e-6);
    }
}

template <class T>
struct Layernorm : testing::Test {};
TYPED_TEST_SUITE(Layernorm, RealTypes);

TYPED_TEST(Layernorm, ForwardGpuMatchesCpu) {
    using T = TypeParam;
    for (auto [N, C] : shapes) {
        const ForwardCase<T> c(N, C);
        SCOPED_TRACE(format_string("N %d C %d", N, C));
        auto check = [&, N = N, C = C](LaunchPad& pad, auto& version, int block) {
            DeviceArray<T> inp(pad, c.inp), weight(pad, c.weight), bias(pad, c.bias);
            DeviceArray<T> out(pad, c.out.size());
            DeviceArray<float> mean(pad, N), rstd(pad, N);
            version.launch(pad, out, mean, rstd, inp, weight, bias, N, C, block);
            expect_close("out", out.values(), c.out, tolerance<T>());
            expect_close("mean", mean.values(), c.mean);
            expect_close("rstd", rstd.values(), c.rstd);
        };
        for_each_version<T>(layernorm_forward_versions<T>(), check);
    }
}

// mean over the elements of dout * layernorm(inp), in double.
static double loss(const std::vector<double>& inp, const std::vector<double>& weight,
                   const std::vector<double>& bias, const std::vector<float>& dout, int N, int C) {
    double sum = 0;
    for (int n = 0; n < N; n++) {
        const double* x = &inp[size_t(n) * C];
        double m = 0, v = 0;
        for (int i = 0; i < C; i++) m += x[i] / C;
        for (int i = 0; i < C; i++) v += (x[i] - m) * (x[i] - m) / C;
        for (int i = 0; i < C; i++)
            sum += dout[size_t(n) * C + i] * ((x[i] - m) / std::sqrt(v + 1e-5) * weight[i] + bias[i]);
    }
    return sum;
}

// What one is added to each element of `values` adds to the loss, plus `before`.
static std::vector<float> slopes(std::vector<double>& values, const std::vector<float>& before,
                                 const std::function<double()>& loss_now) {
    std::vector<float> result(before);
    for (size_t i = 0; i < values.size(); i++) {
        const double value = values[i], step = 1e-4;
        values[i] = value + step;
        const double up = loss_now();
        values[i] = value - step;
        result[i] += float((up - loss_now()) / (2 * step));
        values[i] = value;
    }
    return result;
}

template <class T>
struct BackwardCase {
    ForwardCase<T> forward;
    std::vector<float> dout, added, dweight, dbias;  // before: gradients are added to
    std::vector<float> dinp_after, dweight_after, dbias_after;
    BackwardCase(int N, int C)
        : forward(N, C),
          dout(random_values<T>(size_t(N) * C, 4)),
          added(random_values<T>(size_t(N) * C, 5)),
          dweight(random_values<T>(C, 6)),
          dbias(random_values<T>(C, 7)),
          dinp_after(added.size()),
          dweight_after(dweight),
          dbias_after(dbias) {
        layernorm_backward_cpu(dinp_after.data(), dweight_after.data(), dbias_after.data(), added.data(),
                               dout.data(), forward.inp.data(), forward.weight.data(), forward.mean.data(),
                               forward.rstd.data(), N, C);
    }
};

TEST(LayernormBackward, CpuMatchesFiniteDifferences) {
    for (auto [N, C] : {Shape{1, 7}, {3, 5}, {7, 48}, {130, 3}}) {
        SCOPED_TRACE(format_string("N %d C %d", N, C));
        const BackwardCase<float> c(N, C);
        const ForwardCase<float>& f = c.forward;
        std::vector<double> inp(f.inp.begin(), f.inp.end()), weight(f.weight.begin(), f.weight.end()),
            bias(f.bias.begin(), f.bias.end());
        auto loss_now = [&, N = N, C = C] { return loss(inp, weight, bias, c.dout, N, C); };
        expect_close("dinp", c.dinp_after, slopes(inp, c.added, loss_now), 1e-5);
        expect_close("dweight", c.dweight_after, slopes(weight, c.dweight, loss_now), 1e-5);
        expect_close("dbias", c.dbias_after, slopes(bias, c.dbias, loss_now), 1e-5);
    }
}

TYPED_TEST(Layernorm, BackwardGpuMatchesCpu) {
    using T = TypeParam;
    std::vector<Shape> all(std::begin(shapes), std::end(shapes));
    all.push_back({1070, 24});  // more rows than versions 2 and 3 take in a turn
    for (auto [N, C] : all) {
        const BackwardCase<T> c(N, C);
        const ForwardCase<T>& f = c.forward;
        SCOPED_TRACE(format_string("N %d C %d", N, C));
        auto check = [&, N = N, C = C](LaunchPad& pad, auto& version, int block) {
            DeviceArray<T> dout(pad, c.dout), inp(pad, f.inp), weight(pad, f.weight);
            DeviceArray<float> mean(pad, f.mean);
            DeviceArray<T> added(pad, c.added), dinp(pad, c.added.size());
            DeviceArray<T> dweight(pad, c.dweight), dbias(pad, c.dbias);
            DeviceArray<float> rstd(pad, f.rstd);
            DeviceArray<float> scratch(pad, layernorm_backward_scratch(&pad, N, C));
            pad.begin_group();  // the launcher must order its own kernels
            version.launch(pad, dinp, dweight, dbias, scratch, added, dout, inp, weight, mean, rstd, N, C,
                           block);
            pad.end_group();
            // one channel has no variance: rstd is 316 and multiplies the rounding of a difference that is
            // zero
            expect_close("dinp", dinp.values(), c.dinp_after, tolerance<T>(C == 1 ? 1e-3 : 1e-5));
            expect_close("dweight", dweight.values(), c.dweight_after, tolerance<T>());
            expect_close("dbias", dbias.values(), c.dbias_after, tolerance<T>());
        };
        for_each_version<T>(layernorm_backward_versions<T>(), check);
    }
}

// Addresses that rule out 16-byte accesses although C would allow them.
TYPED_TEST(Layernorm, UnalignedAddresses) {
    using T = TypeParam;
    const int N = 5, C = 12;
    const size_t n = size_t(N) * C;
    const BackwardCase<T> c(N, C);
    const ForwardCase<T>& f = c.forward;
    auto shifted = [](std::vector<float> values) {
        values.insert(values.begin(), 77.0f);
        return values;
    };
    for_each_version<T>(layernorm_forward_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
        DeviceArray<T> inp(pad, shifted(f.inp)), out(pad, n + 1);
        DeviceArray<float> mean(pad, N), rstd(pad, N);
        DeviceArray<T> weight(pad, f.weight), bias(pad, f.bias);
        version.launch(pad, out + 1, mean, rstd, inp + 1, weight, bias, N, C, block);
        const std::vector<float> got = out.values();
        EXPECT_TRUE(std::isnan(got[0]));
        expect_close("out", {got.begin() + 1, got.end()}, f.out, tolerance<T>());
    });
    for_each_version<T>(layernorm_backward_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
        DeviceArray<T> inp(pad, f.inp), dinp(pad, shifted(c.added));
        DeviceArray<float> mean(pad, f.mean), rstd(pad, f.rstd);
        DeviceArray<T> weight(pad, f.weight), dweight(pad, c.dweight), dbias(pad, c.dbias), dout(pad, c.dout);
        DeviceArray<float> scratch(pad, layernorm_backward_scratch(&pad, N, C));
        version.launch(pad, dinp + 1, dweight, dbias, scratch, dinp + 1, dout, inp, weight, mean, rstd, N, C,
                       block);
        const std::vector<float> got = dinp.values();
        EXPECT_EQ(got[0], 77.0f);
        expect_close("dinp", {got.begin() + 1, got.end()}, c.dinp_after, tolerance<T>());
        expect_close("dweight", dweight.values(), c.dweight_after, tolerance<T>());
    });
}

// Null is the same as zeros.
TYPED_TEST(Layernorm, BackwardWithNothingAdded) {
    using T = TypeParam;
    const int N = 7, C = 48;
    const BackwardCase<T> c(N, C);
    const ForwardCase<T>& f = c.forward;
    const std::vector<float> zeros(c.added.size());
    std::vector<float> want = nans(zeros.size()), got = want, dweight(C), dbias(C);
    layernorm_backward_cpu(want.data(), dweight.data(), dbias.data(), zeros.data(), c.dout.data(),
                           f.inp.data(), f.weight.data(), f.mean.data(), f.rstd.data(), N, C);
    layernorm_backward_cpu<float>(got.data(), dweight.data(), dbias.data(), nullptr, c.dout.data(),
                                  f.inp.data(), f.weight.data(), f.mean.data(), f.rstd.data(), N, C);
    EXPECT_EQ(got, want);
    for_each_version<T>(layernorm_backward_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
        DeviceArray<T> dinp(pad, want.size()), dy(pad, c.dout), x(pad, f.inp), w(pad, f.weight);
        DeviceArray<T> dw(pad, c.dweight), db(pad, c.dbias);
        DeviceArray<float> mean(pad, f.mean), rstd(pad, f.rstd);
        DeviceArray<float> scratch(pad, layernorm_backward_scratch(&pad, N, C));
        version.launch(pad, dinp, dw, db, scratch, nullptr, dy, x, w, mean, rstd, N, C, block);
        expect_close("dinp", dinp.values(), want, tolerance<T>());
    });
}

TYPED_TEST(Layernorm, TrainingFunctions) {
    using T = TypeParam;
    const int N = 9, C = 48;
    const BackwardCase<T> c(N, C);
    const ForwardCase<T>& f = c.forward;
    for (const auto& pad : test_pads()) {
        DeviceArray<T> inp(*pad, f.inp), out(*pad, f.out.size()), dinp(*pad, c.added), dout(*pad, c.dout);
        DeviceArray<T> weight(*pad, f.weight), bias(*pad, f.bias);
        DeviceArray<float> mean(*pad, N), rstd(*pad, N);
        DeviceArray<T> dweight(*pad, c.dweight), dbias(*pad, c.dbias);
        DeviceArray<float> scratch(*pad, layernorm_backward_scratch(pad.get(), N, C));
        layernorm_forward<T>(pad.get(), out, mean, rstd, inp, weight, bias, N, C);
        layernorm_backward<T>(pad.get(), dinp, dweight, dbias, scratch, dinp, dout, inp, weight, mean, rstd,
                              N, C);
        expect_close("out", out.values(), f.out, tolerance<T>());
        expect_close("dinp", dinp.values(), c.dinp_after, tolerance<T>());
        expect_close("dweight", dweight.values(), c.dweight_after, tolerance<T>());
        expect_close("dbias", dbias.values(), c.dbias_after, tolerance<T>());
    }
}

struct SlicedCase {
    int slices, N, C;
    bool has_bias;
};
// Few rows, and more than are read a second time for the gradients of weight and bias. Those with a bias, and
// rows that do not fit in registers, are finished first.
static const SlicedCase sliced_cases[] = {{2, 1, 8, false},    {3, 7, 48, false},    {5, 131, 136, false},
                                          {2, 600, 48, false}, {4, 1070, 24, false}, {1, 9, 48, false},
                                          {32, 33, 24, false}, {3, 5, 72, true},     {2, 3, 8216, false}};

// A product that was left in slices: the same bits as when it was finished first.
TYPED_TEST(Layernorm, BackwardFinishesProducts) {
    using T = TypeParam;
    for (auto [slices, N, C, has_bias] : sliced_cases) {
        SCOPED_TRACE(format_string("%d slices, N %d C %d", slices, N, C));
        auto version = layernorm_backward_versions<T>()[2];
        version.block_sizes = {int(blocks(std::min(C * sizeof(T) / 16, size_t(256)), 32) * 32)};
        const BackwardCase<T> c(N, C);
        const ForwardCase<T>& f = c.forward;
        const SlicedProduct<T> product(slices, N, C, has_bias);
        const bool on_the_way = slices > 1 && !has_bias && C < 4000;
        auto check = [&, N = N, C = C, has_bias = has_bias](LaunchPad& pad, auto& finished_first, int block) {
            DeviceArray<T> value(pad, product.value), inp(pad, f.inp), weight(pad, f.weight),
                added(pad, c.added), want(pad, value.size), want_dweight(pad, c.dweight),
                want_dbias(pad, c.dbias);
            DeviceArray<float> mean(pad, f.mean), rstd(pad, f.rstd);
            DeviceArray<float> scratch(pad, layernorm_backward_scratch(&pad, N, C));
            finished_first.launch(pad, want, want_dweight, want_dbias, scratch, added, value, inp, weight,
                                  mean, rstd, N, C, block);
            DeviceArray<T> unread(pad, value.size), bias(pad, product.bias), dweight(pad, c.dweight),
                dbias(pad, c.dbias);
            DeviceArray<float> partials(pad, product.partials);
            const PartialProduct<T> left = {product.slices == 1 ? value : unread, partials, product.slices,
                                            has_bias ? bias.data : nullptr};
            pad.begin_group();  // it must order its own kernels
            layernorm_backward<T>(&pad, added, dweight, dbias, scratch, added, left, inp, weight, mean, rstd,
                                  N, C);
            pad.end_group();
            expect_close("dinp", added.values(), want.values(), tolerance<T>());
            expect_close("dweight", dweight.values(), want_dweight.values(), tolerance<T>());
            expect_close("dbias", dbias.values(), want_dbias.values(), tolerance<T>());
            if (!on_the_way) return;  // finished first, by another version or block size
            EXPECT_EQ(added.values(), want.values());
            EXPECT_EQ(dweight.values(), want_dweight.values());
            EXPECT_EQ(dbias.values(), want_dbias.values());
        };
        for_each_version<T>(std::vector{version}, check);
    }
}
