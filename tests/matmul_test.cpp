// Matrix products: the CPU versions against products in double, every GPU version against those too.
#include "llmc/matmul.h"

#include <omp.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <span>

#include "llmc/gelu.h"
#include "llmc/matmul_matrix.h"
#include "llmc/transpose.h"
#include "tests/layer_test.h"
#include "tests/run_program.h"
#include "tests/simd_levels.h"

struct Shape {
    int N, C, OC;
};
// Of one element; odd, so that nothing can be read four at a time; a little more than one tile of 64 or 128;
// filling tiles exactly. Rows enough to be cut into slices. (Equal C and OC share a pipeline, which takes
// long to compile.)
static const Shape shapes[] = {{1, 1, 1},     {17, 33, 48},   {300, 33, 48},   {1, 68, 132},
                               {65, 68, 132}, {300, 68, 132}, {512, 128, 128}, {1100, 33, 48}};
// The 16-bit types do without some of them.
static const Shape shapes16[] = {{1, 1, 1}, {17, 33, 48}, {65, 68, 132}, {300, 68, 132}, {1100, 33, 48}};
// For matrix cores, multiples of 8: in the middle of a fragment and of a tile, tiles that are filled, one
// row, a little more than a tile. A software device takes minutes to compile their pipelines: the first two
// alone.
static const Shape matrix_shapes[] = {{300, 72, 136}, {512, 128, 256}, {1, 8, 16}, {513, 128, 264}};
static const size_t SOFTWARE_MATRIX_SHAPES = 2;

// Inputs, and the results in double. dbias starts from what is in it; so does dweight where it is added to,
// which gives dweight_added.
template <class T>
struct MatmulCase {
    std::vector<float> inp, weight, bias, dout, dweight_before, dbias_before;
    std::vector<float> out, dinp, dweight, dweight_added, dbias;
    MatmulCase(int N, int C, int OC)
        : inp(random_values<T>(size_t(N) * C, 1)),
          weight(random_values<T>(size_t(OC) * C, 2)),
          bias(random_values<T>(OC, 3)),
          dout(random_values<T>(size_t(N) * OC, 4)),
          dweight_before(random_values<T>(size_t(OC) * C, 5)),
          dbias_before(random_values<T>(OC, 6)),
          out(size_t(N) * OC) {
        std::vector<double> x(size_t(N) * C), w(size_t(OC) * C), b(dbias_before.begin(), dbias_before.end());
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
        for (size_t i = 0; i < w.size(); i++) dweight_added.push_back(float(w[i] + dweight_before[i]));
        dbias.assign(b.begin(), b.end());
    }
    std::vector<float> out_without_bias() const {
        std::vector<float> plain(out);
        for (size_t i = 0; i < plain.size(); i++) plain[i] -= bias[i % bias.size()];
        return plain;
    }
};

// Calls check(case, N, C, OC) for each of the shapes.
template <class T, class Check>
static void for_shapes(std::span<const Shape> some, Check check) {
    for (auto [N, C, OC] : some) {
        SCOPED_TRACE(format_string("N %d C %d OC %d", N, C, OC));
        check(MatmulCase<T>(N, C, OC), N, C, OC);
    }
}

template <class T, class Check>
static void for_each_shape(Check check) {
    const bool is_fp32 = std::is_same_v<T, float>;
    for_shapes<T>(is_fp32 ? std::span<const Shape>(shapes) : std::span<const Shape>(shapes16), check);
}

static bool is_software(const LaunchPad& pad) { return pad.device().type == DeviceType::software; }

// The shapes for the device's matrix cores; none where it has no such cores for T.
template <class T>
static std::span<const Shape> shapes_for_matrix_cores() {
    if (std::is_same_v<T, float> || test_pads().empty()) return {};
    const LaunchPad& pad = *test_pads()[0];
    if (!(std::is_same_v<T, bf16> ? pad.limits().bf16_matrix : pad.limits().fp16_matrix)) return {};
    const std::span<const Shape> all = matrix_shapes;
    return is_software(pad) ? all.first(SOFTWARE_MATRIX_SHAPES) : all;
}

