// Muon: the CPU version against torch.optim.Muon (tests/reference/muon.bin) and against a reference in
// double, and every GPU version likewise; singular values; zero and non-finite gradients; batches.
#include "llmc/layers/muon.h"

#include <omp.h>

#include "llmc/base/file.h"
#include "llmc/base/hash.h"
#include "llmc/launchpad/memory.h"
#include "tests/layer_test.h"

using SmallTypes = testing::Types<bf16, fp16>;

static const float RATE = 0.02f, MOMENTUM = 0.95f, DECAY = 0.1f;

struct Shape {
    int rows, columns;
    size_t elements() const { return size_t(rows) * size_t(columns); }
};
// Square, wide, tall; multiples of 16, of 8 and of neither; several chunks of a kernel; single rows and
// columns.
static const Shape SHAPES[] = {{32, 32}, {24, 40},  {40, 24}, {17, 17}, {13, 50},
                               {50, 13}, {72, 136}, {1, 9},   {9, 1}};

// --- a reference in double ---

struct Matrix {
    Shape shape;
    std::vector<double> x;
    Matrix(Shape s, const std::vector<double>& values) : shape(s), x(values) {}
    Matrix(Shape s, const std::vector<float>& values) : shape(s), x(values.begin(), values.end()) {}
    double& at(int row, int column) { return x[size_t(row) * size_t(shape.columns) + size_t(column)]; }
    double at(int row, int column) const { return x[size_t(row) * size_t(shape.columns) + size_t(column)]; }
};

static Matrix transpose(const Matrix& m) {
    Matrix t({m.shape.columns, m.shape.rows}, m.x);
    for (int i = 0; i < m.shape.rows; i++)
        for (int j = 0; j < m.shape.columns; j++) t.at(j, i) = m.at(i, j);
    return t;
}

static Matrix multiply(const Matrix& a, const Matrix& b) {
    Matrix c({a.shape.rows, b.shape.columns},
             std::vector<double>(size_t(a.shape.rows) * size_t(b.shape.columns)));
    for (int i = 0; i < a.shape.rows; i++)
        for (int k = 0; k < a.shape.columns; k++)
            for (int j = 0; j < b.shape.columns; j++) c.at(i, j) += a.at(i, k) * b.at(k, j);
    return c;
}

// What the GPU's tensor cores round to 16 bits; the identity for other versions.
using Round = double (*)(double);
static double exact(double v) { return v; }
template <class X>
static double round_to_type(double v) {
    return double(float(X(float(v))));
}

static Matrix orthogonalize(Matrix x, Round round = exact) {
    if (x.shape.rows > x.shape.columns) return transpose(orthogonalize(transpose(x), round));
    double squares = 0;
    for (double v : x.x) squares += v * v;
    for (double& v : x.x) v = round(v / std::max(std::sqrt(squares), 1e-7));
    for (int step = 0; step < 5; step++) {
        Matrix gram = multiply(x, transpose(x));
        for (double& v : gram.x) v = round(v);
        const Matrix square = multiply(gram, gram);
        for (size_t i = 0; i < gram.x.size(); i++)
            gram.x[i] = round(-4.7750 * gram.x[i] + 2.0315 * square.x[i]);
        const Matrix change = multiply(gram, x);
        for (size_t i = 0; i < x.x.size(); i++) x.x[i] = round(3.4445 * x.x[i] + change.x[i]);
    }
    return x;
}

// A matrix and its momentum, both in double.
struct DoubleMuon {
    Matrix params, m;
    DoubleMuon(Shape shape, const std::vector<float>& start)
        : params(shape, start), m(shape, std::vector<double>(shape.elements())) {}
    void step(const std::vector<float>& grads, const MuonStep& s, float decay, float scale,
              Round round = exact) {
        Matrix u = m;
        for (size_t i = 0; i < grads.size(); i++) {
            const double g = double(grads[i]) * double(scale), mu = double(s.momentum);
            m.x[i] = mu * m.x[i] + (1 - mu) * g;
            u.x[i] = mu * m.x[i] + (1 - mu) * g;
        }
        u = orthogonalize(u, round);
        const double lr = double(s.learning_rate),
                     rate = lr * 0.2 * std::sqrt(double(std::max(u.shape.rows, u.shape.columns)));
        for (size_t i = 0; i < u.x.size(); i++)
            params.x[i] = params.x[i] * (1 - lr * double(decay)) - rate * u.x[i];
    }
};

