// exp_fast() against std::exp() in double: its error, the ends of its range, and NaN.
#include "llmc/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

TEST(ExpFast, IsWithinTwoUnitsInTheLastPlace) {
    double worst = 0;
    for (float x = -87; x < 88; x += 1.0f / 1024 + 1e-5f) {
        const double exact = std::exp(double(x)), unit = std::ldexp(1.0, std::ilogb(exact) - 23);
        worst = std::max(worst, std::abs(double(exp_fast(x)) - exact) / unit);
    }
    EXPECT_LE(worst, 2);
    EXPECT_EQ(exp_fast(0), 1);
    EXPECT_EQ(exp_fast(-0.0f), 1);
}

TEST(ExpFast, IsZeroFarBelow) {
    for (float x : {-87.001f, -100.0f, -1e9f, -3e38f, -std::numeric_limits<float>::infinity()})
        EXPECT_EQ(exp_fast(x), 0) << x;
    EXPECT_GT(exp_fast(-87), 0);
}

TEST(ExpFast, KeepsNan) { EXPECT_TRUE(std::isnan(exp_fast(std::numeric_limits<float>::quiet_NaN()))); }
