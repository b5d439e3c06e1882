// Attention: finite differences check a reference in double, the reference checks the CPU version, and the
// CPU version checks every GPU version.
#include "llmc/layers/attention.h"

#include <algorithm>
#include <array>

#include "tests/simd_levels.h"
#include "tests/table_rows.h"

struct Shape {
    int B, T, C, NH;
};
// Head sizes 1, 5, 5, 48, 64, 128, 79; sequences just below and above multiples of the tile sizes.
static const Shape shapes[] = {{1, 1, 1, 1},     {2, 7, 15, 3},   {1, 97, 10, 2},  {2, 33, 96, 2},
                               {1, 130, 128, 2}, {1, 40, 128, 1}, {2, 129, 158, 2}};
// For the 16-bit types, whose kernels differ from the fp32 ones only in loads and stores: heads of 5
// channels, which cannot be accessed in quads, and of 64.
static const Shape short_shapes[] = {{2, 67, 15, 3}, {1, 130, 128, 2}};

template <class Real>
static std::vector<Shape> gpu_shapes() {
    if (std::is_same_v<Real, float>) return {std::begin(shapes), std::end(shapes)};
    return {std::begin(short_shapes), std::end(short_shapes)};
}

// Whether to run a version with this block size. Block sizes other than the default run only in fp32 with
// heads of 5 channels, since a software device compiles a tiled kernel for seconds.
template <class Real, class Version>
static bool worth_running(const Version& version, int block_size, Shape s) {
    return block_size == version.configs[0] || (std::is_same_v<Real, float> && s.C / s.NH == 5);
}

struct Reference {
    std::vector<double> out, lse, dqkv, delta;
};

// Adds row t of one head to r: textbook attention and its derivative. `part` 0, 1, 2 is q, k, v.
static void add_reference_row(Reference& r, const std::vector<double>& qkv, const std::vector<double>& dout,
                              Shape s, int b, int h, int t) {
    const int T = s.T, C = s.C, hs = s.C / s.NH;
    const double scale = 1 / std::sqrt(double(hs));
    const size_t row = (size_t(b) * T + t) * C + h * hs, stat = (size_t(b) * s.NH + h) * T + t;
    auto at = [&](int part, int u) { return (size_t(b) * T + u) * 3 * C + part * C + h * hs; };
    std::vector<double> p(t + 1), dp(t + 1, 0.0);
    double largest = -INFINITY, sum = 0;
    for (int u = 0; u <= t; u++) {
        for (int c = 0; c < hs; c++) p[u] += scale * qkv[at(0, t) + c] * qkv[at(1, u) + c];
        largest = std::max(largest, p[u]);
    }
    for (double score : p) sum += std::exp(score - largest);
    r.lse[stat] = largest + std::log(sum);
    for (int u = 0; u <= t; u++) {
        p[u] = std::exp(p[u] - r.lse[stat]);
        for (int c = 0; c < hs; c++) {
            const double g = dout[row + c], v = qkv[at(2, u) + c];
            r.out[row + c] += p[u] * v;
            r.dqkv[at(2, u) + c] += p[u] * g;
            dp[u] += g * v;
        }
        r.delta[stat] += p[u] * dp[u];
    }
    for (int u = 0; u <= t; u++)
        for (int c = 0; c < hs; c++) {
            const double ds = p[u] * (dp[u] - r.delta[stat]) * scale;
            r.dqkv[at(0, t) + c] += ds * qkv[at(1, u) + c];
            r.dqkv[at(1, u) + c] += ds * qkv[at(0, t) + c];
        }
}

static Reference reference(const std::vector<double>& qkv, const std::vector<double>& dout, Shape s) {
    const size_t num_rows = size_t(s.B) * s.T;
    Reference r = {std::vector<double>(num_rows * s.C), std::vector<double>(num_rows * s.NH),
                   std::vector<double>(qkv.size()), std::vector<double>(num_rows * s.NH)};
    for (int b = 0; b < s.B; b++)
        for (int h = 0; h < s.NH; h++)
            for (int t = 0; t < s.T; t++) add_reference_row(r, qkv, dout, s, b, h, t);
    return r;
}

template <class Real>
static AttentionForward<Real> forward_params(Shape s, Real* out, float* lse, const Real* qkv) {
    return {.out = out, .lse = lse, .qkv = qkv, .B = s.B, .T = s.T, .C = s.C, .NH = s.NH};
}