// The singular values of a matrix, by one-sided Jacobi rotations of its rows.
static std::vector<double> singular_values(const std::vector<float>& values, Shape shape) {
    Matrix x(shape, values);
    if (shape.rows > shape.columns) x = transpose(x);
    const int n = x.shape.rows, columns = x.shape.columns;
    const auto dot = [&](int i, int j) {
        double sum = 0;
        for (int c = 0; c < columns; c++) sum += x.at(i, c) * x.at(j, c);
        return sum;
    };
    for (int sweep = 0; sweep < 30; sweep++)
        for (int i = 0; i < n; i++)
            for (int j = i + 1; j < n; j++) {
                const double angle = 0.5 * std::atan2(2 * dot(i, j), dot(i, i) - dot(j, j));
                for (int c = 0; c < columns; c++) {
                    const double a = x.at(i, c), b = x.at(j, c);
                    x.at(i, c) = std::cos(angle) * a + std::sin(angle) * b;
                    x.at(j, c) = std::cos(angle) * b - std::sin(angle) * a;
                }
            }
    std::vector<double> result;
    for (int i = 0; i < n; i++) result.push_back(std::sqrt(dot(i, i)));
    return result;
}

// --- several matrices of a shape, on the CPU or on a device ---

// What is updated, in host memory. The values are exact in Real.
template <class Real>
struct Values {
    Shape shape;
    std::vector<std::vector<float>> params, master, m, grads;  // one for each matrix

    Values(Shape s, int count, uint32_t seed, float gradient_size = 1) : shape(s) {
        for (uint32_t i = 0; i < uint32_t(count); i++) {
            params.push_back(random_values<Real>(s.elements(), seed + 2 * i, 0.1f));
            grads.push_back(random_values<Real>(s.elements(), seed + 2 * i + 1, gradient_size));
            m.push_back(std::vector<float>(s.elements(), 0.0f));
        }
        master = params;
    }
};

struct Settings {
    MuonStep step = muon_step(RATE, MOMENTUM, 1);
    bool with_master = false;
    std::vector<float> norm_and_scale = {};  // empty: null
    float decay = DECAY;
    size_t first = 0;  // index of the first matrix in its tensor
    size_t max_scratch = 1 << 20;
};

// An array on the host or a device for the matrices of `values`, one after the other, `shift` elements past
// aligned memory, between guard elements that show accesses out of bounds.
template <class Element>
struct GuardedArray {
    size_t shift, elements;
    DeviceArray<Element> array;
    GuardedArray(LaunchPad* pad, const std::vector<std::vector<float>>& values, size_t shift_)
        : shift(shift_), elements(values[0].size()), array(pad, join(values, shift_)) {}
    Element* matrix(size_t i) const { return array + shift + i * elements; }
    std::vector<std::vector<float>> values() const {
        const std::vector<float> all = array.values();
        EXPECT_EQ(all.front(), shift ? 42.0f : all.front());
        EXPECT_EQ(all.back(), 42.0f);
        std::vector<std::vector<float>> result;
        for (size_t i = shift; i + 1 < all.size(); i += elements)
            result.emplace_back(all.begin() + long(i), all.begin() + long(i + elements));
        return result;
    }

   private:
    static std::vector<float> join(const std::vector<std::vector<float>>& values, size_t shift) {
        std::vector<float> all(shift, 42.0f);
        for (const std::vector<float>& v : values) all.insert(all.end(), v.begin(), v.end());
        all.push_back(42.0f);
        return all;
    }
};

