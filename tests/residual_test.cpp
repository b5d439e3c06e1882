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

template <class T>
struct Residual : testing::Test {};
TYPED_TEST_SUITE(Residual, RealTypes);

// One rounding on either side: the sums are equal.
TYPED_TEST(Residual, Adds) {
    using T = TypeParam;
    for (size_t n : sizes) {
        SCOPED_TRACE(format_string("n %zu", n));
        const std::vector<float> a = random_values<T>(n, 1), b = random_values<T>(n, 2),
                                 want = rounded<T>(sum_of(a, b));
        std::vector<T> out(n, T(NAN));
        residual_forward_cpu<T>(out.data(), from_floats<T>(a).data(), from_floats<T>(b).data(), n);
        EXPECT_EQ(to_floats(out), want);
        for_each_version<T>(residual_forward_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<T> inp1(pad, a), inp2(pad, b), result(pad, n + 1);
            version.launch(pad, result, inp1, inp2, n, block);
            std::vector<float> got = result.values();
            EXPECT_TRUE(std::isnan(got.back())) << "wrote past the end";
            got.pop_back();
            EXPECT_EQ(got, want);
            version.launch(pad, inp1, inp1, inp2, n, block);
            EXPECT_EQ(inp1.values(), want) << "in place of inp1";
        });
    }
}

struct Shape {
    int N, C;
};
static const Shape shapes[] = {{1, 1}, {3, 5}, {7, 48}, {5, 129}, {33, 768}, {300, 17}, {4, 4100}};

// Inputs that T represents, and the two layers in turn in fp32; between them the sum is rounded to T.
template <class T>
struct FusedCase {
    std::vector<float> inp1, inp2, weight, bias, residual, normed, mean, rstd;
    FusedCase(int N, int C)
        : inp1(random_values<T>(size_t(N) * C, 1)),
          inp2(random_values<T>(size_t(N) * C, 2)),
          weight(random_values<T>(C, 3)),
          bias(random_values<T>(C, 4)),
          residual(rounded<T>(sum_of(inp1, inp2))),
          normed(nans(residual.size())),
          mean(nans(N)),
          rstd(nans(N)) {
        layernorm_forward<float>(nullptr, normed.data(), mean.data(), rstd.data(), residual.data(),
                                 weight.data(), bias.data(), N, C);
    }
};

TYPED_TEST(Residual, FusedCpuIsTheTwoInTurn) {
    using T = TypeParam;
    for (auto [N, C] : shapes) {
        SCOPED_TRACE(format_string("N %d C %d", N, C));
        const FusedCase<T> c(N, C);
        std::vector<T> residual(c.residual.size(), T(NAN)), normed(residual);
        std::vector<float> mean = nans(N), rstd = nans(N);
        fused_residual_layernorm_forward_cpu<T>(residual.data(), normed.data(), mean.data(), rstd.data(),
                                                from_floats<T>(c.inp1).data(), from_floats<T>(c.inp2).data(),
                                                from_floats<T>(c.weight).data(),
                                                from_floats<T>(c.bias).data(), N, C);
        EXPECT_EQ(to_floats(residual), c.residual);
        expect_close("normed", to_floats(normed), c.normed, tolerance<T>(1e-6));
        expect_close("mean", mean, c.mean, 1e-6);
        expect_close("rstd", rstd, c.rstd, 1e-6);
    }
}

TYPED_TEST(Residual, FusedGpuMatchesCpu) {
    using T = TypeParam;
    for (auto [N, C] : shapes) {
        SCOPED_TRACE(format_string("N %d C %d", N, C));
        const FusedCase<T> c(N, C);
        auto check = [&, N = N, C = C](LaunchPad& pad, auto& version, int block) {
            DeviceArray<T> inp1(pad, c.inp1), inp2(pad, c.inp2), weight(pad, c.weight), bias(pad, c.bias);
            DeviceArray<T> residual(pad, c.residual.size()), normed(pad, c.normed.size());
            DeviceArray<float> mean(pad, N), rstd(pad, N);
            pad.begin_group();  // the launcher must order its own kernels
            version.launch(pad, residual, normed, mean, rstd, inp1, inp2, weight, bias, N, C, block);
            pad.end_group();
            EXPECT_EQ(residual.values(), c.residual);
            expect_close("normed", normed.values(), c.normed, tolerance<T>());
            expect_close("mean", mean.values(), c.mean);
            expect_close("rstd", rstd.values(), c.rstd);
        };
        for_each_version<T>(fused_residual_layernorm_forward_versions<T>(), check);
    }
}

