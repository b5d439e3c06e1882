// The four schedules around the steps where their formula changes.
#include "llmc/model/schedulers.h"

#include <gtest/gtest.h>

#include <cmath>

static Scheduler make(Schedule schedule, float final_fraction) {
    return {schedule, 1e-3f, 10, 110, final_fraction};
}

TEST(Schedulers, AllWarmUp) {
    for (Schedule schedule : {Schedule::cosine, Schedule::linear, Schedule::constant, Schedule::wsd}) {
        EXPECT_FLOAT_EQ(learning_rate(make(schedule, 0.1f), 0), 1e-4f);
        EXPECT_FLOAT_EQ(learning_rate(make(schedule, 0.1f), 4), 5e-4f);
        EXPECT_FLOAT_EQ(learning_rate(make(schedule, 0.1f), 9), 1e-3f);
        EXPECT_FLOAT_EQ(learning_rate(make(schedule, 0.1f), 10), 1e-3f);
    }
}

TEST(Schedulers, Decay) {
    EXPECT_FLOAT_EQ(learning_rate(make(Schedule::cosine, 0.1f), 35), 1e-4f + 0.85355339f * 9e-4f);
    EXPECT_FLOAT_EQ(learning_rate(make(Schedule::cosine, 0.1f), 60), 5.5e-4f);
    EXPECT_FLOAT_EQ(learning_rate(make(Schedule::cosine, 0.1f), 110), 1e-4f);
    EXPECT_FLOAT_EQ(learning_rate(make(Schedule::linear, 0.1f), 35), 7.75e-4f);
    EXPECT_FLOAT_EQ(learning_rate(make(Schedule::linear, 0.1f), 110), 1e-4f);
    EXPECT_FLOAT_EQ(learning_rate(make(Schedule::constant, 0.1f), 110), 1e-3f);
    EXPECT_FLOAT_EQ(learning_rate(make(Schedule::wsd, 0.0f), 87), 1e-3f);
    EXPECT_FLOAT_EQ(learning_rate(make(Schedule::wsd, 0.0f), 88), 1e-3f);  // 0.8 * 110
    EXPECT_NEAR(learning_rate(make(Schedule::wsd, 0.0f), 99), 1e-3f * (1 - std::sqrt(0.5f)), 1e-9f);
    EXPECT_NEAR(learning_rate(make(Schedule::wsd, 0.0f), 110), 0.0f, 1e-9f);
}

TEST(Schedulers, EdgesStayFinite) {
    for (Schedule schedule : {Schedule::cosine, Schedule::linear, Schedule::constant, Schedule::wsd}) {
        for (int num_steps : {0, 1, 5, 10, 11}) {
            Scheduler scheduler = {schedule, 1e-3f, 10, num_steps, 0.1f};
            for (int step = 0; step < 30; step++) {
                float rate = learning_rate(scheduler, step);
                EXPECT_TRUE(rate >= 1e-4f * 0.999f && rate <= 1e-3f * 1.001f) << rate << " at step " << step;
            }
        }
        Scheduler no_warmup = {schedule, 1e-3f, 0, 10, 0.0f};
        EXPECT_FLOAT_EQ(learning_rate(no_warmup, 0), 1e-3f);
    }
}