// launch(update) on the host (pad null) or a device.
template <class Real, class Launch>
static void update_on(LaunchPad* pad, const Launch& launch, Values<Real>& v, const Settings& s,
                      size_t shift = 0) {
    const GuardedArray<Real> params(pad, v.params, shift), grads(pad, v.grads, shift);
    const GuardedArray<float> master(pad, v.master, shift), m(pad, v.m, shift);
    const DeviceArray<float> norm(pad, s.norm_and_scale.empty() ? std::vector<float>(2) : s.norm_and_scale);
    Memory memory(pad);
    MuonStep* const step = memory.allocate<MuonStep>(1, "step");
    memory.upload(step, &s.step, 1);
    MuonUpdate<Real> update = {.matrices = {},
                               .rows = v.shape.rows,
                               .columns = v.shape.columns,
                               .step = step,
                               .weight_decay = s.decay,
                               .norm_and_scale = s.norm_and_scale.empty() ? nullptr : norm.data,
                               .max_scratch = s.max_scratch};
    for (size_t i = 0; i < v.params.size(); i++)
        update.matrices.push_back({.params = params.matrix(i),
                                   .master = s.with_master ? master.matrix(i) : nullptr,
                                   .m = m.matrix(i),
                                   .grads = grads.matrix(i),
                                   .first = s.first + i * v.shape.elements()});
    launch(update);
    v.params = params.values();
    v.master = master.values();
    v.m = m.values();
}

template <class Real>
static void update_on_cpu(Values<Real>& v, const Settings& s) {
    update_on<Real>(
        nullptr, [](const auto& update) { muon_update(nullptr, update); }, v, s);
}

static void expect_bits(const std::vector<std::vector<float>>& got,
                        const std::vector<std::vector<float>>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); i++) EXPECT_EQ(got[i], want[i]) << "matrix " << i;
}

static std::vector<float> difference(const std::vector<float>& now, const std::vector<float>& before) {
    std::vector<float> change(now);
    for (size_t i = 0; i < now.size(); i++) change[i] -= before[i];
    return change;
}

// --- torch.optim.Muon ---

// tests/reference/muon.bin, in the order in which dev/make_muon_reference.py writes it.
struct TorchReference {
    std::string bytes = read_whole_file(SOURCE_DIR "/tests/reference/muon.bin");
    size_t position = 0;
    template <class T>
    T next() {
        T value;
        if (position + sizeof value > bytes.size()) throw Error("tests/reference/muon.bin is too short");
        memcpy(&value, bytes.data() + position, sizeof value);
        position += sizeof value;
        return value;
    }
    std::vector<float> floats(size_t n) {
        std::vector<float> values(n);
        for (float& v : values) v = next<float>();
        return values;
    }
};

// Ten steps of each of torch's matrices by `update`, on `Values` of one matrix. The change of each step and
// of all of them must agree to 1e-4; the rounding of parameters around 0.1 is 1e-6 of the smallest change.
template <class Update>
static void expect_torch(Update update) {
    TorchReference reference;
    const int matrices = reference.next<int>(), steps = reference.next<int>();
    ASSERT_GE(matrices, 5);
    ASSERT_EQ(steps, 10);
    Settings settings;
    settings.step.momentum = reference.next<float>();
    settings.decay = reference.next<float>();
    const std::vector<float> rates = reference.floats(size_t(steps));
    for (int i = 0; i < matrices; i++) {
        const int rows = reference.next<int>(), columns = reference.next<int>();
        SCOPED_TRACE(format_string("%d x %d", rows, columns));
        Values<float> v({rows, columns}, 1, 1);
        const std::vector<float> start = v.params[0] = reference.floats(v.shape.elements());
        std::vector<float> want = start;
        for (int t = 0; t < steps; t++) {
            const std::vector<float> before = v.params[0], want_before = want;
            v.grads[0] = reference.floats(v.shape.elements());
            want = reference.floats(v.shape.elements());
            settings.step.learning_rate = rates[size_t(t)];
            update(v, settings);
            expect_close("change", difference(v.params[0], before), difference(want, want_before), 1e-4);
        }
        expect_close("change of all steps", difference(v.params[0], start), difference(want, start), 1e-4);
        expect_close("m", v.m[0], reference.floats(v.shape.elements()), 1e-6);
    }
    EXPECT_EQ(reference.position, reference.bytes.size());
}

TEST(Muon, CpuMatchesTorch) { expect_torch(update_on_cpu<float>); }

