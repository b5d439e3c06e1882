// Tests bf16 and fp16: converts all 65536 bit patterns to float and back, compares rounding with the two
// nearest values, and compares the GPU's conversions with the CPU's.
#include "llmc/base/real.h"
#include "dev/vulkan/baselines/baselines.h"

#include "llmc/layers/gradient_sum.h"
#include "tests/layer_test.h"

template <class Real>
struct Format;
template <>
struct Format<bf16> {
    static const int fraction = 7, exponent = 8;
};
template <>
struct Format<fp16> {
    static const int fraction = 10, exponent = 5;
};

template <class Real>
static Real from_bits(int bits) {
    Real value;
    value.bits = uint16_t(bits);
    return value;
}

// The value of a bit pattern by the definition of IEEE 754, in double, including infinities and NaN.
template <class Real>
static double value_of(int bits) {
    const int fraction_bits = Format<Real>::fraction, bias = (1 << (Format<Real>::exponent - 1)) - 1;
    const int exponent = (bits & 0x7fff) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
    double magnitude = exponent ? std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits)
                                : std::ldexp(fraction, 1 - bias - fraction_bits);
    if (exponent == (1 << Format<Real>::exponent) - 1) magnitude = fraction ? NAN : INFINITY;
    return bits & 0x8000 ? -magnitude : magnitude;
}

template <class Real>
struct RealTest : testing::Test {};
using SmallTypes = testing::Types<bf16, fp16>;
TYPED_TEST_SUITE(RealTest, SmallTypes);

TYPED_TEST(RealTest, EveryPatternThereAndBack) {
    using Real = TypeParam;
    for (int bits = 0; bits < 0x10000; bits++) {
        const double want = value_of<Real>(bits);
        const float got = float(from_bits<Real>(bits));
        if (std::isnan(want)) {
            ASSERT_TRUE(std::isnan(got)) << bits;
            ASSERT_TRUE(std::isnan(float(Real(got)))) << bits;
            continue;
        }
        ASSERT_EQ(double(got), want) << bits;
        ASSERT_EQ(std::signbit(got), bits >= 0x8000) << bits;
        ASSERT_EQ(Real(got).bits, bits);
    }
}

// Rounds floats between each value and the next. The midpoint, a tie, rounds to even. Floats next to the
// midpoint and next to the two ends round to nearest. The value after the largest counts as infinity.
TYPED_TEST(RealTest, RoundsToNearestEven) {
    using Real = TypeParam;
    const int infinity = ((1 << Format<Real>::exponent) - 1) << Format<Real>::fraction;
    for (int sign : {0, 0x8000})
        for (int bits = 0; bits < infinity; bits++) {
            const double low = value_of<Real>(bits), below = bits ? low - value_of<Real>(bits - 1) : 0;
            const double high = bits + 1 < infinity ? value_of<Real>(bits + 1) : low + below;
            const float middle = float((low + high) / 2), side = sign ? -1.0f : 1.0f;
            auto rounds_to = [&](float v, int want) {
                ASSERT_EQ(Real(side * v).bits, sign | want)
                    << "of " << side * v << " between " << low << " and " << high;
            };
            ASSERT_EQ(double(middle), (low + high) / 2);
            rounds_to(middle, bits + (bits & 1));
            rounds_to(std::nextafterf(middle, 0), bits);
            rounds_to(std::nextafterf(middle, INFINITY), bits + 1);
            rounds_to(std::nextafterf(float(low), INFINITY), bits);
            if (bits + 1 < infinity) rounds_to(std::nextafterf(float(high), 0), bits + 1);
        }
}

