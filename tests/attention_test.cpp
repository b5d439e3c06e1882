// Attention: a reference in double, checked itself by finite differences; the CPU version against the
// reference, and every GPU version against the CPU version.
#include "llmc/attention.h"

#include <algorithm>
#include <array>

#include "tests/layer_test.h"
#include "tests/simd_levels.h"

struct Shape {
    int B, T, C, NH;
};
// Head sizes 1, 5, 5, 48, 64, 128, 79; sequences around the tiles of 48 and 64 rows.
static const Shape shapes[] = {{1, 1, 1, 1},     {2, 7, 15, 3},   {1, 97, 10, 2},  {2, 33, 96, 2},
                               {1, 130, 128, 2}, {1, 40, 128, 1}, {2, 129, 158, 2}};
// For the 16-bit types, whose kernels differ from the fp32 ones in their loads and stores alone: heads of 5
// channels, which have no quads, and of 64.
static const Shape short_shapes[] = {{2, 67, 15, 3}, {1, 130, 128, 2}};

template <class T>
static std::vector<Shape> gpu_shapes() {
    if (std::is_same_v<T, float>) return {std::begin(shapes), std::end(shapes)};
    return {std::begin(short_shapes), std::end(short_shapes)};
}

// Whether to run a version with this block size: the later ones only in fp32 and with heads of 5 channels,
// since compiling a tiled kernel takes a software device seconds.
template <class T, class Version>
static bool worth_running(const Version& version, int block, Shape s) {
    return block == version.block_sizes[0] || (std::is_same_v<T, float> && s.C / s.NH == 5);
}

struct Reference {
    std::vector<double> out, lse, dqkv, delta;
};

// Textbook attention and its derivative, with the whole matrix of probabilities of one head at a time.
static Reference reference(const std::vector<double>& qkv, const std::vector<double>& dout, Shape s) {
    const int B = s.B, T = s.T, C = s.C, NH = s.NH;
    const int hs = C / NH;
    const double scale = 1 / std::sqrt(double(hs));
    Reference r = {std::vector<double>(size_t(B) * T * C), std::vector<double>(size_t(B) * NH * T),
                   std::vector<double>(qkv.size()), std::vector<double>(size_t(B) * NH * T)};
    for (int b = 0; b < B; b++)
        for (int h = 0; h < NH; h++)
            for (int t = 0; t < T; t++) {
                const size_t row = size_t(b) * T + t, stat = (size_t(b) * NH + h) * T + t;
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
                        const double g = dout[row * C + h * hs + c], v = qkv[at(2, u) + c];
                        r.out[row * C + h * hs + c] += p[u] * v;
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
    return r;
}

static std::vector<float> to_float(const std::vector<double>& v) {
    return std::vector<float>(v.begin(), v.end());
}

// Inputs that T represents, and the results of the CPU version in fp32. The backward pass gets `out` as the
// forward pass leaves it, rounded to T.
template <class T>
struct Case {
    Shape s;
    std::vector<float> qkv, dout, out, lse, dqkv, delta;
    Case(Shape shape, float scale)
        : s(shape),
          qkv(random_values<T>(size_t(s.B) * s.T * 3 * s.C, 1, scale)),
          dout(random_values<T>(size_t(s.B) * s.T * s.C, 2)),
          out(nans(dout.size())),
          lse(nans(size_t(s.B) * s.NH * s.T)),
          dqkv(nans(qkv.size())),
          delta(nans(lse.size())) {
        attention_forward_cpu(out.data(), lse.data(), qkv.data(), s.B, s.T, s.C, s.NH);
        attention_backward_cpu(dqkv.data(), delta.data(), dout.data(), rounded<T>(out).data(), lse.data(),
                               qkv.data(), s.B, s.T, s.C, s.NH);
    }
    std::string name() const { return format_string("B %d T %d C %d NH %d", s.B, s.T, s.C, s.NH); }
};

// q, k and v of dqkv apart: a wrong one of small size would hide behind the others.
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
        // With one key the softmax is constant: dq and dk are zero but for rounding.
        const bool zero = std::all_of(w.begin(), w.end(), [](float x) { return std::abs(x) < 1e-5f; });
        if (zero)
            for (float x : g)
                EXPECT_TRUE(std::abs(x) < 1e-4f) << names[part] << " is " << x << ", expected 0";
        else
            expect_close(names[part], g, w, tolerance);
    }
}

// The loss is sum(out * weights): its derivative by every element of qkv, by central differences.
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

