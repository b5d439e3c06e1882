// Tests of the launchpad in every memory mode of the test device: deferred commands, commands that wait
// for a barrier, unreduced results and recordings.
#include "tests/launchpad_test.h"

// run_deferred() takes the oldest commands first, until their work adds up to the largest one waiting.
TEST(Deferred, OldestFirstUntilTheLargest) {
    struct Example {
        std::vector<double> flops;
        std::vector<size_t> done;  // number of commands that have run after each run_deferred()
    };
    for_each_mode([](LaunchPad& pad) {
        for (const Example& example :
             {Example{{}, {0, 0}}, Example{{5}, {1, 1}}, Example{{2, 2, 2}, {1, 2, 3, 3}},
              Example{{1, 4, 2, 3}, {2, 4, 4}}, Example{{1, 1, 1, 9}, {4, 4}},
              Example{{9, 1, 1, 1}, {1, 2, 3, 4, 4}}, Example{{3, 1, 1, 3, 4}, {2, 4, 5, 5}}}) {
            std::vector<size_t> order, expected;
            for (size_t i = 0; i < example.flops.size(); i++) {
                pad.defer(example.flops[i], [&order, i] { order.push_back(i); });
                expected.push_back(i);
            }
            EXPECT_TRUE(order.empty());
            pad.begin_group();
            for (size_t done : example.done) {
                pad.run_deferred();
                EXPECT_EQ(order.size(), done);
            }
            pad.end_group();
            EXPECT_EQ(order, expected);
        }
    });
}

// Deferred commands may read what commands before defer() wrote; a group runs them beside its own.
TEST(Deferred, RunBesideAGroup) {
    for_each_mode([](LaunchPad& pad) {
        DeviceArray<float> one(pad, std::vector<float>{1.0f}), a(pad, std::vector<float>{0.0f});
        DeviceArray<float> b(pad, std::vector<float>{0.0f}), c(pad, std::vector<float>{0.0f});
        add_to(pad, a, one, 1, 3.0f);
        pad.defer(1, [&] { add_to(pad, b, a, 1, 2.0f); });
        add_to(pad, c, one, 1);
        pad.begin_group();
        add_to(pad, c, a, 1);
        pad.run_deferred();
        pad.end_group();
        add_to(pad, c, b, 1, 10.0f);
        EXPECT_EQ(b.values()[0], 6.0f);
        EXPECT_EQ(c.values()[0], 64.0f);
    });
}

// commit(), begin_recording() and download() run what is left; so does end_recording(), which records it.
TEST(Deferred, TheRestRunsInTheEnd) {
    for_each_mode([](LaunchPad& pad) {
        DeviceArray<float> one(pad, std::vector<float>{1.0f});
        DeviceArray<float> a(pad, std::vector<float>{0.0f}), b(pad, std::vector<float>{0.0f});
        int runs = 0;
        auto defer_two = [&] {
            for (float* total : {a.data, b.data})
                pad.defer(1, [&, total] {
                    add_to(pad, total, one, 1);
                    runs++;
                });
        };
        defer_two();
        pad.commit(true);
        EXPECT_EQ(runs, 2);
        EXPECT_EQ(a.values()[0], 1.0f);
        defer_two();
        EXPECT_EQ(a.values()[0], 2.0f);  // downloads
        EXPECT_EQ(b.values()[0], 2.0f);
        EXPECT_EQ(runs, 4);
        defer_two();
        pad.begin_recording();
        EXPECT_EQ(runs, 6);
        defer_two();
        Recording* recording = pad.end_recording();
        EXPECT_EQ(runs, 8);
        EXPECT_EQ(b.values()[0], 3.0f);
        for (int i = 0; i < 5; i++) pad.replay(recording);
        EXPECT_EQ(a.values()[0], 8.0f);
        EXPECT_EQ(b.values()[0], 8.0f);
        EXPECT_EQ(runs, 8);
        pad.forget(recording);
    });
}

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
        pad.after_barrier(Scratch::norm, {{sum(), sizeof(float)}}, [this, slot] {
            runs++;
            add_to(pad, sum(), slot, 3);
        });
    }
};

