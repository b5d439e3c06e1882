// The factor of fp16 gradients: when it is halved, when doubled, and which late results it ignores.
#include "llmc/loss_scaling.h"

#include <gtest/gtest.h>

TEST(LossScaling, IsHalvedOncePerOverflowThoughResultsComeLate) {
    LossScaling scaling;
    float factor = LossScaling::first;
    factor = scaling.next(factor, 0, 1.0f, 2);
    EXPECT_EQ(factor, 65536);
    factor = scaling.next(factor, 1, INFINITY, 3);  // step 2 has begun with the old factor
    EXPECT_EQ(factor, 32768);
    factor = scaling.next(factor, 2, INFINITY, 4);
    EXPECT_EQ(factor, 32768);
    factor = scaling.next(factor, 3, NAN, 5);
    EXPECT_EQ(factor, 16384);
}

TEST(LossScaling, IsDoubledAfterManyGoodStepsInARow) {
    LossScaling scaling;
    float factor = 1024;
    int step = 0;
    auto run = [&](float norm) { factor = scaling.next(factor, step, norm, step + 1), step++; };
    for (int i = 0; i < 1999; i++) run(1.0f);
    EXPECT_EQ(factor, 1024);
    run(1.0f);
    EXPECT_EQ(factor, 2048);
    for (int i = 0; i < 1999; i++) run(1.0f);
    run(NAN);
    EXPECT_EQ(factor, 1024);
    for (int i = 0; i < 1999; i++) run(1.0f);
    EXPECT_EQ(factor, 1024);
    run(1.0f);
    EXPECT_EQ(factor, 2048);
}

TEST(LossScaling, StaysWithinItsBounds) {
    LossScaling scaling;
    float factor = LossScaling::most;
    for (int step = 0; step < 2500; step++) factor = scaling.next(factor, step, 1.0f, step + 1);
    EXPECT_EQ(factor, LossScaling::most);
    for (int step = 2500; step < 2600; step++) factor = scaling.next(factor, step, NAN, step + 1);
    EXPECT_EQ(factor, 1);
}