// Inputs of size 30 make scores in the hundreds and more, whose exponentials overflow unless the maximum is
// taken off first. Their rounding, about 1e-7 of the score, comes back as a relative error of the
// probabilities.
TEST(Attention, CpuMatchesDouble) {
    std::vector<Shape> some(std::begin(shapes), std::end(shapes));
    some.push_back(
        {1, 300, 80, 1});  // more than a block of queries and several of keys, a head of 2.5 panels
    for (Shape s : some)
        for (float scale : {1.0f, 30.0f})
            for_each_simd_level([&] {
                const Case<float> c(s, scale);
                SCOPED_TRACE(format_string("%s, inputs of size %g", c.name().c_str(), scale));
                const Reference r =
                    reference({c.qkv.begin(), c.qkv.end()}, {c.dout.begin(), c.dout.end()}, s);
                const double tolerance = scale > 1 ? 2e-4 : 2e-6;
                expect_close("out", c.out, to_float(r.out), tolerance);
                expect_close("lse", c.lse, to_float(r.lse), 1e-6);
                expect_close("delta", c.delta, to_float(r.delta), tolerance);
                if (scale == 1) expect_gradients_close(c.dqkv, to_float(r.dqkv), s.C, 1e-5);
            });
}

// The results of the CPU version for 16-bit inputs are those for the same inputs in fp32, rounded.
TEST(Attention, CpuMatchesItselfInFp32) {
    const Case<bf16> c({2, 49, 34, 2}, 1.0f);
    const auto [B, T, C, NH] = c.s;
    std::vector<bf16> out(c.out.size()), dqkv(c.dqkv.size());
    const std::vector<bf16> qkv = from_floats<bf16>(c.qkv), dout = from_floats<bf16>(c.dout);
    std::vector<float> lse = nans(c.lse.size()), delta = nans(c.delta.size());
    attention_forward_cpu(out.data(), lse.data(), qkv.data(), B, T, C, NH);
    attention_backward_cpu(dqkv.data(), delta.data(), dout.data(), out.data(), lse.data(), qkv.data(), B, T,
                           C, NH);
    expect_close("out", to_floats(out), c.out, tolerance<bf16>());
    expect_close("lse", lse, c.lse, 1e-6);
    expect_close("delta", delta, c.delta, 1e-6);
    expect_gradients_close(to_floats(dqkv), c.dqkv, C, tolerance<bf16>());
}

template <class T>
struct AttentionGpu : testing::Test {};
TYPED_TEST_SUITE(AttentionGpu, RealTypes);

template <class T>
static void check_forward(const Case<T>& c, LaunchPad& pad, AttentionForward<T>* launch, int block,
                          double fp32_tolerance) {
    const auto [B, seq_len, C, NH] = c.s;
    DeviceArray<T> qkv(pad, c.qkv), out(pad, c.out.size());
    DeviceArray<float> lse(pad, c.lse.size());
    launch(pad, out, lse, qkv, B, seq_len, C, NH, block);
    expect_close("out", out.values(), c.out, tolerance<T>(fp32_tolerance));
    expect_close("lse", lse.values(), c.lse, 2e-6);
}

template <class T>
static void check_backward(const Case<T>& c, LaunchPad& pad, AttentionBackward<T>* launch, int block,
                           bool own_delta = false) {
    const auto [B, seq_len, C, NH] = c.s;
    DeviceArray<T> qkv(pad, c.qkv), out(pad, c.out), dout(pad, c.dout), dqkv(pad, c.dqkv.size());
    DeviceArray<float> lse(pad, c.lse), delta(pad, c.delta.size());
    pad.begin_group();  // the launcher must order its own kernels
    launch(pad, dqkv, delta, dout, out, lse, qkv, B, seq_len, C, NH, block);
    pad.end_group();
    const std::vector<float> sums = delta.values();
    if (own_delta)
        EXPECT_TRUE(std::all_of(sums.begin(), sums.end(), [](float x) { return std::isnan(x); }));
    else
        expect_close("delta", sums, c.delta);
    expect_gradients_close(dqkv.values(), c.dqkv, C, tolerance<T>());
}

// Whether a version runs on matrix cores, where they are: it has shapes of its own.
template <class Version>
static bool is_matrix_version(const Version& version) {
    return strchr(version.name, '3');
}

