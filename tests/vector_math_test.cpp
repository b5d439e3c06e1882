// exp2_fast() and log_fast() against double precision: error, ends of the range, and NaN; and the vector
// version of exp2_fast().
#include "llmc/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "llmc/cpu/simd.h"

// The largest error from `first` to `end`, in units in the last place; NaN if a result is.
template <class Function, class Exact>
static double worst_error(Function function, Exact exact, float first, float end) {
    double worst = 0;
    for (float x = first; x < end; x += 1.0f / 1024 + 1e-5f) {
        const double want = exact(double(x)), unit = std::ldexp(1.0, std::ilogb(want) - 23);
        const double error = std::abs(double(function(x)) - want) / unit;
        if (std::isnan(error)) return error;
        worst = std::max(worst, error);
    }
    return worst;
}

TEST(Exp2Fast, IsWithinTwoUnitsInTheLastPlace) {
    EXPECT_LE(
        worst_error([](float x) { return exp2_fast(x); }, [](double x) { return std::exp2(x); }, -126, 127),
        2);
    for (int n = -126; n < 127; n++) EXPECT_EQ(exp2_fast(float(n)), std::ldexp(1.0f, n));
}

TEST(Exp2Fast, IsZeroFarBelow) {
    for (float x : {-126.001f, -150.0f, -1e9f, -3e38f, -std::numeric_limits<float>::infinity()})
        EXPECT_EQ(exp2_fast(x), 0) << x;
    EXPECT_GT(exp2_fast(-126), 0);
}

// Whatever the bits behind the first one of its mantissa.
TEST(Exp2Fast, KeepsNan) {
    for (uint32_t bits : {0x7fc00000u, 0xffc00000u, 0x7fffffffu, 0xffc00001u, 0x7fc001ffu})
        EXPECT_TRUE(std::isnan(exp2_fast(std::bit_cast<float>(bits)))) << bits;
}

TEST(LogFast, IsWithinTwoUnitsInTheLastPlace) {
    for (uint32_t bits = 0x00800000u; bits < 0x7f800000u; bits += 997) {
        const float x = std::bit_cast<float>(bits);
        const double want = std::log(double(x)), unit = std::ldexp(1.0, std::ilogb(want) - 23);
        ASSERT_LE(std::abs(double(log_fast(x)) - want), 2 * unit) << x;
    }
    EXPECT_EQ(log_fast(1), 0);
}

TEST(LogFast, GivesNanOfNanAndInfinity) {
    EXPECT_TRUE(std::isnan(log_fast(std::numeric_limits<float>::quiet_NaN())));
    EXPECT_TRUE(std::isnan(log_fast(std::numeric_limits<float>::infinity())));
}

// exp2_fast of all xs, one by one and by vectors.
template <class Vector>
static SIMD_INLINE void both_ways(const std::vector<float>& xs, float* scalar, float* vector) {
    for (size_t i = 0; i < xs.size(); i++) scalar[i] = exp2_fast(xs[i]);
    for (size_t i = 0; i < xs.size(); i += sizeof(Vector) / sizeof(float)) {
        Vector v;
        memcpy(&v, &xs[i], sizeof v);
        exp2_fast_vector(v);
        memcpy(vector + i, &v, sizeof v);
    }
}
static void both_ways_of_4(const std::vector<float>& xs, float* scalar, float* vector) {
    simd<both_ways<Float4>>(xs, scalar, vector);
}
static void both_ways_of_8(const std::vector<float>& xs, float* scalar, float* vector) {
    simd<both_ways<Float8>>(xs, scalar, vector);
}
static void both_ways_of_16(const std::vector<float>& xs, float* scalar, float* vector) {
    simd<both_ways<Float16>>(xs, scalar, vector);
}

// Bit by bit, over the whole range and beyond it, with the instruction set that attention uses.
TEST(Exp2Fast, HasTheSameResultsForVectors) {
    std::vector<float> xs = {0, -0.0f, 127.5f, -126, -126.001f, -3e38f, -INFINITY, NAN};
    for (float x = -140; x < 127; x += 0.0137f) xs.push_back(x);
    xs.resize((xs.size() + 15) / 16 * 16);
    for (const auto run : {both_ways_of_4, both_ways_of_8, both_ways_of_16}) {
        std::vector<float> want(xs.size()), have(xs.size());
        run(xs, want.data(), have.data());
        for (size_t i = 0; i < xs.size(); i++)
            EXPECT_TRUE(have[i] == want[i] || (std::isnan(have[i]) && std::isnan(want[i]))) << xs[i];
        EXPECT_EQ(have[6], 0);  // of -infinity, as masked keys have it
    }
}
