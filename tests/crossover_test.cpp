// The size from which on one way wins, of made-up times.
#include "dev/report/crossover.h"

#include <gtest/gtest.h>

#include <cmath>

TEST(Crossover, LiesBetweenTheLastLossAndTheFirstWin) {
    // the old way takes as many seconds as the size, the new one 200 always; in no order
    const Crossover found = find_crossover({{1000, 200, 1000}, {10, 200, 10}, {100, 200, 100}});
    EXPECT_EQ(found.kind, Crossover::at);
    EXPECT_EQ(found.lost_at, 100);
    EXPECT_EQ(found.won_from, 1000);
    EXPECT_NEAR(found.size, 200, 1e-9);
    EXPECT_EQ(crossover_text(found), "the GPU wins from about 200 on (it lost at 100 and won at 1000)");
}

// A win among small sizes does not count where a larger size is lost again.
TEST(Crossover, TheLastLossCounts) {
    const Crossover found = find_crossover({{1, 1, 2}, {2, 3, 2}, {4, 5, 4}, {8, 6, 8}, {16, 7, 16}});
    EXPECT_EQ(found.kind, Crossover::at);
    EXPECT_EQ(found.lost_at, 4);
    EXPECT_EQ(found.won_from, 8);
}

TEST(Crossover, AnEqualTimeIsNoWin) {
    const Crossover found = find_crossover({{10, 5, 5}, {20, 5, 10}});
    EXPECT_EQ(found.lost_at, 10);
    EXPECT_DOUBLE_EQ(found.size, 10);
}

TEST(Crossover, AlwaysAndNever) {
    const Crossover always = find_crossover({{50, 1, 2}, {100, 1, 3}});
    EXPECT_EQ(always.kind, Crossover::always);
    EXPECT_EQ(crossover_text(always), "the GPU wins at every size measured, from 50 on");
    const Crossover never = find_crossover({{50, 1, 2}, {1e9, 4, 3}});
    EXPECT_EQ(never.kind, Crossover::never);
    EXPECT_EQ(crossover_text(never, "one kernel", "five"),
              "five is still the quicker one at the largest size measured with both, 1e+09");
}

TEST(Crossover, SizesWithoutBothTimesAreLeftOut) {
    EXPECT_EQ(find_crossover({}).kind, Crossover::unknown);
    EXPECT_EQ(find_crossover({{10, NAN, 1}, {20, 1, 0}, {30, 1, NAN}}).kind, Crossover::unknown);
    EXPECT_EQ(crossover_text({}), "no size was measured with both the GPU and the CPU");
    const Crossover found = find_crossover({{10, 2, 1}, {20, 1, 2}, {30, 5, NAN}});
    EXPECT_EQ(found.won_from, 20);
}