// Addresses that rule out accesses of 16 bytes, and (4 elements past aligned memory) those of eight elements.
TYPED_TEST(Residual, UnalignedAddresses) {
    using T = TypeParam;
    const int N = 5, C = 16;
    const FusedCase<T> c(N, C);
    for (size_t shift : {1, 4}) {
        std::vector<float> shifted(shift, 77.0f);
        shifted.insert(shifted.end(), c.inp1.begin(), c.inp1.end());
        auto check_fused = [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<T> inp1(pad, shifted), inp2(pad, c.inp2), weight(pad, c.weight), bias(pad, c.bias);
            DeviceArray<T> residual(pad, c.residual.size()), normed(pad, c.normed.size());
            DeviceArray<float> mean(pad, N), rstd(pad, N);
            version.launch(pad, residual, normed, mean, rstd, inp1 + shift, inp2, weight, bias, N, C, block);
            EXPECT_EQ(residual.values(), c.residual);
            expect_close("normed", normed.values(), c.normed, tolerance<T>());
        };
        for_each_version<T>(fused_residual_layernorm_forward_versions<T>(), check_fused);
        for_each_version<T>(residual_forward_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<T> inp1(pad, shifted), inp2(pad, c.inp2), sum(pad, c.residual.size());
            version.launch(pad, sum, inp1 + shift, inp2, sum.size, block);
            EXPECT_EQ(sum.values(), c.residual);
        });
    }
}

TYPED_TEST(Residual, TrainingFunctions) {
    using T = TypeParam;
    const int N = 9, C = 48;
    const FusedCase<T> c(N, C);
    for (const auto& pad : test_pads()) {
        DeviceArray<T> inp1(*pad, c.inp1), inp2(*pad, c.inp2), weight(*pad, c.weight), bias(*pad, c.bias);
        DeviceArray<T> sum(*pad, c.residual.size()), normed(*pad, c.normed.size());
        DeviceArray<float> mean(*pad, N), rstd(*pad, N);
        residual_forward<T>(pad.get(), sum, inp1, inp2, sum.size);
        EXPECT_EQ(sum.values(), c.residual);
        fused_residual_layernorm_forward<T>(pad.get(), inp1, normed, mean, rstd, inp1, inp2, weight, bias, N,
                                            C);
        EXPECT_EQ(inp1.values(), c.residual) << "in place of inp1";
        expect_close("normed", normed.values(), c.normed, tolerance<T>());
    }
}

struct SlicedCase {
    int slices, N, C;
    bool has_bias;
};
// The last one's rows do not fit in the registers of small subgroups: they are finished first.
static const SlicedCase sliced_cases[] = {{2, 1, 8, true},   {3, 7, 48, false}, {5, 33, 136, true},
                                          {1, 9, 48, false}, {32, 3, 24, true}, {2, 5, 129, false},
                                          {2, 3, 4104, true}};

// A product that was left in slices: the same bits as when it was finished first.
TYPED_TEST(Residual, FusedFinishesProducts) {
    using T = TypeParam;
    auto version = fused_residual_layernorm_forward_versions<T>()[1];
    version.block_sizes = {128};
    for (auto [slices, N, C, has_bias] : sliced_cases) {
        SCOPED_TRACE(format_string("%d slices, N %d C %d", slices, N, C));
        const FusedCase<T> c(N, C);
        const SlicedProduct<T> product(slices, N, C, has_bias);
        auto check = [&, N = N, C = C, has_bias = has_bias](LaunchPad& pad, auto& finished_first, int block) {
            DeviceArray<T> inp1(pad, c.inp1), weight(pad, c.weight), bias(pad, c.bias),
                value(pad, product.value), want(pad, value.size), want_normed(pad, value.size);
            DeviceArray<float> want_mean(pad, N), want_rstd(pad, N);
            finished_first.launch(pad, want, want_normed, want_mean, want_rstd, inp1, value, weight, bias, N,
                                  C, block);
            DeviceArray<T> product_bias(pad, product.bias), unread(pad, value.size), normed(pad, value.size);
            DeviceArray<float> partials(pad, product.partials), mean(pad, N), rstd(pad, N);
            const PartialProduct<T> left = {product.slices == 1 ? value : unread, partials, product.slices,
                                            has_bias ? product_bias.data : nullptr};
            fused_residual_layernorm_forward<T>(&pad, inp1, normed, mean, rstd, inp1, left, weight, bias, N,
                                                C);
            EXPECT_EQ(inp1.values(), want.values()) << "in place of inp1";
            expect_close("normed", normed.values(), want_normed.values(), tolerance<T>());
            // software devices normalize by another version what they do not finish on the way
            if (pad.device().type == DeviceType::software && (product.slices == 1 || C > 2000)) return;
            EXPECT_EQ(normed.values(), want_normed.values());
            EXPECT_EQ(mean.values(), want_mean.values());
            EXPECT_EQ(rstd.values(), want_rstd.values());
        };
        for_each_version<T>(std::vector{version}, check);
    }
}