TYPED_TEST(AttentionGpu, ForwardMatchesCpu) {
    using T = TypeParam;
    for (Shape s : gpu_shapes<T>())
        for (float scale : {1.0f, 30.0f}) {
            const Case<T> c(s, scale);
            SCOPED_TRACE(format_string("%s, inputs of size %g", c.name().c_str(), scale));
            for_each_version<T>(
                attention_forward_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
                    if (!is_matrix_version(version) && worth_running<T>(version, block, s))
                        check_forward<T>(c, pad, version.launch, block, scale > 1 ? 2e-4 : 1e-5);
                });
        }
}

TYPED_TEST(AttentionGpu, BackwardMatchesCpu) {
    using T = TypeParam;
    for (Shape s : gpu_shapes<T>()) {
        const Case<T> c(s, 1.0f);
        SCOPED_TRACE(c.name());
        for_each_version<T>(attention_backward_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            if (!is_matrix_version(version) && worth_running<T>(version, block, s))
                check_backward<T>(c, pad, version.launch, block);
        });
    }
}

// Head sizes 64, 80, 96, 128; sequences of one row, below, at and past the tiles; more heads and sequences
// than one.
static const Shape matrix_shapes[] = {{1, 1, 64, 1},  {2, 17, 160, 2},  {1, 65, 192, 3},
                                      {2, 64, 96, 1}, {1, 130, 256, 2}, {2, 259, 128, 2}};

// A software device, which takes long to compile these kernels, runs two shapes, each with some of its
// tilings.
template <class T>
static bool worth_running_matrix(const LaunchPad& pad, int block, Shape s) {
    if (!attention_on_matrix_cores<T>(pad, s.C, s.NH)) return false;
    if (pad.device().type != DeviceType::software) return true;
    return (block == 128 && s.T == 17) || (block == 64 && s.T == 65);
}

// The probabilities and the gradients of the scores are rounded to T on their way from one product to the
// next, as the inputs are: each adds its own error to that of the result's rounding.
template <class T>
static double matrix_tolerance() {
    return 2 * tolerance<T>();
}

TYPED_TEST(AttentionGpu, MatrixForwardMatchesCpu) {
    using T = TypeParam;
    for (Shape s : matrix_shapes)
        for (float scale : {1.0f, 4.0f}) {  // scores to 5 and to 80
            const Case<T> c(s, scale);
            SCOPED_TRACE(format_string("%s, inputs of size %g", c.name().c_str(), scale));
            for_each_version<T>(attention_forward_versions<T>(),
                                [&](LaunchPad& pad, auto& version, int block) {
                                    if (is_matrix_version(version) && worth_running_matrix<T>(pad, block, s))
                                        check_forward<T>(c, pad, version.launch, block, 1e-5);
                                });
        }
}

// Where a query has one key, its probability is 1: the first row of out is that of v, to the last bit.
TYPED_TEST(AttentionGpu, MatrixForwardCopiesTheFirstValue) {
    using T = TypeParam;
    for (const auto [B, seq_len, C, NH] : {Shape{3, 1, 160, 2}, Shape{2, 17, 160, 2}}) {
        const Case<T> c({B, seq_len, C, NH}, 1.0f);
        SCOPED_TRACE(c.name());
        for_each_version<T>(attention_forward_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
            if (!is_matrix_version(version) || !worth_running_matrix<T>(pad, block, {2, 17, C, NH})) return;
            DeviceArray<T> qkv(pad, c.qkv), out(pad, c.out.size());
            DeviceArray<float> lse(pad, c.lse.size());
            version.launch(pad, out, lse, qkv, B, seq_len, C, NH, block);
            const auto got = out.values();
            for (int b = 0; b < B; b++)
                for (int i = 0; i < C; i++) {
                    const size_t row = size_t(b) * seq_len;
                    EXPECT_EQ(float(got[row * C + i]), c.qkv[row * 3 * C + 2 * C + i])
                        << "at " << b << ", " << i;
                }
        });
    }
}

TYPED_TEST(AttentionGpu, MatrixBackwardMatchesCpu) {
    using T = TypeParam;
    for (Shape s : matrix_shapes)
        for (float scale : {1.0f, 4.0f}) {
            const Case<T> c(s, scale);
            SCOPED_TRACE(format_string("%s, inputs of size %g", c.name().c_str(), scale));
            for_each_version<T>(attention_backward_versions<T>(),
                                [&](LaunchPad& pad, auto& version, int block) {
                                    if (is_matrix_version(version) && worth_running_matrix<T>(pad, block, s))
                                        check_backward<T>(c, pad, version.launch, block,
                                                          attention_leaves_delta<T>(pad, s.T, s.C, s.NH));
                                });
        }
}

