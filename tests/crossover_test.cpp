// Crossover sizes of made-up times.
#include "dev/report/crossover.h"

#include <gtest/gtest.h>

#include <cmath>

TEST(Crossover, LiesBetweenTheLastLossAndTheFirstWin) {
    // the old method takes `size` seconds, the new one always 200; in any order
    const Crossover found = find_crossover({{1000, 200, 1000}, {10, 200, 10}, {100, 200, 100}});
    EXPECT_EQ(found.kind, Crossover::at);
    EXPECT_EQ(found.lost_at, 100);
    EXPECT_EQ(found.won_from, 1000);
    EXPECT_NEAR(found.size, 200, 1e-9);
    EXPECT_EQ(crossover_text(found), "200 (GPU slower at 100, faster at 1000)");
}

// A win at a small size does not count if the new method is slower at a larger one.
TEST(Crossover, TheLastLossCounts) {
    const Crossover found = find_crossover({{1, 1, 2}, {2, 3, 2}, {4, 5, 4}, {8, 6, 8}, {16, 7, 16}});
    EXPECT_EQ(found.kind, Crossover::at);
    EXPECT_EQ(found.lost_at, 4);
    EXPECT_EQ(found.won_from, 8);
}

TEST(Crossover, EqualTimesAreNoWin) {
    const Crossover found = find_crossover({{10, 5, 5}, {20, 5, 10}});
    EXPECT_EQ(found.lost_at, 10);
    EXPECT_DOUBLE_EQ(found.size, 10);
}

TEST(Crossover, AlwaysAndNever) {
    const Crossover always = find_crossover({{50, 1, 2}, {100, 1, 3}});
    EXPECT_EQ(always.kind, Crossover::always);
    EXPECT_EQ(crossover_text(always), "below 50 (GPU faster at every size)");
    const Crossover never = find_crossover({{50, 1, 2}, {1e9, 4, 3}});
    EXPECT_EQ(never.kind, Crossover::never);
    EXPECT_EQ(crossover_text(never, "one kernel", "five"),
              "none (one kernel slower up to 1e+09, the largest size)");
}

TEST(Crossover, SizesWithoutBothTimesAreIgnored) {
    EXPECT_EQ(find_crossover({}).kind, Crossover::unknown);
    EXPECT_EQ(find_crossover({{10, NAN, 1}, {20, 1, 0}, {30, 1, NAN}}).kind, Crossover::unknown);
    EXPECT_EQ(crossover_text({}), "unknown (no size was measured on both GPU and CPU)");
    const Crossover found = find_crossover({{10, 2, 1}, {20, 1, 2}, {30, 5, NAN}});
    EXPECT_EQ(found.won_from, 20);
}
