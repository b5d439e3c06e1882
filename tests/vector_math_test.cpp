// exp_fast() against std::exp() in double: its error, the ends of its range, and NaN; and its vector version.
#include "llmc/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "llmc/cpu/simd.h"

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

// Bit by bit, over the whole range and beyond it.
TEST(ExpFast, HasTheSameResultsForVectors) {
    std::vector<float> xs = {0, -0.0f, 88.5f, -87, -87.001f, -3e38f, std::numeric_limits<float>::quiet_NaN()};
    for (float x = -100; x < 88; x += 0.0137f) xs.push_back(x);
    xs.resize((xs.size() + 3) / 4 * 4);
    for (size_t i = 0; i < xs.size(); i += 4) {
        Float4 v;
        memcpy(&v, &xs[i], sizeof v);
        exp_fast_vector(v);
        for (int j = 0; j < 4; j++) {
            const float want = exp_fast(xs[i + j]);
            EXPECT_TRUE(v[j] == want || (std::isnan(v[j]) && std::isnan(want))) << xs[i + j];
        }
    }
}