template <class Real>
static AttentionBackward<Real> backward_params(Shape s, Real* dqkv, float* delta, const Real* dout,
                                               const Real* out, const float* lse, const Real* qkv) {
    return {.dqkv = dqkv,
            .delta = delta,
            .dout = dout,
            .out = out,
            .lse = lse,
            .qkv = qkv,
            .B = s.B,
            .T = s.T,
            .C = s.C,
            .NH = s.NH};
}

// Inputs that Real represents exactly, and the results of the CPU version in fp32. As in training, the
// backward pass reads `out` rounded to Real.
template <class Real>
struct Case {
    Shape s;
    std::vector<float> qkv, dout, out, lse, dqkv, delta;
    Case(Shape shape, float scale)
        : s(shape),
          qkv(random_values<Real>(size_t(s.B) * s.T * 3 * s.C, 1, scale)),
          dout(random_values<Real>(size_t(s.B) * s.T * s.C, 2)),
          out(nans(dout.size())),
          lse(nans(size_t(s.B) * s.NH * s.T)),
          dqkv(nans(qkv.size())),
          delta(nans(lse.size())) {
        attention_forward_cpu<float>(forward_params<float>(s, out.data(), lse.data(), qkv.data()));
        const std::vector<float> of_backward = rounded<Real>(out);
        attention_backward_cpu<float>(backward_params<float>(s, dqkv.data(), delta.data(), dout.data(),
                                                             of_backward.data(), lse.data(), qkv.data()));
    }
    std::string name() const { return format_string("B %d T %d C %d NH %d", s.B, s.T, s.C, s.NH); }
};

// Compares dq, dk and dv separately: a wrong one of small magnitude would otherwise go unnoticed.
static void expect_gradients_close(const std::vector<float>& got, const std::vector<float>& want, int C,
                                   double tolerance) {
    const char* names[] = {"dq", "dk", "dv"};
    ASSERT_EQ(got.size(), want.size());
    for (int part = 0; part < 3; part++) {
        std::vector<float> g, w;
        for (size_t i = 0; i < got.size(); i++)
            if (int(i / C % 3) == part) {
                g.push_back(got[i]);
                w.push_back(want[i]);
            }
        // With one key the softmax is constant: dq and dk are zero except for rounding errors.
        const bool zero = std::all_of(w.begin(), w.end(), [](float x) { return std::abs(x) < 1e-5f; });
        if (zero)
            for (float x : g)
                EXPECT_TRUE(std::abs(x) < 1e-4f) << names[part] << " is " << x << ", expected 0";
        else
            expect_close(names[part], g, w, tolerance);
    }
}

// Central differences of the loss sum(out * weights) by every element of qkv.
TEST(AttentionReference, MatchesFiniteDifferences) {
    for (Shape s : {Shape{1, 1, 1, 1}, Shape{2, 7, 15, 3}, Shape{1, 9, 8, 2}}) {
        const Case<float> c(s, 1.0f);
        std::vector<double> qkv(c.qkv.begin(), c.qkv.end()), weights(c.dout.begin(), c.dout.end());
        const Reference r = reference(qkv, weights, s);
        auto loss = [&] {
            const std::vector<double> out = reference(qkv, weights, s).out;
            double sum = 0;
            for (size_t i = 0; i < out.size(); i++) sum += out[i] * weights[i];
            return sum;
        };
        for (size_t i = 0; i < qkv.size(); i++) {
            const double h = 1e-5, kept = qkv[i];
            qkv[i] = kept + h;
            const double above = loss();
            qkv[i] = kept - h;
            const double below = loss();
            qkv[i] = kept;
            EXPECT_NEAR(r.dqkv[i], (above - below) / (2 * h), 1e-7) << c.name() << ", element " << i;
        }
    }
}