// A table's versions for matrix cores (number 5), or the others. On a software device the former are tried
// with the smallest tiles and, at the first shape, with the largest where both factors' layouts are covered;
// the functions that train take those of two teams there.
template <class Versions>
static Versions matrix_versions(Versions versions, int N) {
    std::erase_if(versions, [](const auto& version) { return !strchr(version.name, '5'); });
    for (auto& version : versions)
        if (is_software(*test_pads()[0])) {
            version.block_sizes = {64};
            if (N == matrix_shapes[0].N && !strstr(version.name, "dinp")) version.block_sizes.push_back(256);
        }
    return versions;
}
template <class Versions>
static Versions other_versions(Versions versions) {
    std::erase_if(versions, [](const auto& version) { return strchr(version.name, '5'); });
    return versions;
}

template <class T>
struct Matmul : testing::Test {};
TYPED_TEST_SUITE(Matmul, RealTypes);

TYPED_TEST(Matmul, ForwardCpuMatchesDouble) {
    using T = TypeParam;
    for_each_shape<T>([](const MatmulCase<T>& c, int N, int C, int OC) {
        const std::vector<T> inp = from_floats<T>(c.inp), weight = from_floats<T>(c.weight),
                             bias = from_floats<T>(c.bias);
        for_each_simd_level([&] {
            std::vector<T> out = from_floats<T>(nans(c.out.size()));
            matmul_forward_cpu(out.data(), inp.data(), weight.data(), bias.data(), N, C, OC);
            expect_close("out", to_floats(out), c.out, tolerance<T>(1e-6));
            matmul_forward_cpu<T>(out.data(), inp.data(), weight.data(), nullptr, N, C, OC);
            expect_close("out without bias", to_floats(out), c.out_without_bias(), tolerance<T>(1e-6));
        });
    });
}

// Both functions of the backward pass, as training calls them; dinp may be null.
template <class T>
static void matmul_backward(LaunchPad* pad, T* dinp, T* dweight, T* dbias, const T* dout, const T* inp,
                            const T* weight, int N, int C, int OC, bool accumulate, const T* pre = nullptr) {
    std::optional<DeviceArray<float>> scratch, dweight_scratch;
    if (pad) {
        scratch.emplace(*pad, matmul_dinp_scratch<T>(pad, N, C, OC) + 1);
        dweight_scratch.emplace(*pad, matmul_dweight_scratch<T>(pad, N, C, OC) + 1);
    }
    const SideBySide group(pad);
    if (dinp) matmul_backward_input<T>(pad, dinp, pad ? scratch->data : nullptr, dout, weight, N, C, OC, pre);
    matmul_backward_parameters<T>(pad, dweight, dbias, pad ? dweight_scratch->data : nullptr, dout, inp, N, C,
                                  OC, accumulate);
}

TYPED_TEST(Matmul, BackwardCpuMatchesDouble) {
    using T = TypeParam;
    for_each_shape<T>([](const MatmulCase<T>& c, int N, int C, int OC) {
        const std::vector<T> inp = from_floats<T>(c.inp), weight = from_floats<T>(c.weight),
                             dout = from_floats<T>(c.dout);
        for_each_simd_level([&] {
            std::vector<T> dinp = from_floats<T>(nans(c.dinp.size())),
                           dweight = from_floats<T>(nans(c.dweight.size())),
                           dbias = from_floats<T>(c.dbias_before);
            matmul_backward<T>(nullptr, dinp.data(), dweight.data(), dbias.data(), dout.data(), inp.data(),
                               weight.data(), N, C, OC, false);
            expect_close("dinp", to_floats(dinp), c.dinp, tolerance<T>(1e-6));
            expect_close("dweight", to_floats(dweight), c.dweight, tolerance<T>(1e-6));
            expect_close("dbias", to_floats(dbias), c.dbias, tolerance<T>(1e-6));
            dweight = from_floats<T>(c.dweight_before);
            matmul_backward<T>(nullptr, nullptr, dweight.data(), nullptr, dout.data(), inp.data(),
                               weight.data(), N, C, OC, true);
            expect_close("dweight, added to", to_floats(dweight), c.dweight_added, tolerance<T>(1e-6));
        });
    });
}

