// The CPU versions of the linear layers' GEMMs, against GEMMs in double precision.
#include <omp.h>

#include "tests/matmul_case.h"
#include "tests/simd_levels.h"

template <class Real>
struct Matmul : testing::Test {};
TYPED_TEST_SUITE(Matmul, RealTypes);

template <class Real>
static void check_forward(const MatmulCase<Real>& c) {
    for_each_simd_level([&] {
        const MatmulArrays<Real> host(nullptr, c);
        matmul_forward_cpu<Real>(host.forward(true));
        host.expect_out(1e-6);
        matmul_forward_cpu<Real>(host.forward(false));
        expect_close("out without bias", host.out.values(), c.out_without_bias(), tolerance<Real>(1e-6));
    });
}

template <class Real>
static void expect_accumulated(const MatmulArrays<Real>& host) {
    DeviceArray<Real> added(nullptr, host.c.dweight_before);
    MatmulBackwardParameters<Real> p = host.backward_parameters(true);
    p.dweight = added;
    matmul_dweight_cpu<Real>(p);
    expect_close("dweight, accumulated", added.values(), host.c.dweight_added, tolerance<Real>(1e-6));
}

TYPED_TEST(Matmul, ForwardCpuMatchesDouble) { for_each_shape<TypeParam>(check_forward<TypeParam>); }

TYPED_TEST(Matmul, BackwardCpuMatchesDouble) {
    using Real = TypeParam;
    for_each_shape<Real>([](const MatmulCase<Real>& c) {
        for_each_simd_level([&] {
            const MatmulArrays<Real> host(nullptr, c);
            host.backward();
            host.expect_dinp(1e-6);
            host.expect_dweight(1e-6);
            expect_close("dbias", host.dbias.values(), c.dbias, tolerance<Real>(1e-6));
            expect_accumulated(host);
        });
    });
}

// Fewer rows than a micro-tile has columns.
TYPED_TEST(Matmul, FewRowsMatchDoubleOnTheCpu) {
    for (int num_rows : {1, 2, 3, 4, 5}) {
        SCOPED_TRACE(format_string("%d rows", num_rows));
        check_forward(MatmulCase<TypeParam>({num_rows, 100, 77}));
    }
}

// The size of a larger layer: more than one block of K, and several tiles of the output.
template <class Real>
static void check_large() {
    const MatmulCase<Real> c({270, 1777, 390});
    for_each_simd_level([&] {
        const MatmulArrays<Real> host(nullptr, c);
        matmul_forward_cpu<Real>(host.forward(true));
        matmul_dinp_cpu<Real>(host.backward_input());
        matmul_dweight_cpu<Real>(host.backward_parameters(false));
        host.expect_out(1e-6);
        host.expect_dinp(1e-6);
        host.expect_dweight(1e-6);
        expect_accumulated(host);
    });
}
TEST(MatmulCpu, LargeMatchesDouble) { check_large<float>(); }
TEST(MatmulCpu, LargeMatchesDoubleInBf16) { check_large<bf16>(); }

// Transposed results are stored in strips of up to 24 rows of the weights. Strips of every height, with one
// block of K and with several.
TYPED_TEST(Matmul, StripsOfEveryHeightMatchDoubleOnTheCpu) {
    using Real = TypeParam;
    for (int OC = 1; OC <= 25; OC++)
        for (int C : {40, 531}) {
            const MatmulCase<Real> c({19, C, OC});
            SCOPED_TRACE(format_string("%d x %d weights", OC, C));
            for_each_simd_level([&] {
                const MatmulArrays<Real> host(nullptr, c);
                matmul_forward_cpu<Real>(host.forward(OC % 2));
                expect_close("out", host.out.values(), OC % 2 ? c.out : c.out_without_bias(),
                             tolerance<Real>(1e-6));
            });
        }
}

// Results are bit-identical with any number of threads: the order of sums does not depend on the tiles.
template <class Real>
static void check_threads(const Shape& shape) {
    const MatmulCase<Real> c(shape);
    const int threads = omp_get_max_threads();
    std::vector<std::vector<float>> first;
    for (int n : {1, 2, 3, 16}) {
        omp_set_num_threads(n);
        const MatmulArrays<Real> host(nullptr, c);
        matmul_forward_cpu<Real>(host.forward(false));
        host.backward();
        const std::vector<std::vector<float>> got = {host.out.values(), host.dinp.values(),
                                                     host.dweight.values(), host.dbias.values()};
        if (first.empty()) first = got;
        EXPECT_EQ(got, first) << n << " threads";
    }
    omp_set_num_threads(threads);
}
TEST(MatmulCpu, ThreadsDoNotChangeResults) {
    check_threads<float>({130, 801, 390});
    for_each_simd_level([] { check_threads<bf16>({130, 801, 390}); });
    check_threads<float>({1, 40, 77});
}