// The last two are larger than a strip of the symmetric GEMM and than a block of K.
TEST(Muon, CpuMatchesDouble) {
    std::vector<Shape> shapes(std::begin(SHAPES), std::end(SHAPES));
    shapes.insert(shapes.end(), {{401, 433}, {450, 210}});
    for (Shape shape : shapes) {
        SCOPED_TRACE(format_string("%d x %d", shape.rows, shape.columns));
        Values<float> v(shape, 1, 1);
        const std::vector<float> start = v.params[0];
        DoubleMuon want(shape, start);
        for (int t = 1; t <= (shape.rows > 400 ? 1 : 3); t++) {
            v.grads[0] = random_values(shape.elements(), uint32_t(10 + t), 1e-3f);
            const Settings s = {.step = muon_step(RATE * float(t), MOMENTUM, t),
                                .norm_and_scale = {4, 0.25f}};
            update_on_cpu(v, s);
            want.step(v.grads[0], s.step, s.decay, 0.25f);
        }
        const std::vector<float> end(want.params.x.begin(), want.params.x.end());
        expect_close("change", difference(v.params[0], start), difference(end, start), 2e-5);
        expect_close("m", v.m[0], {want.m.x.begin(), want.m.x.end()}, 1e-6);
    }
}

TEST(Muon, CpuIsBitIdenticalForAnyNumberOfThreads) {
    const int threads = omp_get_max_threads();
    std::vector<std::vector<float>> results;
    for (int count : {1, 2, 5}) {
        omp_set_num_threads(count);
        Values<float> v({210, 433}, 1, 1);
        update_on_cpu(v, {});
        results.push_back(v.params[0]);
    }
    omp_set_num_threads(threads);
    EXPECT_EQ(results[1], results[0]);
    EXPECT_EQ(results[2], results[0]);
}

// --- GPU ---

// Calls check(update) with a function (Values&, Settings) for the CPU, and for every version, the first
// config only, on every launchpad.
template <class Real, class Check>
static void for_each_device(Check check) {
    auto versions = muon_update_versions<Real>();
    for (auto& version : versions) version.configs.resize(1);
    for_cpu_and_each_version<Real>(muon_update<Real>, versions, [&](LaunchPad* pad, const auto& launch) {
        check([&](Values<Real>& v, const Settings& s) { update_on<Real>(pad, launch, v, s); });
    });
}

// Which take matrices that are aligned to four elements, as those of a model are.
static bool is_on_tensor_cores(const LaunchPad& pad, const std::string& version, Shape shape) {
    return version == "muon_update2" && muon_on_tensor_cores(pad, shape.rows, shape.columns);
}

// The relative error of a change: of fp32, or of X in bf16.
static double gpu_tolerance(const LaunchPad& pad, const std::string& version, Shape shape) {
    return is_on_tensor_cores(pad, version, shape) ? 0.05 : 2e-5;
}

template <class Real>
struct MuonTyped : testing::Test {};
TYPED_TEST_SUITE(MuonTyped, RealTypes);

// Every version in every shape, aligned and not, and its other configs in one shape: three steps against the
// CPU.
TYPED_TEST(MuonTyped, GpuMatchesCpu) {
    using Real = TypeParam;
    const bool with_master = !std::is_same_v<Real, float>;
    for_each_version<Real>(muon_update_versions<Real>(), [&](LaunchPad& pad, auto& version, int block_size) {
        const auto launch = [&](const auto& update) { version.launch(pad, update, block_size); };
        for (Shape shape : SHAPES)
            for (size_t shift : {0, 3}) {
                if (block_size != version.configs[0] && (shift || shape.rows != 72)) continue;
                if (shift && is_on_tensor_cores(pad, version.name, shape)) continue;
                SCOPED_TRACE(format_string("%d x %d, shift %zu", shape.rows, shape.columns, shift));
                Values<Real> want(shape, 2, 1), got = want;
                const double tolerance = gpu_tolerance(pad, version.name, shape);
                const std::vector<std::vector<float>> start = want.master;
                for (int t = 1; t <= 3; t++) {
                    want.grads = got.grads = Values<Real>(shape, 2, uint32_t(100 * t), 1e-3f).grads;
                    const Settings s = {.step = muon_step(RATE * float(t), MOMENTUM, t),
                                        .with_master = with_master,
                                        .norm_and_scale = {4, 0.25f}};
                    update_on_cpu(want, s);
                    update_on<Real>(&pad, launch, got, s, shift);
                }
                const auto& weights = with_master ? got.master : got.params;
                const auto& expected = with_master ? want.master : want.params;
                for (size_t i = 0; i < weights.size(); i++) {
                    expect_close("change", difference(weights[i], start[i]),
                                 difference(expected[i], start[i]), tolerance);
                    expect_close("m", got.m[i], want.m[i], 1e-6);
                }
            }
    });
}