// Short sequences, whose delta is summed on the way, and the first ones that are not; heads of 32, 64, 96 and
// 128. A software device, which compiles for long, leaves out large ones; its subgroups of 8 could not add
// rows of heads of 128. A step's queries are fewer than T, so most of them arrive while others are
// multiplied.
TYPED_TEST(AttentionGpu, MatrixBackwardOfShortSequences) {
    using T = TypeParam;
    const auto version = attention_backward_versions<T>()[2];
    for (const auto [C, NH, block] :
         {std::array{128, 2, 128}, std::array{32, 1, 64}, std::array{96, 1, 128}, std::array{256, 2, 128}})
        for (int seq_len : {1, 17, 64, 65}) {
            const Case<T> c({2, seq_len, C, NH}, 1.0f);
            SCOPED_TRACE(c.name());
            for (const auto& pad : test_pads()) {
                const bool software = pad->device().type == DeviceType::software;
                if (!attention_on_matrix_cores<T>(*pad, C, NH) || pad != test_pads()[0]) continue;
                if (software && C / NH > (seq_len > 64 ? 32 : 64)) continue;
                const bool own_delta = attention_leaves_delta<T>(*pad, seq_len, C, NH);
                EXPECT_EQ(own_delta, seq_len <= 64 && C != 96);
                const int messages = validation_message_count();
                check_backward<T>(c, *pad, version.launch, block, own_delta);
                EXPECT_EQ(validation_message_count(), messages) << "the validation layer printed messages";
            }
        }
}

// As on devices whose sums lie in other places than factors, and must pass through shared memory to become
// some.
TYPED_TEST(AttentionGpu, MatrixThroughPatches) {
    using T = TypeParam;
    if (test_device() == "none") return;
    LaunchPadOptions options = test_options();
    options.in_place = false;
    LaunchPad pad(options);
    const Case<T> c({2, 17, 160, 2}, 1.0f);
    if (!worth_running_matrix<T>(pad, 128, c.s)) return;
    const int messages = validation_message_count();
    check_forward<T>(c, pad, attention_forward_versions<T>()[2].launch, 128, 1e-5);
    check_backward<T>(c, pad, attention_backward_versions<T>()[2].launch, 128,
                      attention_leaves_delta<T>(pad, c.s.T, c.s.C, c.s.NH));
    EXPECT_EQ(validation_message_count(), messages) << "the validation layer printed messages";
}

// What training calls, with inputs that are not aligned to four elements: heads of 48 channels cannot be read
// in quads then. (Heads of 5 channels never can, and their kernels are compiled already.)
TYPED_TEST(AttentionGpu, TrainingFunctions) {
    using T = TypeParam;
    const Case<T> c(std::is_same_v<T, float> ? Shape{2, 33, 96, 2} : Shape{2, 67, 15, 3}, 1.0f);
    const auto [B, seq_len, C, NH] = c.s;
    std::vector<float> shifted(c.qkv);
    shifted.insert(shifted.begin(), 0.0f);
    for (const auto& pad : test_pads()) {
        DeviceArray<T> qkv(*pad, shifted), dout(*pad, c.dout), out(*pad, c.out.size());
        DeviceArray<float> lse(*pad, c.lse.size()), delta(*pad, c.delta.size());
        DeviceArray<T> dqkv(*pad, c.dqkv.size());
        attention_forward<T>(pad.get(), out, lse, qkv + 1, B, seq_len, C, NH);
        attention_backward<T>(pad.get(), dqkv, delta, dout, out, lse, qkv + 1, B, seq_len, C, NH);
        expect_close("out", out.values(), c.out, tolerance<T>());
        expect_gradients_close(dqkv.values(), c.dqkv, C, tolerance<T>());
        if (!std::is_same_v<T, float>) break;  // as in for_each_version()
    }
}

TEST(Attention, RefusesHeadsItCannotRun) {
    float x[1024];
    EXPECT_THROW(attention_forward<float>(nullptr, x, x, x, 1, 1, 10, 3), Error);
    EXPECT_THROW(attention_forward<float>(nullptr, x, x, x, 1, 1, 10, 0), Error);
    EXPECT_THROW(attention_backward<float>(nullptr, x, x, x, x, x, x, 1, 1, 258, 2), Error);
    for (const auto& pad : test_pads())
        EXPECT_THROW(attention_forward<float>(pad.get(), x, x, x, 1, 1, 129, 1), Error);
}
