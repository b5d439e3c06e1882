// Tests of the launchpad in every memory mode of the test device: postponed commands and recordings.
#include "tests/launchpad_test.h"

// A sum of the partials in a scratch slot, which waits for a barrier.
struct WaitingSum {
    LaunchPad& pad;
    DeviceArray<float> values, partials;  // the sum is the second of these values
    int runs = 0;
    explicit WaitingSum(LaunchPad& p)
        : pad(p), values(p, std::vector<float>(3)), partials(p, std::vector<float>{1, 2, 3}) {}
    float* sum() const { return values.data + 1; }
    void give() {
        float* slot = pad.scratch(Scratch::norm, 3);
        pad.copy(slot, partials, 3 * sizeof(float));
        pad.postpone(Scratch::norm, {{sum(), sizeof(float)}}, [this, slot] {
            runs++;
            add_to(pad, sum(), slot, 3);
        });
    }
};

// The next command outside of groups waits for what came before, and so does a group's first one; in a group,
// a barrier does.
TEST(Postponed, OverlapsWithWhatFollows) {
    for_each_mode([](LaunchPad& pad) {
        DeviceArray<float> one(pad, std::vector<float>{1.0f}), a(pad, std::vector<float>{0.0f});
        WaitingSum sum(pad);
        sum.give();
        EXPECT_EQ(sum.runs, 0);
        add_to(pad, a, one, 1);
        EXPECT_EQ(sum.runs, 1);
        sum.give();
        {
            const ConcurrentGroup group(&pad);
            EXPECT_EQ(sum.runs, 2);
            sum.give();
            add_to(pad, a, one, 1);
            EXPECT_EQ(sum.runs, 2);
            pad.barrier();
            EXPECT_EQ(sum.runs, 3);
            sum.give();
        }
        EXPECT_EQ(sum.runs, 3);
        EXPECT_EQ(sum.values.values()[1], 24.0f);  // downloads
        EXPECT_EQ(sum.runs, 4);
        EXPECT_EQ(a.values()[0], 2.0f);
    });
}

// Whether it still waits for a barrier or has just started, a command that uses its result waits for it.
TEST(Postponed, UsesOfTheResultWait) {
    for_each_mode([](LaunchPad& pad) {
        const float five = 5;
        DeviceArray<float> one(pad, std::vector<float>{1.0f});
        for (const char* use :
             {"kernel", "copy from", "copy to", "fill", "upload", "asynchronous copy", "replay"})
            for (const bool started : {false, true}) {
                SCOPED_TRACE(format_string("%s, %s", use, started ? "started" : "waiting"));
                DeviceArray<float> read(pad, std::vector<float>{0.0f});
                WaitingSum sum(pad);
                float value = 6, expected_read = 6;
                sum.give();
                if (started) add_to(pad, one, one, 1, 0.0f);
                if (!strcmp(use, "kernel")) add_to(pad, read, sum.values, 3);
                if (!strcmp(use, "copy from")) pad.copy(read, sum.sum(), sizeof(float));
                if (!strcmp(use, "copy to"))
                    pad.copy(sum.sum(), one, sizeof(float)), value = 1, expected_read = 0;
                if (!strcmp(use, "fill")) pad.fill(sum.sum(), 0, sizeof(float)), value = 0, expected_read = 0;
                if (!strcmp(use, "upload"))
                    pad.upload(sum.sum(), &five, sizeof(float)), value = 5, expected_read = 0;
                if (!strcmp(use, "asynchronous copy")) {
                    pad.copy_async({{read.data, sum.sum(), sizeof(float)}});
                    pad.finish_copies();
                }
                if (!strcmp(use, "replay")) {
                    pad.begin_recording();  // commits
                    add_to(pad, read, sum.values, 3);
                    Recording* recording = pad.end_recording();
                    pad.replay(recording);
                    pad.commit(true);
                    pad.forget(recording);
                }
                EXPECT_EQ(sum.values.values()[1], value);
                EXPECT_EQ(read.values()[0], expected_read);
                EXPECT_EQ(sum.runs, 1);
            }
    });
}

// In a group, too, where commands otherwise run side by side.
TEST(Postponed, UsesOfTheResultWaitInAGroup) {
    for_each_mode([](LaunchPad& pad) {
        for (const bool started : {false, true}) {
            DeviceArray<float> read(pad, std::vector<float>{0.0f});
            WaitingSum sum(pad);
            {
                const ConcurrentGroup group(&pad);
                sum.give();
                pad.barrier();  // the copy of the partials
                if (!started) sum.give();
                add_to(pad, read, sum.values, 3);
            }
            EXPECT_EQ(read.values()[0], started ? 6.0f : 12.0f);
        }
    });
}

// Whoever takes the scratch slot next waits until it has been read.
TEST(Postponed, TheSlotIsReadFirst) {
    for_each_mode([](LaunchPad& pad) {
        for (const bool started : {false, true}) {
            WaitingSum sum(pad);
            sum.give();
            {
                const ConcurrentGroup group(&pad);  // starts it
                if (!started) sum.give();
                pad.fill(pad.scratch(Scratch::norm, 3), 0, 3 * sizeof(float));
            }
            EXPECT_EQ(sum.values.values()[1], started ? 6.0f : 12.0f);
        }
    });
}

// Two that write the same result run one after the other.
TEST(Postponed, ResultsAreWrittenOneAfterTheOther) {
    for_each_mode([](LaunchPad& pad) {
        WaitingSum sum(pad);
        {
            const ConcurrentGroup group(&pad);
            sum.give();
            pad.postpone(Scratch::layernorm, {{sum.values, 3 * sizeof(float)}},
                         [&] { add_to(pad, sum.sum(), sum.sum(), 1); });
            EXPECT_EQ(sum.runs, 1);
        }
        EXPECT_EQ(sum.values.values()[1], 12.0f);
    });
}