TYPED_TEST(RealTest, Extremes) {
    using Real = TypeParam;
    const float largest = std::numeric_limits<float>::max(), inf = INFINITY;
    EXPECT_EQ(float(Real(largest)), inf);
    EXPECT_EQ(float(Real(-largest)), -inf);
    EXPECT_EQ(float(Real(inf)), inf);
    EXPECT_EQ(float(Real(-inf)), -inf);
    EXPECT_EQ(Real(0.0f).bits, 0);
    EXPECT_EQ(Real(-0.0f).bits, 0x8000);
    EXPECT_EQ(float(fp16(0x1p-25f)), 0.0f);  // a tie with 0
    EXPECT_EQ(float(fp16(1e-30f)), 0.0f);
    for (uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u, 0x7f80ffffu})
        EXPECT_TRUE(std::isnan(float(Real(std::bit_cast<float>(nan))))) << nan;
}

// The GPU loads and stores through fp32: one element, four or eight at once. A device may flush subnormals to
// zero of either sign, the fp16 values, and the bf16 values, which are subnormal in fp32 as well.
TYPED_TEST(RealTest, GpuKeepsEveryPattern) {
    using Real = TypeParam;
    std::vector<Real> all(0x10000), got(all.size());
    for (size_t i = 0; i < all.size(); i++) all[i] = from_bits<Real>(int(i));
    const float smallest_normal = float(from_bits<Real>(1 << Format<Real>::fraction));
    auto check = [&](LaunchPad& pad, auto& version, int block_size) {
        DeviceArray<Real> inp(pad, 8 + all.size()), out(pad, 8 + all.size());
        for (size_t shift : {0, 1, 4}) {  // each alignment selects another width
            pad.upload(inp + shift, all.data(), all.size() * sizeof(Real));
            version.launch(pad,
                           {.out = out + shift,
                            .inp = inp + shift,
                            .own = nullptr,
                            .n = all.size(),
                            .stride = all.size(),
                            .count = 1,
                            .own_index = -1},
                           block_size);
            pad.download(got.data(), out + shift, all.size() * sizeof(Real));
            size_t flushed = 0;
            for (size_t i = 0; i < all.size(); i++) {
                const float want = float(all[i]), value = float(got[i]);
                const bool may_flush = std::abs(want) < smallest_normal;
                flushed += value == 0 && want != 0;
                ASSERT_TRUE(value == want || (std::isnan(value) && std::isnan(want)) ||
                            (may_flush && value == 0))
                    << i << ": " << want << " came back as " << value;
            }
            this->RecordProperty(format_string("%s_flushed_shift_%zu", real_name<Real>(), shift),
                                 std::to_string(flushed));
        }
    };
    for_each_version<Real>(with_baselines(gradient_sum_versions<Real>()), check);
}

// The GPU rounds sums that Real cannot represent as the CPU does: random ones, ties, and overflows.
TYPED_TEST(RealTest, GpuRoundsAlike) {
    using Real = TypeParam;
    const size_t n = 40000;
    std::vector<float> a = random_values<Real>(n, 1), b = random_values<Real>(n, 2);
    for (size_t i = 0; i < n; i += 4) {  // ties: b is half a unit in the last place of a
        a[i] = float(Real(std::abs(a[i]) + 1));
        b[i] = std::ldexp(1.0f, std::ilogb(a[i]) - Format<Real>::fraction - 1);
    }
    const float largest =
        float(from_bits<Real>((((1 << Format<Real>::exponent) - 1) << Format<Real>::fraction) - 1));
    a[1] = b[1] = largest;
    a[3] = b[3] = -largest;
    std::vector<float> want(n);
    for (size_t i = 0; i < n; i++) want[i] = float(Real(a[i] + b[i]));
    EXPECT_EQ(want[1], INFINITY);
    a.insert(a.end(), b.begin(), b.end());
    for_each_version<Real>(with_baselines(gradient_sum_versions<Real>()), [&](LaunchPad& pad, auto& version,
                                                                              int block_size) {
        DeviceArray<Real> inp(pad, a), out(pad, n);
        version.launch(
            pad, {.out = out, .inp = inp, .own = nullptr, .n = n, .stride = n, .count = 2, .own_index = -1},
            block_size);
        EXPECT_EQ(out.values(), want);
    });
}