// The next command outside of groups waits for what came before, and so does a group's first one; in a group,
// a barrier does.
TEST(AfterBarrier, RunsBesideWhatFollows) {
    for_each_mode([](LaunchPad& pad) {
        DeviceArray<float> one(pad, std::vector<float>{1.0f}), a(pad, std::vector<float>{0.0f});
        WaitingSum sum(pad);
        sum.give();
        EXPECT_EQ(sum.runs, 0);
        add_to(pad, a, one, 1);
        EXPECT_EQ(sum.runs, 1);
        sum.give();
        pad.begin_group();
        EXPECT_EQ(sum.runs, 2);
        sum.give();
        add_to(pad, a, one, 1);
        EXPECT_EQ(sum.runs, 2);
        pad.barrier();
        EXPECT_EQ(sum.runs, 3);
        sum.give();
        pad.end_group();
        EXPECT_EQ(sum.runs, 3);
        EXPECT_EQ(sum.values.values()[1], 24.0f);  // downloads
        EXPECT_EQ(sum.runs, 4);
        EXPECT_EQ(a.values()[0], 2.0f);
    });
}

// Whether it still waits for a barrier or has just started, a command that uses its result waits for it.
TEST(AfterBarrier, UsesOfTheResultWait) {
    for_each_mode([](LaunchPad& pad) {
        const float five = 5;
        DeviceArray<float> one(pad, std::vector<float>{1.0f});
        for (const char* use : {"kernel", "copy from", "copy to", "fill", "upload", "copy beside", "replay"})
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
                if (!strcmp(use, "copy beside")) {
                    pad.copy_beside({{read.data, sum.sum(), sizeof(float)}});
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
TEST(AfterBarrier, UsesOfTheResultWaitInAGroup) {
    for_each_mode([](LaunchPad& pad) {
        for (const bool started : {false, true}) {
            DeviceArray<float> read(pad, std::vector<float>{0.0f});
            WaitingSum sum(pad);
            pad.begin_group();
            sum.give();
            pad.barrier();  // the copy of the partials
            if (!started) sum.give();
            add_to(pad, read, sum.values, 3);
            pad.end_group();
            EXPECT_EQ(read.values()[0], started ? 6.0f : 12.0f);
        }
    });
}

// Whoever takes the scratch slot next waits until it has been read.
TEST(AfterBarrier, TheSlotIsReadFirst) {
    for_each_mode([](LaunchPad& pad) {
        for (const bool started : {false, true}) {
            WaitingSum sum(pad);
            sum.give();
            pad.begin_group();  // starts it
            if (!started) sum.give();
            pad.fill(pad.scratch(Scratch::norm, 3), 0, 3 * sizeof(float));
            pad.end_group();
            EXPECT_EQ(sum.values.values()[1], started ? 6.0f : 12.0f);
        }
    });
}

// Two that write the same result run one after the other.
TEST(AfterBarrier, ResultsAreWrittenOneAfterTheOther) {
    for_each_mode([](LaunchPad& pad) {
        WaitingSum sum(pad);
        pad.begin_group();
        sum.give();
        pad.after_barrier(Scratch::layernorm, {{sum.values, 3 * sizeof(float)}},
                          [&] { add_to(pad, sum.sum(), sum.sum(), 1); });
        EXPECT_EQ(sum.runs, 1);
        pad.end_group();
        EXPECT_EQ(sum.values.values()[1], 12.0f);
    });
}

TEST(AfterBarrier, IsRefusedInABackground) {
    for_each_mode([](LaunchPad& pad) {
        pad.begin_background();
        expect_error("after_barrier: a background is open",
                     [&] { pad.after_barrier(Scratch::norm, {}, [] {}); });
        pad.end_background();
    });
}

// end_recording() records what is left.
TEST(AfterBarrier, IsRecorded) {
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

// An unreduced result: 0 until its reduction adds up the partial sums, which it counts.
struct UnreducedSum {
    LaunchPad& pad;
    DeviceArray<float> value, partials;
    int reductions = 0;
    explicit UnreducedSum(LaunchPad& p)
        : pad(p), value(p, std::vector<float>{0.0f}), partials(p, std::vector<float>{1, 2, 3}) {}
    void leave() {
        pad.leave_unreduced({.value = value.data, .partials = partials.data, .splits = 3, .reduce = [this] {
                                 reductions++;
                                 add_to(pad, value, partials, 3);
                             }});
    }
};

TEST(Unreduced, IsTakenOnce) {
    for_each_mode([](LaunchPad& pad) {
        UnreducedSum sum(pad), other(pad);
        EXPECT_EQ(pad.take_unreduced(sum.value.data).value, nullptr);
        sum.leave();
        EXPECT_EQ(pad.take_unreduced(other.value.data).value, nullptr);
        EXPECT_EQ(pad.take_unreduced(nullptr).value, nullptr);
        const Unreduced taken = pad.take_unreduced(sum.value.data);
        EXPECT_EQ(taken.value, sum.value.data);
        EXPECT_EQ(taken.partials, sum.partials.data);
        EXPECT_EQ(taken.bias, nullptr);
        EXPECT_EQ(taken.splits, 3);
        EXPECT_EQ(pad.take_unreduced(sum.value.data).value, nullptr);
        EXPECT_EQ(pad.take_unreduced(nullptr).value, nullptr);
        pad.commit(true);
        EXPECT_EQ(sum.value.values()[0], 0.0f);
        EXPECT_EQ(sum.reductions, 0);
        taken.reduce();
        EXPECT_EQ(sum.value.values()[0], 6.0f);
    });
}

// at(), copy(), download() and commit() reduce it, once.
TEST(Unreduced, AccessReducesIt) {
    for_each_mode([](LaunchPad& pad) {
        DeviceArray<float> copied(pad, 1);
        for (const char* access : {"at", "copy", "download", "commit"}) {
            SCOPED_TRACE(access);
            UnreducedSum sum(pad);
            sum.leave();
            pad.at(sum.partials.data, 3);
            pad.at(copied.data, 1);
            pad.fill(copied, 0, 4);
            EXPECT_EQ(sum.reductions, 0);
            float got = 0;
            if (!strcmp(access, "at")) pad.at(sum.value.data, 1);
            if (!strcmp(access, "copy")) pad.copy(copied, sum.value, 4);
            if (!strcmp(access, "download")) pad.download(&got, sum.value, 4);
            if (!strcmp(access, "commit")) pad.commit();
            EXPECT_EQ(sum.reductions, 1);
            EXPECT_EQ(pad.take_unreduced(sum.value.data).value, nullptr);
            EXPECT_EQ(sum.value.values()[0], 6.0f);
            EXPECT_EQ(copied.values()[0], !strcmp(access, "copy") ? 6.0f : 0.0f);
            EXPECT_EQ(got, !strcmp(access, "download") ? 6.0f : 0.0f);
            EXPECT_EQ(sum.reductions, 1);
        }
    });
}

// Inside a group, the reduction waits for the partial sums, and the reader waits for the reduction.
TEST(Unreduced, ReductionInsideAGroup) {
    for_each_mode([](LaunchPad& pad) {
        DeviceArray<float> one(pad, std::vector<float>{1.0f}), total(pad, std::vector<float>{0.0f});
        UnreducedSum sum(pad);
        pad.begin_group();
        add_to(pad, sum.partials, one, 1);
        sum.leave();
        add_to(pad, total, sum.value, 1);
        pad.end_group();
        EXPECT_EQ(total.values()[0], 7.0f);
        EXPECT_EQ(sum.reductions, 1);
    });
}

TEST(Unreduced, TheNextOneReducesTheFirst) {
    for_each_mode([](LaunchPad& pad) {
        UnreducedSum first(pad), second(pad);
        first.leave();
        second.leave();
        EXPECT_EQ(first.reductions, 1);
        EXPECT_EQ(second.reductions, 0);
        EXPECT_EQ(pad.take_unreduced(first.value.data).value, nullptr);
        EXPECT_EQ(first.value.values()[0], 6.0f);
        EXPECT_EQ(second.value.values()[0], 6.0f);
        EXPECT_EQ(first.reductions, 1);
        EXPECT_EQ(second.reductions, 1);
    });
}

TEST(Unreduced, EndRecordingReducesIt) {
    for_each_mode([](LaunchPad& pad) {
        UnreducedSum before(pad), sum(pad);
        before.leave();
        pad.begin_recording();
        EXPECT_EQ(before.reductions, 1);
        sum.leave();
        Recording* recording = pad.end_recording();
        EXPECT_EQ(sum.reductions, 1);
        for (int i = 0; i < 4; i++) pad.replay(recording);
        EXPECT_EQ(before.value.values()[0], 6.0f);
        EXPECT_EQ(sum.value.values()[0], 24.0f);
        EXPECT_EQ(sum.reductions, 1);
        pad.forget(recording);
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
        Recording* second = pad.end_recording();
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
            pad.dispatch("sum_losses1", {0}, {1},
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