// Inputs of size 30 give scores in the hundreds and more, whose exponentials overflow unless the maximum is
// subtracted first. The rounding error of a score, about 1e-7 of it, becomes a relative error of the
// probability.
TEST(Attention, CpuMatchesDouble) {
    std::vector<Shape> some(std::begin(shapes), std::end(shapes));
    // More than one block of queries, several blocks of keys, and a head of 2.5 channel panels.
    some.push_back({1, 300, 80, 1});
    for (Shape s : some)
        for (float scale : {1.0f, 30.0f})
            for_each_simd_level([&] {
                const Case<float> c(s, scale);
                SCOPED_TRACE(format_string("%s, inputs of size %g", c.name().c_str(), scale));
                const Reference r =
                    reference({c.qkv.begin(), c.qkv.end()}, {c.dout.begin(), c.dout.end()}, s);
                const double tolerance = scale > 1 ? 2e-4 : 2e-6;
                expect_close("out", c.out, to_floats(r.out), tolerance);
                expect_close("lse", c.lse, to_floats(r.lse), 1e-6);
                expect_close("delta", c.delta, to_floats(r.delta), tolerance);
                if (scale == 1) expect_gradients_close(c.dqkv, to_floats(r.dqkv), s.C, 1e-5);
            });
}

// For 16-bit inputs, the CPU version rounds the results that it has for the same inputs in fp32.
TEST(Attention, CpuMatchesItselfInFp32) {
    const Case<bf16> c({2, 49, 34, 2}, 1.0f);
    const Shape s = c.s;
    std::vector<bf16> out(c.out.size()), dqkv(c.dqkv.size());
    const std::vector<bf16> qkv = from_floats<bf16>(c.qkv), dout = from_floats<bf16>(c.dout);
    std::vector<float> lse = nans(c.lse.size()), delta = nans(c.delta.size());
    attention_forward_cpu<bf16>(forward_params<bf16>(s, out.data(), lse.data(), qkv.data()));
    attention_backward_cpu<bf16>(
        backward_params<bf16>(s, dqkv.data(), delta.data(), dout.data(), out.data(), lse.data(), qkv.data()));
    expect_close("out", to_floats(out), c.out, tolerance<bf16>());
    expect_close("lse", lse, c.lse, 1e-6);
    expect_close("delta", delta, c.delta, 1e-6);
    expect_gradients_close(to_floats(dqkv), c.dqkv, s.C, tolerance<bf16>());
}

template <class Real>
struct AttentionGpu : testing::Test {};
TYPED_TEST_SUITE(AttentionGpu, RealTypes);

// Expects that the launch takes a version's own kernel. Versions fall back to an earlier one without a word
// if the device refuses a kernel.
static void expect_kernel(LaunchPad& pad, const std::string& version, const std::function<void()>& launch) {
    const Requirements needs = pad.dry_run(launch);
    const bool found = std::any_of(needs.kernels.begin(), needs.kernels.end(),
                                   [&](const auto& kernel) { return kernel.first.starts_with(version); });
    EXPECT_TRUE(found) << version << " does not run its own kernel";
}

// Whether a version runs on tensor cores; these versions have shapes of their own.
template <class Version>
static bool uses_tensor_cores(const Version& version) {
    return strpbrk(version.name, "34");
}

template <class Real>
static void check_forward(const Case<Real>& c, LaunchPad& pad,
                          const KernelVersion<AttentionForward<Real>>& version, int block_size,
                          double fp32_tolerance) {
    DeviceArray<Real> qkv(pad, c.qkv), out(pad, c.out.size());
    DeviceArray<float> lse(pad, c.lse.size());
    const auto launch = [&] { version.launch(pad, forward_params<Real>(c.s, out, lse, qkv), block_size); };
    if (uses_tensor_cores(version)) expect_kernel(pad, version.name, launch);
    launch();
    expect_close("out", out.values(), c.out, tolerance<Real>(fp32_tolerance));
    expect_close("lse", lse.values(), c.lse, 2e-6);
}

template <class Real>
static void check_backward(const Case<Real>& c, LaunchPad& pad,
                           const KernelVersion<AttentionBackward<Real>>& version, int block_size) {
    DeviceArray<Real> qkv(pad, c.qkv), out(pad, c.out), dout(pad, c.dout), dqkv(pad, c.dqkv.size());
    DeviceArray<float> lse(pad, c.lse), delta(pad, c.delta.size());
    const auto params = backward_params<Real>(c.s, dqkv, delta, dout, out, lse, qkv);
    const auto launch = [&] { version.launch(pad, params, block_size); };
    const bool one_copy = pad.limits().fragment<Real>().in_place;  // else only software devices run version 3
    if (uses_tensor_cores(version) && (one_copy || pad.device().type == DeviceType::software))
        expect_kernel(pad, version.name, launch);
    {
        const ConcurrentGroup group(&pad);  // the launcher must order its own kernels
        launch();
    }
    expect_close("delta", delta.values(), c.delta);
    expect_gradients_close(dqkv.values(), c.dqkv, c.s.C, tolerance<Real>());
}