// A few rows, as when text is generated, and the next number, which takes another way.
TYPED_TEST(Matmul, FewRowsMatchDoubleOnTheCpu) {
    using T = TypeParam;
    for (int N : {1, 2, 3, 4, 5}) {
        const MatmulCase<T> c(N, 100, 77);
        SCOPED_TRACE(format_string("N %d", N));
        std::vector<T> out = from_floats<T>(nans(c.out.size()));
        matmul_forward_cpu(out.data(), from_floats<T>(c.inp).data(), from_floats<T>(c.weight).data(),
                           from_floats<T>(c.bias).data(), N, 100, 77);
        expect_close("out", to_floats(out), c.out, tolerance<T>(1e-6));
        matmul_forward_cpu<T>(out.data(), from_floats<T>(c.inp).data(), from_floats<T>(c.weight).data(),
                              nullptr, N, 100, 77);
        expect_close("out without bias", to_floats(out), c.out_without_bias(), tolerance<T>(1e-6));
    }
}

// The shape of the trainer's larger layers, more than one stretch of K and several tiles of the output.
template <class T>
static void check_large() {
    const MatmulCase<T> c(270, 1777, 390);
    const std::vector<T> inp = from_floats<T>(c.inp), weight = from_floats<T>(c.weight),
                         bias = from_floats<T>(c.bias), dout = from_floats<T>(c.dout);
    for_each_simd_level([&] {
        std::vector<T> out = from_floats<T>(nans(c.out.size())), dinp = from_floats<T>(nans(c.dinp.size())),
                       dweight = from_floats<T>(nans(c.dweight.size())),
                       added = from_floats<T>(c.dweight_before);
        matmul_forward_cpu(out.data(), inp.data(), weight.data(), bias.data(), 270, 1777, 390);
        matmul_dinp_cpu(dinp.data(), dout.data(), weight.data(), 270, 1777, 390);
        matmul_dweight_cpu(dweight.data(), dout.data(), inp.data(), 270, 1777, 390, false);
        matmul_dweight_cpu(added.data(), dout.data(), inp.data(), 270, 1777, 390, true);
        expect_close("out", to_floats(out), c.out, tolerance<T>(1e-6));
        expect_close("dinp", to_floats(dinp), c.dinp, tolerance<T>(1e-6));
        expect_close("dweight", to_floats(dweight), c.dweight, tolerance<T>(1e-6));
        expect_close("dweight, added to", to_floats(added), c.dweight_added, tolerance<T>(1e-6));
    });
}
TEST(MatmulCpu, LargeMatchesDouble) { check_large<float>(); }
TEST(MatmulCpu, LargeMatchesDoubleInBf16) { check_large<bf16>(); }

// One, two, three and many threads give the same bits: the sums' order does not depend on the tiles.
template <class T>
static void check_threads(int N, int C, int OC) {
    const MatmulCase<T> c(N, C, OC);
    const std::vector<T> inp = from_floats<T>(c.inp), weight = from_floats<T>(c.weight),
                         dout = from_floats<T>(c.dout);
    const int threads = omp_get_max_threads();
    std::vector<std::vector<float>> first;
    for (int n : {1, 2, 3, 16}) {
        omp_set_num_threads(n);
        std::vector<T> out = from_floats<T>(nans(c.out.size())), dinp = from_floats<T>(nans(c.dinp.size())),
                       dweight = from_floats<T>(nans(c.dweight.size())),
                       dbias = from_floats<T>(c.dbias_before);
        matmul_forward_cpu<T>(out.data(), inp.data(), weight.data(), nullptr, N, C, OC);
        matmul_backward<T>(nullptr, dinp.data(), dweight.data(), dbias.data(), dout.data(), inp.data(),
                           weight.data(), N, C, OC, false);
        const std::vector<std::vector<float>> got = {to_floats(out), to_floats(dinp), to_floats(dweight),
                                                     to_floats(dbias)};
        if (first.empty()) first = got;
        EXPECT_EQ(got, first) << n << " threads";
    }
    omp_set_num_threads(threads);
}
TEST(MatmulCpu, ThreadsDoNotChangeResults) {
    check_threads<float>(130, 801, 390);
    for_each_simd_level([] { check_threads<bf16>(130, 801, 390); });
    check_threads<float>(1, 40, 77);
}