// It may use no memory that postpone() was not given. The error leaves nothing behind.
TEST(Postponed, UsesOnlyItsMemory) {
    for_each_mode([](LaunchPad& pad) {
        DeviceArray<float> one(pad, std::vector<float>{1.0f}), total(pad, std::vector<float>{0.0f});
        pad.postpone(Scratch::norm, {{total, 4}}, [&] { add_to(pad, total, one, 1); });
        expect_error("postpone() was not given", [&] { pad.commit(); });
        add_to(pad, total, one, 1);
        EXPECT_EQ(total.values()[0], 1.0f);
        pad.postpone(Scratch::norm, {{total, 4}, {one, 4}}, [&] { add_to(pad, total, one, 1); });
        EXPECT_EQ(total.values()[0], 2.0f);
    });
}

// end_recording() records what is left.
TEST(Postponed, IsRecorded) {
    for_each_mode([](LaunchPad& pad) {
        DeviceArray<float> one(pad, std::vector<float>{1.0f}), a(pad, std::vector<float>{0.0f});
        for (const bool last : {true, false}) {  // or another command follows, which starts it
            WaitingSum sum(pad);
            pad.begin_recording();
            sum.give();
            if (!last) add_to(pad, a, one, 1);
            Recording* recording = pad.end_recording();
            EXPECT_EQ(sum.runs, 1);
            for (int i = 0; i < 3; i++) pad.replay(recording);
            EXPECT_EQ(sum.values.values()[1], 18.0f);
            EXPECT_EQ(sum.runs, 1);
            pad.forget(recording);
        }
    });
}

TEST(Recording, ReplaysManyTimes) {
    for_each_mode([](LaunchPad& pad) {
        DeviceArray<float> values(pad, std::vector<float>{1, 2, 3}), total(pad, std::vector<float>{0.0f});
        DeviceArray<float> twice(pad, std::vector<float>{0.0f}), copied(pad, 1);
        pad.begin_recording();
        add_to(pad, total, values, 3);
        pad.fill(twice, 0, 4);
        add_to(pad, twice, total, 1, 2.0f);
        pad.copy(copied, twice, 4);
        Recording* recording = pad.end_recording();
        EXPECT_EQ(total.values()[0], 0.0f);  // recorded, not run
        for (int i = 0; i < 20; i++) pad.replay(recording);
        EXPECT_EQ(total.values()[0], 120.0f);
        EXPECT_EQ(copied.values()[0], 240.0f);
        float want = 120;
        // The contents of memory may change between replays, as the learning rate does.
        for (float v : {10.0f, 20.0f, 30.0f}) {
            pad.upload(values + 1, &v, 4);
            pad.replay(recording);
            add_to(pad, total, values, 1);
            want += 1 + v + 3 + 1;
        }
        EXPECT_EQ(total.values()[0], want);
        pad.forget(recording);
        expect_error("not a recording", [&] { pad.forget(recording); });
    });
}

TEST(Recording, Misuse) {
    for_each_mode([](LaunchPad& pad) {
        DeviceArray<float> one(pad, std::vector<float>{1.0f}), total(pad, std::vector<float>{0.0f});
        float value = 3;
        expect_error("no recording is open", [&] { pad.end_recording(); });
        pad.begin_recording();
        add_to(pad, total, one, 1);
        Recording* first = pad.end_recording();
        pad.begin_recording();
        expect_error("upload cannot be recorded", [&] { pad.upload(one, &value, 4); });
        expect_error("download cannot be recorded", [&] { pad.download(&value, one, 4); });
        expect_error("commit cannot be recorded", [&] { pad.commit(); });
        expect_error("replay cannot be recorded", [&] { pad.replay(first); });
        expect_error("open already", [&] { pad.begin_recording(); });
        add_to(pad, total, one, 1, 5.0f);
        {
            const ConcurrentGroup group(&pad);
            expect_error("end_recording: a group is open", [&] { pad.end_recording(); });
        }
        Recording* second = pad.end_recording();
        {
            const ConcurrentGroup group(&pad);
            expect_error("begin_recording: a group is open", [&] { pad.begin_recording(); });
        }
        pad.replay(second);
        pad.replay(first);
        EXPECT_EQ(total.values()[0], 6.0f);
        pad.forget(first);
        pad.forget(second);
    });
}

// With check_pointers, replay() checks that the memory of the recorded commands has not been freed.
TEST(Recording, ReplayAfterFree) {
    for_each_mode([](LaunchPad& pad) {
        DeviceArray<float> one(pad, std::vector<float>{1.0f}), total(pad, std::vector<float>{0.0f});
        auto record = [&](auto commands) {
            float* freed = pad.allocate<float>(1, "freed");
            pad.at(freed, 1);
            pad.dispatch("sum_losses2", {0}, {1},
                         SumLossesArgs{pad.at(freed, 1), 0, 0, 0});  // an empty grid: not recorded
            pad.begin_recording();
            commands(freed);
            Recording* recording = pad.end_recording();
            pad.replay(recording);
            pad.free(freed);
            return recording;
        };
        Recording* kernel = record([&](float* freed) { add_to(pad, freed, one, 1); });
        Recording* fill = record([&](float* freed) { pad.fill(freed, 0, 4); });
        Recording* copy = record([&](float* freed) { pad.copy(total, freed, 4); });
        Recording* unaffected = record([&](float*) { add_to(pad, total, one, 1); });
        for (Recording* recording : {kernel, fill, copy}) {
            expect_error("have been freed", [&] { pad.replay(recording); });
            pad.forget(recording);
        }
        pad.replay(unaffected);
        pad.forget(unaffected);
    });
}
