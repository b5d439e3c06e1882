// Dynamic loss scaling: when the factor is halved or doubled, and which late results it ignores.
#include "llmc/model/loss_scaling.h"

#include <gtest/gtest.h>

// Runs one step that ends with this norm; returns the factor that it ran with.
static float run(LossScaling& scaling, int step, float norm) {
    const float factor = scaling.for_step(step);
    scaling.add(step, norm);
    return factor;
}

TEST(LossScaling, IsHalvedOncePerOverflowDespiteLateResults) {
    LossScaling scaling;
    EXPECT_EQ(run(scaling, 0, 1.0f), 65536);
    EXPECT_EQ(run(scaling, 1, INFINITY), 65536);
    EXPECT_EQ(run(scaling, 2, INFINITY), 65536);  // began before the result of step 1 was known
    EXPECT_EQ(run(scaling, 3, NAN), 32768);
    EXPECT_EQ(run(scaling, 4, INFINITY), 32768);  // step 2 ran with the old factor
    EXPECT_EQ(run(scaling, 5, 1.0f), 16384);
    EXPECT_EQ(run(scaling, 6, 1.0f), 16384);
    EXPECT_EQ(run(scaling, 7, 1.0f), 16384);
}

TEST(LossScaling, DoesNotDependOnWhenResultsArrive) {
    LossScaling early, late;  // late: a step's result arrives after the next step began
    for (int step = 0; step < 40; step++) {
        const float norm = step % 7 < 2 ? NAN : 1.0f, last = (step - 1) % 7 < 2 ? NAN : 1.0f;
        EXPECT_EQ(run(early, step, norm), late.for_step(step)) << step;
        if (step) late.add(step - 1, last);
    }
}

TEST(LossScaling, IsDoubledAfterManyGoodStepsInARow) {
    LossScaling scaling;
    scaling.factor = 1024;
    int step = 0;
    for (int i = 0; i < 2001; i++) EXPECT_EQ(run(scaling, step++, 1.0f), 1024);
    EXPECT_EQ(run(scaling, step++, 1.0f), 2048);
    for (int i = 0; i < 1998; i++) run(scaling, step++, 1.0f);
    EXPECT_EQ(run(scaling, step++, NAN), 2048);
    EXPECT_EQ(run(scaling, step++, 1.0f), 2048);
    EXPECT_EQ(run(scaling, step++, 1.0f), 1024);
    for (int i = 0; i < 1999; i++) EXPECT_EQ(run(scaling, step++, 1.0f), 1024) << i;
    run(scaling, step++, 1.0f);
    EXPECT_EQ(run(scaling, step++, 1.0f), 2048);
}

TEST(LossScaling, StaysWithinItsBounds) {
    LossScaling scaling;
    scaling.factor = LossScaling::most;
    for (int step = 0; step < 2500; step++) EXPECT_EQ(run(scaling, step, 1.0f), LossScaling::most);
    for (int step = 2500; step < 2600; step++) run(scaling, step, NAN);
    EXPECT_EQ(scaling.for_step(2600), 1);
}