// What is not a number or infinite stays so, and touches no other row or column.
TYPED_TEST(Matmul, NanAndInfinityPassThroughOnTheCpu) {
    using T = TypeParam;
    const int N = 30, C = 70, OC = 50;
    const float infinity = std::numeric_limits<float>::infinity();
    std::vector<T> inp(N * C, T(1.0f)), weight(OC * C, T(1.0f)), out(N * OC);
    inp[3 * C + 5] = T(std::numeric_limits<float>::quiet_NaN());
    inp[7 * C + 6] = T(infinity);
    weight[9 * C + 69] = T(-infinity);
    for_each_simd_level([&] {
        matmul_forward_cpu<T>(out.data(), inp.data(), weight.data(), nullptr, N, C, OC);
        for (int n = 0; n < N; n++)
            for (int o = 0; o < OC; o++) {
                const float got = float(out[n * OC + o]);
                if (n == 3 || (n == 7 && o == 9))  // infinity minus infinity
                    EXPECT_TRUE(std::isnan(got)) << n << " " << o;
                else
                    EXPECT_EQ(got, n == 7 ? infinity : o == 9 ? -infinity : float(C)) << n << " " << o;
            }
    });
}

// Panels of operands are kept from product to product: what an earlier one left there stays out of the next,
// whose rows, columns and K fill no panel.
TYPED_TEST(Matmul, NanDoesNotOutliveItsProductOnTheCpu) {
    using T = TypeParam;
    const int few = 64, many = 800, N = 37, C = 41, OC = 43;
    const std::vector<T> nan(size_t(few) * many, T(std::numeric_limits<float>::quiet_NaN()));
    std::vector<T> ignored(nan.size());
    const MatmulCase<T> c(N, C, OC);
    const std::vector<T> inp = from_floats<T>(c.inp), weight = from_floats<T>(c.weight),
                         dout = from_floats<T>(c.dout);
    for_each_simd_level([&] {
        auto leave_nan = [&] {
            matmul_forward_cpu<T>(ignored.data(), nan.data(), nan.data(), nullptr, few, many, few);
            matmul_dweight_cpu<T>(ignored.data(), nan.data(), nan.data(), many, few, few, false);
        };
        std::vector<T> out(c.out.size()), dinp(c.dinp.size()), dweight(c.dweight.size());
        leave_nan();
        matmul_forward_cpu<T>(out.data(), inp.data(), weight.data(), nullptr, N, C, OC);
        leave_nan();
        matmul_dinp_cpu(dinp.data(), dout.data(), weight.data(), N, C, OC);
        leave_nan();
        matmul_dweight_cpu(dweight.data(), dout.data(), inp.data(), N, C, OC, false);
        expect_close("out", to_floats(out), c.out_without_bias(), tolerance<T>(1e-6));
        expect_close("dinp", to_floats(dinp), c.dinp, tolerance<T>(1e-6));
        expect_close("dweight", to_floats(dweight), c.dweight, tolerance<T>(1e-6));
    });
}

// Products of bf16 are what AMX is for; where it is emulated it can be counted.
TEST(MatmulCpu, Bf16RunsOnAmx) {
    if (!AmxEmulator::is_possible()) GTEST_SKIP() << "this CPU has AMX, or cannot emulate it";
    const AmxEmulator emulator;
    choose_simd_level(SIMD_AMX);
    const int N = 64, C = 128, OC = 96;
    const long before = AmxEmulator::count();
    std::vector<float> x(N * C), w(OC * C), y(N * OC);
    matmul_forward_cpu<float>(y.data(), x.data(), w.data(), nullptr, N, C, OC);
    EXPECT_EQ(AmxEmulator::count(), before);
    std::vector<bf16> x16(N * C), w16(OC * C), y16(N * OC);
    matmul_forward_cpu<bf16>(y16.data(), x16.data(), w16.data(), nullptr, N, C, OC);
    EXPECT_GE(AmxEmulator::count() - before, N / 16 * OC / 16 * C / 32);  // products of tiles alone
    choose_simd_level(best_simd_level());
}