// Without weight decay and with a suitable learning rate, weights of 0 become the negative X.
TYPED_TEST(MuonTyped, SingularValuesAreNearOne) {
    using Real = TypeParam;
    for_each_device<Real>([](auto update) {
        for (Shape shape : {Shape{24, 40}, Shape{40, 24}, Shape{32, 32}, Shape{1, 9}, Shape{13, 50}}) {
            SCOPED_TRACE(format_string("%d x %d", shape.rows, shape.columns));
            Values<Real> v(shape, 1, 7);
            v.params[0] = v.master[0] = std::vector<float>(shape.elements(), 0.0f);
            const std::vector<double> before = singular_values(v.grads[0], shape);
            double squares = 0;
            for (double s : before) squares += s * s;
            for (double s : before) ASSERT_GE(s / std::sqrt(squares), 0.0016);
            const float rate = 1 / (0.2f * std::sqrt(float(std::max(shape.rows, shape.columns))));
            update(v, Settings{.step = muon_step(rate, MOMENTUM, 1),
                               .with_master = !std::is_same_v<Real, float>,
                               .decay = 0});
            for (double s : singular_values(std::is_same_v<Real, float> ? v.params[0] : v.master[0], shape)) {
                EXPECT_GE(s, 0.65);
                EXPECT_LE(s, 1.23);
            }
        }
    });
}

// Parameters are master weights that were rounded with the random bits of AdamW, and without master weights
// the same. Within the second matrix, indices pass 2^32.
template <class Real>
struct MuonRandom : testing::Test {};
TYPED_TEST_SUITE(MuonRandom, SmallTypes);

TYPED_TEST(MuonRandom, ParametersAreRoundedAtRandom) {
    using Real = TypeParam;
    const Shape shape = {24, 40};
    for_each_device<Real>([&](auto update) {
        Settings s = {
            .step = muon_step(RATE, MOMENTUM, 5), .with_master = true, .first = (1ull << 32) - 1000};
        Values<Real> with(shape, 2, 3), without = with;
        update(with, s);
        s.with_master = false;
        update(without, s);
        expect_bits(without.params, with.params);
        size_t rounded_up = 0;
        for (size_t i = 0; i < 2; i++)
            for (size_t j = 0; j < shape.elements(); j++) {
                const size_t element = s.first + i * shape.elements() + j;
                const uint32_t key = hash(hash(5) ^ uint32_t(element >> 32));
                const float master = with.master[i][j];
                ASSERT_EQ(with.params[i][j],
                          float(round_randomly<Real>(master, hash(uint32_t(element) ^ key))));
                rounded_up += std::abs(with.params[i][j]) > std::abs(master);
            }
        EXPECT_GT(rounded_up, 700u);
        EXPECT_LT(rounded_up, 1220u);
    });
}

// A call for several matrices is bit-identical to a call for each, and a second run to the first.
TYPED_TEST(MuonTyped, BatchesAreBitIdentical) {
    using Real = TypeParam;
    for_each_device<Real>([](auto update) {
        for (Shape shape : {Shape{24, 40}, Shape{50, 13}}) {
            const int count = 5;
            const Settings s = {.first = 1000};
            Values<Real> together(shape, count, 3), again = together;
            const Values<Real> start = together;
            update(together, s);
            update(again, s);
            expect_bits(again.params, together.params);
            for (size_t i = 0; i < count; i++) {
                Values<Real> one(shape, 1, 3);
                one.params[0] = start.params[i];
                one.grads[0] = start.grads[i];
                update(one, {.first = s.first + i * shape.elements()});
                EXPECT_EQ(one.params[0], together.params[i]) << "matrix " << i;
                EXPECT_EQ(one.m[0], together.m[i]) << "matrix " << i;
            }
        }
    });
}

// X of zeros is zero, and of a tiny gradient no NaN: the weights only decay.
TYPED_TEST(MuonTyped, ZeroGradients) {
    using Real = TypeParam;
    for_each_device<Real>([](auto update) {
        for (float size : {0.0f, 1e-30f}) {
            Values<Real> v({24, 40}, 2, 3);
            for (auto& grads : v.grads) std::fill(grads.begin(), grads.end(), size);
            const std::vector<std::vector<float>> start = v.master;
            Settings s;
            s.with_master = !std::is_same_v<Real, float>;
            update(v, s);
            for (size_t i = 0; i < 2; i++) {
                std::vector<float> decayed = start[i];
                for (float& w : decayed) w *= 1 - RATE * DECAY;
                expect_close("weights", s.with_master ? v.master[i] : v.params[i], decayed, 1e-7);
            }
        }
    });
}