TYPED_TEST(AttentionGpu, ForwardMatchesCpu) {
    using Real = TypeParam;
    for (Shape s : gpu_shapes<Real>())
        for (float scale : {1.0f, 30.0f}) {
            const Case<Real> c(s, scale);
            SCOPED_TRACE(format_string("%s, inputs of size %g", c.name().c_str(), scale));
            auto check = [&](LaunchPad& pad, auto& version, int block_size) {
                if (!uses_tensor_cores(version) && worth_running<Real>(version, block_size, s))
                    check_forward<Real>(c, pad, version, block_size, scale > 1 ? 2e-4 : 1e-5);
            };
            for_each_version<Real>(with_baselines(attention_forward_versions<Real>()), check);
        }
}

TYPED_TEST(AttentionGpu, BackwardMatchesCpu) {
    using Real = TypeParam;
    for (Shape s : gpu_shapes<Real>()) {
        const Case<Real> c(s, 1.0f);
        SCOPED_TRACE(c.name());
        auto check = [&](LaunchPad& pad, auto& version, int block_size) {
            if (!uses_tensor_cores(version) && worth_running<Real>(version, block_size, s))
                check_backward<Real>(c, pad, version, block_size);
        };
        for_each_version<Real>(with_baselines(attention_backward_versions<Real>()), check);
    }
}

// Head sizes 32, 64, 80, 96, 128; sequences of one row, and just below, at and above multiples of the tile
// sizes; several heads and sequences.
static const Shape tensor_core_shapes[] = {{1, 1, 64, 1},    {2, 17, 64, 2},  {2, 17, 160, 2},
                                           {1, 65, 96, 3},   {1, 65, 192, 3}, {2, 64, 96, 1},
                                           {1, 130, 256, 2}, {2, 259, 128, 2}};

// Whether heads of 64 channels run on tensor cores here.
template <class Real>
static bool have_tensor_cores() {
    return !test_pads().empty() && attention_on_tensor_cores<Real>(*test_pads()[0], 128, 2);
}

// A software device takes minutes to compile these kernels for large heads, so it runs two shapes with heads
// of 32 channels, each with one block size.
template <class Real>
static bool worth_running_tensor_cores(const LaunchPad& pad, int block_size, Shape s) {
    if (!attention_on_tensor_cores<Real>(pad, s.C, s.NH)) return false;
    if (pad.device().type != DeviceType::software) return true;
    return s.C / s.NH == 32 && ((block_size == 128 && s.T == 17) || (block_size == 64 && s.T == 65));
}

TYPED_TEST(AttentionGpu, MatrixForwardMatchesCpu) {
    using Real = TypeParam;
    if (!have_tensor_cores<Real>()) GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    for (Shape s : tensor_core_shapes)
        for (float scale : {1.0f, 4.0f}) {  // scores up to 5 and up to 80
            const Case<Real> c(s, scale);
            SCOPED_TRACE(format_string("%s, inputs of size %g", c.name().c_str(), scale));
            auto check = [&](LaunchPad& pad, auto& version, int block_size) {
                if (uses_tensor_cores(version) && worth_running_tensor_cores<Real>(pad, block_size, s))
                    check_forward<Real>(c, pad, version, block_size, 1e-5);
            };
            for_each_version<Real>(attention_forward_versions<Real>(), check);
        }
}

// On a device that compiles slowly, a workgroup of block size 256 has fewer queries than a tile has keys.
TYPED_TEST(AttentionGpu, MatrixForwardOfFewQueries) {
    using Real = TypeParam;
    if (!have_tensor_cores<Real>()) GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    LaunchPad& pad = *test_pads()[0];
    const int hs = 2 * int(std::max(8u, pad.limits().fragment<Real>().K));  // the fewest channels
    const Case<Real> c({1, 41, hs, 1}, 1.0f);
    for (const auto& version : attention_forward_versions<Real>())
        if (uses_tensor_cores(version)) check_forward<Real>(c, pad, version, 256, 1e-5);
}