template <class T, class Versions>
static void check_forward(const MatmulCase<T>& c, int N, int C, int OC, const Versions& versions) {
    for_each_version<T>(versions, [&](LaunchPad& pad, auto& version, int block) {
        DeviceArray<T> inp(pad, c.inp), weight(pad, c.weight), bias(pad, c.bias), out(pad, c.out.size());
        version.launch(pad, out, inp, weight, bias, N, C, OC, block);
        expect_close("out", out.values(), c.out, tolerance<T>());
    });
}

template <class T, class Versions>
static void check_dinp(const MatmulCase<T>& c, int N, int C, int OC, const Versions& versions) {
    for_each_version<T>(versions, [&](LaunchPad& pad, auto& version, int block) {
        DeviceArray<T> dout(pad, c.dout), weight(pad, c.weight), dinp(pad, c.dinp.size());
        version.launch(pad, dinp, dout, weight, N, C, OC, block);
        expect_close("dinp", dinp.values(), c.dinp, tolerance<T>());
    });
}

// Overwritten, where NaN was, and added to.
template <class T, class Versions>
static void check_dweight(const MatmulCase<T>& c, int N, int C, int OC, const Versions& versions) {
    for_each_version<T>(versions, [&](LaunchPad& pad, auto& version, int block) {
        DeviceArray<T> dout(pad, c.dout), inp(pad, c.inp), dweight(pad, c.dweight.size()),
            added(pad, c.dweight_before);
        DeviceArray<float> scratch(pad, matmul_dweight_scratch<T>(&pad, N, C, OC));
        version.launch(pad, dweight, scratch, dout, inp, N, C, OC, false, block);
        version.launch(pad, added, scratch, dout, inp, N, C, OC, true, block);
        expect_close("dweight", dweight.values(), c.dweight, tolerance<T>());
        expect_close("dweight, added to", added.values(), c.dweight_added, tolerance<T>());
    });
}

TYPED_TEST(Matmul, ForwardGpuMatchesDouble) {
    using T = TypeParam;
    for_each_shape<T>([](const MatmulCase<T>& c, int N, int C, int OC) {
        check_forward(c, N, C, OC, other_versions(matmul_forward_versions<T>()));
    });
}

TYPED_TEST(Matmul, DinpGpuMatchesDouble) {
    using T = TypeParam;
    for_each_shape<T>([](const MatmulCase<T>& c, int N, int C, int OC) {
        check_dinp(c, N, C, OC, other_versions(matmul_dinp_versions<T>()));
    });
}

TYPED_TEST(Matmul, DweightGpuMatchesDouble) {
    using T = TypeParam;
    for_each_shape<T>([](const MatmulCase<T>& c, int N, int C, int OC) {
        check_dweight(c, N, C, OC, other_versions(matmul_dweight_versions<T>()));
    });
}

TYPED_TEST(Matmul, DbiasGpuMatchesDouble) {
    using T = TypeParam;
    for_each_shape<T>([](const MatmulCase<T>& c, int N, int C, int OC) {
        for_each_version<T>(matmul_dbias_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            DeviceArray<T> dout(pad, c.dout), dbias(pad, c.dbias_before);
            DeviceArray<float> scratch(pad, matmul_dweight_scratch<T>(&pad, N, C, OC));
            version.launch(pad, dbias, scratch, dout, N, OC, block);
            expect_close("dbias", dbias.values(), c.dbias, tolerance<T>());
        });
    });
}

