// bf16 and fp16: all 65536 numbers of each converted to float and back, rounding against the two numbers that
// lie nearest, and the same conversions as the GPU does them.
#include "llmc/real.h"

#include "llmc/residual.h"
#include "tests/layer_test.h"

template <class T>
struct Format;
template <>
struct Format<bf16> {
    static const int fraction = 7, exponent = 8;
};
template <>
struct Format<fp16> {
    static const int fraction = 10, exponent = 5;
};

template <class T>
static T from_bits(int bits) {
    T t;
    t.bits = uint16_t(bits);
    return t;
}

// What a pattern of bits stands for, by the definition of IEEE 754, in double; infinite and NaN where it is.
template <class T>
static double value_of(int bits) {
    const int fraction_bits = Format<T>::fraction, bias = (1 << (Format<T>::exponent - 1)) - 1;
    const int exponent = (bits & 0x7fff) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
    double magnitude = exponent ? std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits)
                                : std::ldexp(fraction, 1 - bias - fraction_bits);
    if (exponent == (1 << Format<T>::exponent) - 1) magnitude = fraction ? NAN : INFINITY;
    return bits & 0x8000 ? -magnitude : magnitude;
}

template <class T>
struct Real : testing::Test {};
using SmallTypes = testing::Types<bf16, fp16>;
TYPED_TEST_SUITE(Real, SmallTypes);

TYPED_TEST(Real, EveryPatternThereAndBack) {
    using T = TypeParam;
    for (int bits = 0; bits < 0x10000; bits++) {
        const double want = value_of<T>(bits);
        const float got = float(from_bits<T>(bits));
        if (std::isnan(want)) {
            ASSERT_TRUE(std::isnan(got)) << bits;
            ASSERT_TRUE(std::isnan(float(T(got)))) << bits;
            continue;
        }
        ASSERT_EQ(double(got), want) << bits;
        ASSERT_EQ(std::signbit(got), bits >= 0x8000) << bits;
        ASSERT_EQ(T(got).bits, bits);
    }
}

// Numbers between each number and the next: the middle, a tie, goes to the even one; what lies next to the
// middle and next to the ends to the nearest. The number after the largest counts as the infinity.
TYPED_TEST(Real, RoundsToNearestEven) {
    using T = TypeParam;
    const int infinity = ((1 << Format<T>::exponent) - 1) << Format<T>::fraction;
    for (int sign : {0, 0x8000})
        for (int bits = 0; bits < infinity; bits++) {
            const double low = value_of<T>(bits), below = bits ? low - value_of<T>(bits - 1) : 0;
            const double high = bits + 1 < infinity ? value_of<T>(bits + 1) : low + below;
            const float middle = float((low + high) / 2), side = sign ? -1.0f : 1.0f;
            auto rounds_to = [&](float v, int want) {
                ASSERT_EQ(T(side * v).bits, sign | want)
                    << "of " << side * v << " between " << low << " and " << high;
            };
            if (double(middle) != (low + high) / 2) continue;  // fp32 has none: bf16's smallest
            rounds_to(middle, bits + (bits & 1));
            rounds_to(std::nextafterf(middle, 0), bits);
            rounds_to(std::nextafterf(middle, INFINITY), bits + 1);
            rounds_to(std::nextafterf(float(low), INFINITY), bits);
            if (bits + 1 < infinity) rounds_to(std::nextafterf(float(high), 0), bits + 1);
        }
}

TYPED_TEST(Real, Extremes) {
    using T = TypeParam;
    const float largest = std::numeric_limits<float>::max(), inf = INFINITY;
    EXPECT_EQ(float(T(largest)), inf);
    EXPECT_EQ(float(T(-largest)), -inf);
    EXPECT_EQ(float(T(inf)), inf);
    EXPECT_EQ(float(T(-inf)), -inf);
    EXPECT_EQ(T(0.0f).bits, 0);
    EXPECT_EQ(T(-0.0f).bits, 0x8000);
    EXPECT_EQ(float(fp16(0x1p-25f)), 0.0f);  // a tie with 0
    EXPECT_EQ(float(fp16(1e-30f)), 0.0f);
    for (uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u, 0x7f80ffffu})
        EXPECT_TRUE(std::isnan(float(T(std::bit_cast<float>(nan))))) << nan;
}

// The GPU loads and stores through fp32: one element, four or eight at once. A device may flush fp16's
// subnormals and bf16's, which are subnormal in fp32, to zero, of either sign.
TYPED_TEST(Real, GpuKeepsEveryPattern) {
    using T = TypeParam;
    std::vector<T> all(0x10000), got(all.size());
    for (size_t i = 0; i < all.size(); i++) all[i] = from_bits<T>(int(i));
    const float smallest_normal = float(from_bits<T>(1 << Format<T>::fraction));
    auto check = [&](LaunchPad& pad, auto& version, int block) {
        DeviceArray<T> inp(pad, 8 + all.size()), out(pad, 8 + all.size());
        DeviceArray<T> zeros(pad, std::vector<float>(all.size(), -0.0f));
        for (size_t shift : {0, 1, 4}) {  // which decide between the widths
            pad.upload(inp + shift, all.data(), all.size() * sizeof(T));
            version.launch(pad, out + shift, inp + shift, zeros, all.size(), block);
            pad.download(got.data(), out + shift, all.size() * sizeof(T));
            size_t flushed = 0;
            for (size_t i = 0; i < all.size(); i++) {
                const float want = float(all[i]), value = float(got[i]);
                const bool may_flush = std::abs(want) < smallest_normal;
                flushed += value == 0 && want != 0;
                ASSERT_TRUE(value == want || (std::isnan(value) && std::isnan(want)) ||
                            (may_flush && value == 0))
                    << i << ": " << want << " came back as " << value;
            }
            this->RecordProperty(format_string("%s_flushed_shift_%zu", real_name<T>(), shift),
                                 std::to_string(flushed));
        }
    };
    for_each_version<T>(residual_forward_versions<T>(), check);
}

// Sums that T cannot represent are rounded as on the CPU: random ones, ties, and those that pass its largest
// number.
TYPED_TEST(Real, GpuRoundsAlike) {
    using T = TypeParam;
    const size_t n = 40000;
    std::vector<float> a = random_values<T>(n, 1), b = random_values<T>(n, 2);
    for (size_t i = 0; i < n; i += 4) {  // half of the last digit of numbers that are larger
        a[i] = float(T(std::abs(a[i]) + 1));
        b[i] = std::ldexp(1.0f, std::ilogb(a[i]) - Format<T>::fraction - 1);
    }
    const float largest = float(from_bits<T>((((1 << Format<T>::exponent) - 1) << Format<T>::fraction) - 1));
    a[1] = b[1] = largest;
    a[3] = b[3] = -largest;
    std::vector<float> want(n);
    for (size_t i = 0; i < n; i++) want[i] = float(T(a[i] + b[i]));
    EXPECT_EQ(want[1], INFINITY);
    for_each_version<T>(residual_forward_versions<T>(), [&](LaunchPad& pad, auto& version, int block) {
        DeviceArray<T> inp1(pad, a), inp2(pad, b), out(pad, n);
        version.launch(pad, out, inp1, inp2, n, block);
        EXPECT_EQ(out.values(), want);
    });
}