// Heads with an odd number of fragments along K take version 2 whatever version is launched.
TYPED_TEST(AttentionGpu, MatrixRefusesAnOddNumberOfFragments) {
    using Real = TypeParam;
    if (!have_tensor_cores<Real>()) GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    LaunchPad& pad = *test_pads()[0];
    const int K = int(pad.limits().fragment<Real>().K);
    int refused = 0;
    for (int hs = 8; hs <= 128; hs += 8) {
        SCOPED_TRACE(format_string("heads of %d channels", hs));
        const bool runs = hs % 16 == 0 && hs % K == 0 && hs / K % 2 == 0;
        EXPECT_EQ(attention_on_tensor_cores<Real>(pad, hs, 1), runs);
        if (runs) continue;
        refused++;
        const Case<Real> c({1, 1, hs, 1}, 1.0f);
        DeviceArray<Real> qkv(pad, c.qkv), out(pad, c.out.size());
        DeviceArray<float> lse(pad, c.lse.size());
        for (const auto& version : attention_forward_versions<Real>())
            expect_kernel(pad, "attention_forward2", [&] {
                version.launch(pad, forward_params<Real>(c.s, out, lse, qkv), version.configs[0]);
            });
    }
    EXPECT_GT(refused, 0);
}

// The probability of a query's only key is 1, so the first row of out is bit-identical to v's.
TYPED_TEST(AttentionGpu, MatrixForwardCopiesTheFirstValue) {
    using Real = TypeParam;
    if (!have_tensor_cores<Real>()) GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    for (const Shape s : {Shape{3, 1, 64, 2}, Shape{2, 17, 64, 2}}) {
        const Case<Real> c(s, 1.0f);
        SCOPED_TRACE(c.name());
        auto check = [&](LaunchPad& pad, auto& version, int block_size) {
            const Shape run_as = {2, 17, s.C, s.NH};
            if (!uses_tensor_cores(version) || !worth_running_tensor_cores<Real>(pad, block_size, run_as))
                return;
            DeviceArray<Real> qkv(pad, c.qkv), out(pad, c.out.size());
            DeviceArray<float> lse(pad, c.lse.size());
            version.launch(pad, forward_params<Real>(s, out, lse, qkv), block_size);
            const auto got = out.values();
            for (int b = 0; b < s.B; b++)
                for (int i = 0; i < s.C; i++) {
                    const size_t row = size_t(b) * s.T;
                    EXPECT_EQ(float(got[row * s.C + i]), c.qkv[row * 3 * s.C + 2 * s.C + i])
                        << "at " << b << ", " << i;
                }
        };
        for_each_version<Real>(attention_forward_versions<Real>(), check);
    }
}

// Scores that exceed those of the first keys by more than a probability of the storage type can hold: version
// 4 then computes a workgroup's queries again. One row in eight has a large query, and an equal key.
TYPED_TEST(AttentionGpu, MatrixForwardOfScoresFarAboveTheFirst) {
    using Real = TypeParam;
    if (!have_tensor_cores<Real>()) GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    const Shape s = {2, 65, 96, 3};
    Case<Real> c(s, 1.0f);
    for (size_t row = 40; row < size_t(s.B) * s.T; row += 8)
        for (int i = 0; i < s.C; i++) {
            const float v = i % 2 ? 6 : -6;
            c.qkv[row * 3 * s.C + i] = c.qkv[row * 3 * s.C + s.C + i] = v;
        }
    std::vector<float> out(c.out.size()), lse(c.lse.size());
    attention_forward_cpu<float>(forward_params<float>(s, out.data(), lse.data(), c.qkv.data()));
    c.out = out;
    c.lse = lse;
    ASSERT_GT(*std::max_element(lse.begin(), lse.end()), 150);  // 32 * 36 / sqrt(32)
    auto check = [&](LaunchPad& pad, auto& version, int block_size) {
        if (uses_tensor_cores(version) && worth_running_tensor_cores<Real>(pad, block_size, s))
            check_forward<Real>(c, pad, version, block_size, 1e-5);
    };
    for_each_version<Real>(attention_forward_versions<Real>(), check);
}