// The functions that training calls, with and without the optional tensors; twice, as in two micro-steps: the
// first overwrites dweight.
template <class T>
static void check_training_functions(const MatmulCase<T>& c, int N, int C, int OC) {
    for (const auto& pad : test_pads()) {
        if (!std::is_same_v<T, float> && pad != test_pads()[0]) continue;
        DeviceArray<T> inp(*pad, c.inp), weight(*pad, c.weight), bias(*pad, c.bias), dout(*pad, c.dout);
        DeviceArray<T> out(*pad, c.out.size()), dinp(*pad, c.dinp.size());
        DeviceArray<T> dweight(*pad, c.dweight.size()), dbias(*pad, c.dbias_before);
        matmul_forward<T>(pad.get(), out, inp, weight, nullptr, N, C, OC);
        expect_close("out without bias", out.values(), c.out_without_bias(), tolerance<T>());
        matmul_forward<T>(pad.get(), out, inp, weight, bias, N, C, OC);
        expect_close("out", out.values(), c.out, tolerance<T>());
        if (C % 8 == 0 && OC % 8 == 0) {
            DeviceArray<T> transposed(*pad, c.weight.size()), from_transposed(*pad, c.out.size());
            transpose<T>(pad.get(), transposed, weight, OC, C);
            matmul_forward<T>(pad.get(), from_transposed, inp, weight, bias, N, C, OC, nullptr, transposed);
            expect_close("out from transposed weights", from_transposed.values(), c.out, tolerance<T>());
        }
        matmul_backward<T>(pad.get(), dinp, dweight, dbias, dout, inp, weight, N, C, OC, false);
        expect_close("dinp", dinp.values(), c.dinp, tolerance<T>());
        expect_close("dweight", dweight.values(), c.dweight, tolerance<T>());
        expect_close("dbias", dbias.values(), c.dbias, tolerance<T>());
        matmul_backward<T>(pad.get(), nullptr, dweight, nullptr, dout, inp, weight, N, C, OC, true);
        std::vector<float> twice(c.dweight);
        for (float& w : twice) w *= 2;
        expect_close("dweight after two calls", dweight.values(), twice, 2 * tolerance<T>());
        expect_close("dbias, not asked for", dbias.values(), c.dbias, tolerance<T>());
    }
}

TYPED_TEST(Matmul, BackwardGpuMatchesDouble) {
    for_each_shape<TypeParam>(check_training_functions<TypeParam>);
}

// The product with GELU behind it, and the backward pass through it, against the layers one by one.
template <class T>
static void check_gelu(const MatmulCase<T>& c, int N, int C, int OC) {
    const size_t n = size_t(N) * OC, rows = size_t(N) * C;
    const std::vector<float> pre_inp = random_values<T>(rows, 9);
    std::vector<float> out(n), dinp(rows);
    gelu_forward_cpu(out.data(), c.out.data(), n);
    gelu_backward_cpu(dinp.data(), pre_inp.data(), c.dinp.data(), rows);
    auto check = [&](LaunchPad* pad, T* inp, T* weight, T* bias, T* dout, T* pre_of_inp, T* got_out,
                     T* got_pre, T* got_dinp, T* dweight) {
        matmul_gelu_forward(pad, got_out, got_pre, inp, weight, bias, N, C, OC);
        matmul_backward<T>(pad, got_dinp, dweight, nullptr, dout, inp, weight, N, C, OC, false, pre_of_inp);
    };
    std::vector<T> inp = from_floats<T>(c.inp), weight = from_floats<T>(c.weight),
                   bias = from_floats<T>(c.bias), dout = from_floats<T>(c.dout),
                   pre_of_inp = from_floats<T>(pre_inp), dweight = from_floats<T>(nans(c.dweight.size()));
    std::vector<T> got_out = from_floats<T>(nans(n)), got_pre = got_out,
                   got_dinp = from_floats<T>(nans(rows));
    check(nullptr, inp.data(), weight.data(), bias.data(), dout.data(), pre_of_inp.data(), got_out.data(),
          got_pre.data(), got_dinp.data(), dweight.data());
    expect_close("pre on the CPU", to_floats(got_pre), c.out, tolerance<T>());
    expect_close("out on the CPU", to_floats(got_out), out, 2 * tolerance<T>());
    expect_close("dinp on the CPU", to_floats(got_dinp), dinp, 2 * tolerance<T>());
    for (const auto& pad : test_pads()) {
        DeviceArray<T> x(*pad, c.inp), w(*pad, c.weight), b(*pad, c.bias), dy(*pad, c.dout),
            pre(*pad, pre_inp), y(*pad, n), y_pre(*pad, n), dx(*pad, rows), dw(*pad, c.dweight.size());
        check(pad.get(), x, w, b, dy, pre, y, y_pre, dx, dw);
        expect_close("pre", y_pre.values(), c.out, tolerance<T>());
        expect_close("out", y.values(), out, 2 * tolerance<T>());
        expect_close("dinp", dx.values(), dinp, 2 * tolerance<T>());
        expect_close("dweight", dw.values(), c.dweight, tolerance<T>());
        if (!std::is_same_v<T, float>) break;
    }
}

