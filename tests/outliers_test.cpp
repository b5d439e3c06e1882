// The outlier detector: when it starts, what it detects, and that neither NaN nor spikes disable it.
#include "llmc/run/outliers.h"

#include <gtest/gtest.h>

// A full window of 10 +- 1: mean 10, standard deviation 1.
static OutlierDetector filled() {
    OutlierDetector detector;
    for (int i = 0; i < 128; i++) EXPECT_FALSE(detector.add(i % 2 ? 9 : 11, 0));
    return detector;
}

TEST(OutlierDetector, StartsWithAFullWindow) {
    OutlierDetector detector;
    for (int i = 0; i < 128; i++) {
        EXPECT_TRUE(std::isnan(detector.z_score(1e6)));
        EXPECT_FALSE(detector.add(i % 2 ? 9 : 11, 3));
    }
    EXPECT_DOUBLE_EQ(detector.z_score(15), 5);
    EXPECT_DOUBLE_EQ(detector.z_score(7), -3);
}

TEST(OutlierDetector, DetectsOnlyValuesAboveTheLimit) {
    EXPECT_TRUE(filled().add(13.5, 3));
    EXPECT_FALSE(filled().add(12.5, 3));
    EXPECT_FALSE(filled().add(-1e6, 3));
    EXPECT_FALSE(filled().add(1e6, 0));
    EXPECT_TRUE(filled().add(
        1000, 12));  // llm.c's z-score is at most 11.27, since its window contains the value itself
}

TEST(OutlierDetector, NaNDoesNotDisableIt) {
    OutlierDetector detector = filled();
    for (double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL})
        for (int i = 0; i < 200; i++) EXPECT_FALSE(detector.add(bad, 3));
    EXPECT_DOUBLE_EQ(detector.z_score(15), 5);
    EXPECT_TRUE(detector.add(15, 3));
}

TEST(OutlierDetector, SpikesDoNotWidenTheWindow) {
    OutlierDetector detector = filled();
    for (int i = 0; i < 6; i++) EXPECT_TRUE(detector.add(1e6, 3)) << i;
    EXPECT_GT(detector.z_score(20), 5);
    EXPECT_TRUE(detector.add(20, 3));
}

TEST(OutlierDetector, FollowsANewLevel) {
    OutlierDetector detector = filled();
    int skipped = 0;
    while (detector.add(20 + skipped % 2, 3) && skipped < 1000) skipped++;
    EXPECT_GT(skipped, 3);
    EXPECT_LT(skipped, 64);
}

TEST(OutlierDetector, EqualValuesHaveNoZ) {
    OutlierDetector detector;
    for (int i = 0; i < 200; i++) EXPECT_FALSE(detector.add(4.25, 3));
    EXPECT_TRUE(std::isnan(detector.z_score(5)));
}

// A value that lies as far from the mean as the limit allows is none.
TEST(OutlierDetector, TheLimitItselfIsNotExceeded) {
    OutlierDetector detector;
    for (size_t i = 0; i < OutlierDetector::window; i++) detector.add(i % 2 ? 1 : -1, 0);
    ASSERT_EQ(detector.z_score(2), 2);
    EXPECT_FALSE(detector.add(2, 2));
}