// Gradients that are not finite: the norm of all gradients says so, and nothing changes.
TYPED_TEST(MuonTyped, SkipsIfTheNormIsNotFiniteOrTheScaleIsZero) {
    using Real = TypeParam;
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    for_each_device<Real>([&](auto update) {
        for (const std::vector<float>& norm_and_scale : std::vector<std::vector<float>>{
                 {nan, 0.0f}, {inf, 0.0f}, {1.0f, 0.0f}, {nan, 1.0f}, {inf, 1.0f}, {-inf, 1.0f}}) {
            Values<Real> v({24, 40}, 2, 3);
            v.grads[0] = nans(v.shape.elements());
            std::fill(v.grads[1].begin(), v.grads[1].end(), inf);
            v.m[0] = v.m[1] = random_values(v.shape.elements(), 8);
            const Values<Real> start = v;
            update(v, {.with_master = !std::is_same_v<Real, float>, .norm_and_scale = norm_and_scale});
            expect_bits(v.params, start.params);
            expect_bits(v.master, start.master);
            expect_bits(v.m, start.m);
        }
    });
}

// On tensor cores, against a reference in double that rounds where the kernels round. Its sums are exact, so
// that some values round the other way, and each step of Newton-Schulz enlarges the difference.
TYPED_TEST(MuonTyped, MatrixVersionMatchesRoundedDouble) {
    using Real = TypeParam;
    if (test_pads().empty() || !muon_on_tensor_cores(*test_pads()[0], 8, 8))
        GTEST_SKIP() << "no fragments for Muon";
    const bool fp16_pieces = test_pads()[0]->limits().fp16_pieces;
    const bool with_master = !std::is_same_v<Real, float>;
    for_each_version<Real>(muon_update_versions<Real>(), [&](LaunchPad& pad, auto& version, int block_size) {
        if (strcmp(version.name, "muon_update2") != 0 || block_size != version.configs[0]) return;
        for (Shape shape : {Shape{32, 32}, Shape{24, 40}, Shape{40, 24}, Shape{72, 136}}) {
            SCOPED_TRACE(format_string("%d x %d", shape.rows, shape.columns));
            ASSERT_TRUE(muon_on_tensor_cores(pad, shape.rows, shape.columns));
            Values<Real> v(shape, 3, 5);
            Settings s = {.with_master = with_master};
            const Values<Real> start = v;
            const auto launch = [&](const auto& update) { version.launch(pad, update, block_size); };
            update_on<Real>(&pad, launch, v, s);
            // a batch of two matrices, and one of one
            const size_t n = size_t(std::min(shape.rows, shape.columns));
            Values<Real> other = start;
            s.max_scratch = 2 * 2 * (shape.elements() + n * n) * 2 + 1;
            update_on<Real>(&pad, launch, other, s);
            expect_bits(other.params, v.params);
            expect_bits(other.master, v.master);
            for (size_t i = 0; i < 3; i++) {
                DoubleMuon want(shape, start.params[i]);
                want.step(start.grads[i], s.step, s.decay, 1,
                          fp16_pieces ? round_to_type<fp16> : round_to_type<bf16>);
                const std::vector<float> end(want.params.x.begin(), want.params.x.end());
                expect_close("change", difference(with_master ? v.master[i] : v.params[i], start.params[i]),
                             difference(end, start.params[i]), fp16_pieces ? 2e-3 : 2e-2);
            }
        }
    });
}

TEST(Muon, RejectsMasterWeightsOfFloats) {
    Values<float> v({3, 5}, 1, 1);
    EXPECT_THROW(update_on_cpu(v, {.with_master = true}), Error);
}

TEST(Muon, RejectsEmptyMatrices) {
    const MuonStep step = muon_step(RATE, MOMENTUM, 1);
    EXPECT_THROW(muon_update<float>(nullptr, {.matrices = {}, .rows = 0, .columns = 5, .step = &step}),
                 Error);
}