// NaN and infinity propagate, but to no other row or column.
TYPED_TEST(Matmul, NanAndInfinityPassThroughOnTheCpu) {
    using Real = TypeParam;
    const int num_rows = 30, C = 70, OC = 50;
    const float infinity = std::numeric_limits<float>::infinity();
    std::vector<Real> inp(num_rows * C, Real(1.0f)), weight(OC * C, Real(1.0f)), out(num_rows * OC);
    inp[3 * C + 5] = Real(std::numeric_limits<float>::quiet_NaN());
    inp[7 * C + 6] = Real(infinity);
    weight[9 * C + 69] = Real(-infinity);
    for_each_simd_level([&] {
        matmul_forward_cpu<Real>({.out = out.data(),
                                  .inp = inp.data(),
                                  .weight = weight.data(),
                                  .num_rows = num_rows,
                                  .C = C,
                                  .OC = OC});
        for (int n = 0; n < num_rows; n++)
            for (int o = 0; o < OC; o++) {
                const float got = float(out[n * OC + o]);
                if (n == 3 || (n == 7 && o == 9))  // infinity minus infinity
                    EXPECT_TRUE(std::isnan(got)) << n << " " << o;
                else
                    EXPECT_EQ(got, n == 7 ? infinity : o == 9 ? -infinity : float(C)) << n << " " << o;
            }
    });
}

// Packed panels are reused from GEMM to GEMM. Values of an earlier one must not reach a later one whose rows,
// columns and K fill no panel.
TYPED_TEST(Matmul, NanDoesNotOutliveItsGemmOnTheCpu) {
    using Real = TypeParam;
    const int few = 64, many = 800;
    const std::vector<Real> nan(size_t(few) * many, Real(std::numeric_limits<float>::quiet_NaN()));
    std::vector<Real> ignored(nan.size());
    const MatmulCase<Real> c({37, 41, 43});
    for_each_simd_level([&] {
        auto leave_nan = [&] {
            matmul_forward_cpu<Real>({.out = ignored.data(),
                                      .inp = nan.data(),
                                      .weight = nan.data(),
                                      .num_rows = few,
                                      .C = many,
                                      .OC = few});
            matmul_dweight_cpu<Real>({.dweight = ignored.data(),
                                      .dout = nan.data(),
                                      .inp = nan.data(),
                                      .num_rows = many,
                                      .C = few,
                                      .OC = few,
                                      .accumulate = false});
        };
        const MatmulArrays<Real> host(nullptr, c);
        leave_nan();
        matmul_forward_cpu<Real>(host.forward(false));
        leave_nan();
        matmul_dinp_cpu<Real>(host.backward_input());
        leave_nan();
        matmul_dweight_cpu<Real>(host.backward_parameters(false));
        expect_close("out", host.out.values(), c.out_without_bias(), tolerance<Real>(1e-6));
        host.expect_dinp(1e-6);
        host.expect_dweight(1e-6);
    });
}

// AMX serves bf16 GEMMs; its emulated instructions can be counted.
TEST(MatmulCpu, Bf16RunsOnAmx) {
    if (!AmxEmulator::is_possible()) GTEST_SKIP() << "this CPU has AMX, or cannot emulate it";
    const AmxEmulator emulator;
    choose_simd_level(SIMD_AMX);
    const Shape s = {64, 128, 96};
    const MatmulCase<float> c(s);
    const MatmulCase<bf16> c16(s);
    const MatmulArrays<float> host(nullptr, c);
    const MatmulArrays<bf16> host16(nullptr, c16);
    const long before = AmxEmulator::count();
    matmul_forward_cpu<float>(host.forward(false));
    EXPECT_EQ(AmxEmulator::count(), before);
    matmul_forward_cpu<bf16>(host16.forward(false));
    EXPECT_GE(AmxEmulator::count() - before,
              s.num_rows / 16 * s.OC / 16 * s.C / 32);  // the tile multiplications
    choose_simd_level(best_simd_level());
}
