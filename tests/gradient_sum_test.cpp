// Sums of gradients of several processes: on the CPU and on a GPU bit-identical to sums in order.
#include "llmc/layers/gradient_sum.h"
#include "dev/vulkan/baselines/baselines.h"

#include "tests/layer_test.h"

template <class Real>
struct GradientSumTest : testing::Test {};
TYPED_TEST_SUITE(GradientSumTest, RealTypes);

struct SumShape {
    size_t n, stride;
    int count, own_index;
};
// One element, odd sizes, an aligned size with padding between the rows, several blocks of the CPU version.
static const SumShape shapes[] = {{1, 1, 1, 0}, {13, 13, 2, 1}, {1000, 1024, 3, 0}, {10007, 10016, 5, 2}};

// Rows of gradients; the own row is separate, and NaN in `rows`. `sum` is what they add up to.
template <class Real>
struct SumCase {
    std::vector<float> rows, own, sum;
    explicit SumCase(const SumShape& s)
        : rows(random_values<Real>(s.stride * s.count, 3)), own(s.n), sum(s.n) {
        for (size_t i = 0; i < s.n; i++)
            for (int k = 0; k < s.count; k++) sum[i] += rows[k * s.stride + i];
        sum = rounded<Real>(sum);
        for (size_t i = 0; i < s.n; i++) std::swap(own[i], rows[s.own_index * s.stride + i]);
        std::fill_n(rows.begin() + s.own_index * s.stride, s.n, std::numeric_limits<float>::quiet_NaN());
    }
};

TYPED_TEST(GradientSumTest, AddsInOrder) {
    using Real = TypeParam;
    const auto check = [](LaunchPad* pad, const auto& launch) {
        for (const SumShape& s : shapes) {
            SCOPED_TRACE(format_string("%zu elements of %d", s.n, s.count));
            const SumCase<Real> c(s);
            DeviceArray<Real> rows(pad, c.rows), own(pad, c.own), out(pad, s.n), copy(pad, s.n);
            GradientSum<Real> p = {.out = out,
                                   .inp = rows,
                                   .own = own,
                                   .n = s.n,
                                   .stride = s.stride,
                                   .count = s.count,
                                   .own_index = s.own_index};
            launch(p);
            EXPECT_EQ(out.values(), c.sum);
            p.out = own;
            launch(p);
            EXPECT_EQ(own.values(), c.sum) << "in place";
            launch({.out = out,
                    .copy = copy,
                    .inp = own,
                    .own = nullptr,
                    .n = s.n,
                    .stride = s.n,
                    .count = 1,
                    .own_index = -1});
            EXPECT_EQ(out.values(), c.sum) << "copied";
            EXPECT_EQ(copy.values(), c.sum) << "copied twice";
        }
    };
    for_cpu_and_each_version<Real>(gradient_sum<Real>, with_baselines(gradient_sum_versions<Real>()), check);
}

// Sums of all shapes in one call, among them an empty one; enough of them for several threads.
TYPED_TEST(GradientSumTest, ManyAtOnceAddInOrder) {
    using Real = TypeParam;
    std::vector<SumCase<Real>> cases;
    std::vector<std::vector<Real>> rows, own, out;
    std::vector<GradientSum<Real>> sums;
    for (const SumShape& s : {shapes[0], shapes[1], SumShape{0, 8, 2, 0}, shapes[2], shapes[3], shapes[3]}) {
        const SumCase<Real>& c = cases.emplace_back(s);
        sums.push_back({.out = out.emplace_back(from_floats<Real>(nans(s.n))).data(),
                        .inp = rows.emplace_back(from_floats<Real>(c.rows)).data(),
                        .own = own.emplace_back(from_floats<Real>(c.own)).data(),
                        .n = s.n,
                        .stride = s.stride,
                        .count = s.count,
                        .own_index = s.own_index});
    }
    for (const size_t number : {size_t(1), sums.size()}) {
        gradient_sums<Real>(nullptr, {sums.begin(), sums.begin() + ptrdiff_t(number)});
        for (size_t i = 0; i < number; i++) EXPECT_EQ(to_floats(out[i]), cases[i].sum) << i;
    }
}