TYPED_TEST(Matmul, GeluMatchesTheLayers) { for_each_shape<TypeParam>(check_gelu<TypeParam>); }

// --- on matrix cores; dev/setup.sh newer-mesa unpacks a software device that has some, in fp16 ---

TYPED_TEST(Matmul, MatrixVersionsMatchDouble) {
    using T = TypeParam;
    const std::span<const Shape> some = shapes_for_matrix_cores<T>();
    if (some.empty()) GTEST_SKIP() << "no matrix cores for " << real_name<T>() << " here";
    for_shapes<T>(some, [](const MatmulCase<T>& c, int N, int C, int OC) {
        check_forward(c, N, C, OC, matrix_versions(matmul_forward_versions<T>(), N));
        check_dinp(c, N, C, OC, matrix_versions(matmul_dinp_versions<T>(), N));
        check_dweight(c, N, C, OC, matrix_versions(matmul_dweight_versions<T>(), N));
    });
}

TYPED_TEST(Matmul, MatrixTrainingFunctionsMatchDouble) {
    using T = TypeParam;
    const std::span<const Shape> some = shapes_for_matrix_cores<T>();
    if (some.empty()) GTEST_SKIP() << "no matrix cores for " << real_name<T>() << " here";
    for_shapes<T>(some, check_training_functions<T>);
    for_shapes<T>(is_software(*test_pads()[0]) ? some.first(1) : some, check_gelu<T>);
}

// A product that was left unfinished, when finish_product() has finished it: `want` within rounding, and to
// the bit the partial results' sum in their order, plus bias (empty: none).
template <class T>
static void check_partial(LaunchPad& pad, const PartialProduct<T>& left, const DeviceArray<T>& value,
                          const DeviceArray<float>& scratch, const std::vector<float>& bias,
                          const std::vector<float>& want, int N, int C) {
    ASSERT_GT(left.slices, 1) << "of so long sums";
    EXPECT_EQ(left.partials, scratch.data);
    EXPECT_EQ(left.bias != nullptr, !bias.empty());
    const std::vector<float> partials = scratch.values();
    finish_product(pad, left, N, C);
    std::vector<float> sums(want.size());
    for (size_t i = 0; i < sums.size(); i++) {
        for (int slice = 0; slice < left.slices; slice++) sums[i] += partials[slice * sums.size() + i];
        if (!bias.empty()) sums[i] += bias[i % C];
    }
    EXPECT_EQ(value.values(), rounded<T>(sums));
    expect_close("finished", value.values(), want, tolerance<T>());
}

TYPED_TEST(Matmul, MatrixProductsAreLeftUnfinished) {
    using T = TypeParam;
    if (shapes_for_matrix_cores<T>().empty())
        GTEST_SKIP() << "no matrix cores for " << real_name<T>() << " here";
    const int N = 65, K = 1024, C = 72;
    LaunchPad& pad = *test_pads()[0];
    const MatmulCase<T> to(N, K, C), from(N, C, K);  // whose forward, and whose dinp, sum over K
    {
        DeviceArray<T> inp(pad, to.inp), weight(pad, to.weight), bias(pad, to.bias), out(pad, to.out.size());
        DeviceArray<float> scratch(pad, matmul_forward_scratch<T>(&pad, N, K, C));
        for (const bool has_bias : {true, false}) {
            const auto left = matmul_forward_partial<T>(&pad, out, inp, weight,
                                                        has_bias ? bias.data : nullptr, N, K, C, scratch);
            check_partial<T>(pad, left, out, scratch, has_bias ? to.bias : std::vector<float>(),
                             has_bias ? to.out : to.out_without_bias(), N, C);
        }
        const auto finished = matmul_forward_partial<T>(&pad, out, inp, weight, bias, N, K, C, nullptr);
        EXPECT_EQ(finished.slices, 1) << "without scratch";
        expect_close("out", out.values(), to.out, tolerance<T>());
    }
    DeviceArray<T> dout(pad, from.dout), weight(pad, from.weight), dinp(pad, from.dinp.size());
    DeviceArray<float> scratch(pad, matmul_dinp_scratch<T>(&pad, N, C, K));
    const auto left = matmul_backward_input_partial<T>(&pad, dinp, scratch, dout, weight, N, C, K);
    check_partial<T>(pad, left, dinp, scratch, {}, from.dinp, N, C);
}