TYPED_TEST(AttentionGpu, MatrixBackwardMatchesCpu) {
    using Real = TypeParam;
    if (!have_tensor_cores<Real>()) GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    for (Shape s : tensor_core_shapes)
        for (float scale : {1.0f, 4.0f}) {
            const Case<Real> c(s, scale);
            SCOPED_TRACE(format_string("%s, inputs of size %g", c.name().c_str(), scale));
            auto check = [&](LaunchPad& pad, auto& version, int block_size) {
                if (uses_tensor_cores(version) && worth_running_tensor_cores<Real>(pad, block_size, s))
                    check_backward<Real>(c, pad, version, block_size);
            };
            for_each_version<Real>(attention_backward_versions<Real>(), check);
        }
}

// Less than a tile, whole tiles, and a row more; heads of 32, 64, 96 and 128. A software device compiles
// slowly, so it runs heads of 32 only.
TYPED_TEST(AttentionGpu, MatrixBackwardOfShortSequences) {
    using Real = TypeParam;
    if (!have_tensor_cores<Real>()) GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    const auto version = attention_backward_versions<Real>()[1];
    for (const auto [C, NH, block_size] :
         {std::array{128, 2, 128}, std::array{64, 2, 128}, std::array{32, 1, 64}, std::array{96, 1, 128},
          std::array{256, 2, 128}})
        for (int T : {1, 17, 64, 65}) {
            const Case<Real> c({2, T, C, NH}, 1.0f);
            SCOPED_TRACE(c.name());
            for (const auto& pad : test_pads()) {
                const bool software = pad->device().type == DeviceType::software;
                if (!attention_on_tensor_cores<Real>(*pad, C, NH) || pad != test_pads()[0]) continue;
                if (software && C / NH > 32) continue;
                check_backward<Real>(c, *pad, version, block_size);
            }
        }
}

// Emulates a device on which accumulators and operands have different layouts: accumulators become operands
// through staging buffers in shared memory.
TYPED_TEST(AttentionGpu, MatrixThroughStagingBuffers) {
    using Real = TypeParam;
    if (!have_tensor_cores<Real>()) GTEST_SKIP() << "no tensor cores for " << real_name<Real>() << " here";
    LaunchPadOptions options = test_options();
    options.in_place = false;
    LaunchPad pad(options);
    const bool software = pad.device().type == DeviceType::software;
    const int C = software ? 64 : attention_on_tensor_cores<Real>(pad, 160, 2) ? 160 : 128;
    const Case<Real> c({2, 17, C, 2}, 1.0f);
    for (int version : {1, 2})
        check_forward<Real>(c, pad, attention_forward_versions<Real>()[version], 128, 1e-5);
    check_backward<Real>(c, pad, attention_backward_versions<Real>()[1], 128);
}

// The functions that training calls, with inputs that are not aligned to four elements. In fp32, this rules
// out quads for heads of 48 channels. The 16-bit types run heads of 5 channels, which never allow quads and
// whose kernels other tests have compiled.
TYPED_TEST(AttentionGpu, TrainingFunctions) {
    const Shape s = std::is_same_v<TypeParam, float> ? Shape{2, 33, 96, 2} : Shape{2, 67, 15, 3};
    for (const char* layer : {"attention_forward", "attention_backward"})
        check_rows<TypeParam>(layer, {.B = s.B, .T = s.T, .C = s.C, .NH = s.NH}, 1, Runs::training);
}

TEST(Attention, RefusesHeadsItCannotRun) {
    float x[1024];
    const AttentionForward<float> forward = {.out = x, .lse = x, .qkv = x, .B = 1, .T = 1, .C = 10, .NH = 3};
    AttentionForward<float> no_heads = forward, large_heads = forward;
    no_heads.NH = 0;
    large_heads.C = 129;
    large_heads.NH = 1;
    EXPECT_THROW(attention_forward<float>(nullptr, forward), Error);
    EXPECT_THROW(attention_forward<float>(nullptr, no_heads), Error);
    const auto backward = backward_params<float>({1, 1, 258, 2}, x, x, x, x, x, x);
    EXPECT_THROW(attention_backward<float>(nullptr, backward), Error);
    for (const auto& pad : test_pads()) EXPECT_THROW(attention_forward<float>(pad.get(), large_heads), Error);
}