// Whole fragments may be converted by cutting bits off, which no tolerance of sums shows. One term each,
// exact in fp32: what is stored must be as near to it as the type allows.
TYPED_TEST(Matmul, MatrixResultsAreRoundedToNearest) {
    using T = TypeParam;
    if (shapes_for_matrix_cores<T>().empty())
        GTEST_SKIP() << "no matrix cores for " << real_name<T>() << " here";
    const int N = 40, C = 24, OC = 48;
    LaunchPad& pad = *test_pads()[0];
    std::vector<float> inp(size_t(N) * C, 0.0f);
    const std::vector<float> factors = random_values<T>(N, 1), weights = random_values<T>(size_t(OC) * C, 2);
    for (int n = 0; n < N; n++) inp[size_t(n) * C] = factors[n];
    DeviceArray<T> x(pad, inp), w(pad, weights), plain(pad, size_t(N) * OC), gelu(pad, plain.size),
        pre(pad, plain.size), zero(pad, std::vector<float>(OC, 0.0f));
    matmul_forward<T>(&pad, plain, x, w, zero, N, C, OC);
    matmul_gelu_forward<T>(&pad, gelu, pre, x, w, zero, N, C, OC);
    const std::vector<float> got = plain.values(), got_pre = pre.values();
    for (int n = 0; n < N; n++)
        for (int o = 0; o < OC; o++) {
            const float exact = factors[n] * weights[size_t(o) * C],
                        least = std::abs(float(T(exact)) - exact);
            const size_t i = size_t(n) * OC + o;
            ASSERT_LE(std::abs(got[i] - exact), least) << n << " " << o << " " << got[i] << " " << exact;
            ASSERT_LE(std::abs(got_pre[i] - exact), least) << n << " " << o;
        }
    // GELU of what was stored, by the layer itself: the same bits
    DeviceArray<T> again(pad, plain.size);
    gelu_forward<T>(&pad, again, pre, plain.size);
    EXPECT_EQ(again.values(), gelu.values());
}

// Which tiles are the quickest is measured once, kept on disk, and read again; a file that is damaged counts
// as none. Other tiles of as many teams give the same bits.
TYPED_TEST(Matmul, MatrixTilesAreMeasuredOnce) {
    using T = TypeParam;
    if (shapes_for_matrix_cores<T>().empty())
        GTEST_SKIP() << "no matrix cores for " << real_name<T>() << " here";
    const int N = 300, C = 72, OC = 136;
    const std::vector<MatrixProduct> products = {forward5_product(N, C, OC, EPILOGUE_BIAS)};
    TemporaryFolder folder;
    LaunchPadOptions options = test_options();
    options.cache_directory = folder.path;
    {
        LaunchPad pad(options);
        EXPECT_EQ(unmeasured_tiles<T>(pad, products).size(), 1u);
        measure_tiles<T>(pad, products);
        EXPECT_TRUE(unmeasured_tiles<T>(pad, products).empty());
    }
    LaunchPad pad(options);
    EXPECT_TRUE(unmeasured_tiles<T>(pad, products).empty());
    DeviceArray<T> x(pad, random_values<T>(size_t(N) * C, 1)), w(pad, random_values<T>(size_t(OC) * C, 2)),
        bias(pad, random_values<T>(OC, 3));
    std::map<int, std::vector<float>> first;  // by teams
    for (int block_size : matrix_block_sizes("matmul_forward5")) {
        DeviceArray<T> out(pad, size_t(N) * OC);
        matmul_forward_versions<T>()[4].launch(pad, out, x, w, bias, N, C, OC, block_size);
        std::vector<float>& expected = first[matrix_teams(block_size)];
        if (expected.empty()) expected = out.values();
        EXPECT_EQ(out.values(), expected) << "block size " << block_size;
    }
    EXPECT_EQ(first.size(), 2u);
    for (const auto& file : std::filesystem::directory_iterator(folder.path))
        if (file.path().extension() == ".measured") std::ofstream(file.path()) << "\x01\x02 no number";
    LaunchPad another(options);
    EXPECT_EQ(unmeasured_tiles<T>(another, products).size(), 1u);
}
