// How unlike processes divide a step's sequences.
#include "llmc/run/division.h"

#include <gtest/gtest.h>

#include "llmc/run/step_time.h"

static std::vector<int> counts(int sequences, const std::vector<double>& speeds, int most = 1 << 20) {
    std::vector<ProcessSpeed> processes;
    std::vector<double> seconds;
    for (const double speed : speeds) {
        processes.push_back({"device", most});
        seconds.push_back(1 / speed);
    }
    const Division division = divide_step(sequences, processes, seconds);
    EXPECT_TRUE(fits(division, sequences, processes));
    std::vector<int> found;
    for (const ProcessShare& share : division) {
        EXPECT_LE(share.micro_batch, most);
        EXPECT_GE(share.micro_batch * share.micro_steps(), share.sequences);
        EXPECT_LT(share.micro_batch * (share.micro_steps() - 1), share.sequences);
        found.push_back(share.sequences);
    }
    return found;
}

TEST(division, follows_speeds) {
    EXPECT_EQ(counts(12, {3, 1}), (std::vector{9, 3}));
    EXPECT_EQ(counts(16, {5, 2, 1}), (std::vector{10, 4, 2}));
    EXPECT_EQ(counts(1000, {1, 1, 1, 1}), (std::vector{250, 250, 250, 250}));
}

TEST(division, gives_each_a_sequence) {
    EXPECT_EQ(counts(3, {1000, 1, 1}), (std::vector{1, 1, 1}));
    EXPECT_EQ(counts(5, {1000, 1, 1}), (std::vector{3, 1, 1}));
}

// 9 sequences in micro-batches of at most 8 take the time of 10: the last one costs the other less.
TEST(division, counts_what_fills_up_a_micro_batch) {
    EXPECT_EQ(counts(17, {1, 0.9}, 8), (std::vector{9, 8}));
}

TEST(division, ends_as_soon_as_any_other) {
    for (const double speed : {0.7, 1.0, 2.3, 9.0})
        for (const int sequences : {2, 7, 24, 31}) {
            const std::vector<ProcessSpeed> processes = {{"a", 5}, {"b", 3}};
            const std::vector<double> seconds = {1, 1 / speed};
            const double found = slowest_seconds(divide_step(sequences, processes, seconds), seconds);
            double best = 1e300;
            for (int n = 1; n < sequences; n++) {
                const double first = (n + 4) / 5 * ((n + (n + 4) / 5 - 1) / ((n + 4) / 5));
                const int m = sequences - n;
                const double second = (m + 2) / 3 * ((m + (m + 2) / 3 - 1) / ((m + 2) / 3));
                best = std::min(best, std::max(first, second / speed));
            }
            EXPECT_NEAR(found, best, 1e-9) << sequences << " " << speed;
        }
}

// One that is 20 times as slow helps with 200 sequences, and holds up 12. One that is 100 times as slow would
// gain 1 %, which is too little.
TEST(division, leaves_out_who_holds_up_the_others) {
    using Members = std::vector<bool>;
    const auto members = [](int sequences, const std::vector<double>& speeds) {
        std::vector<ProcessSpeed> processes(speeds.size(), {"device", 1 << 20});
        std::vector<double> seconds;
        for (const double speed : speeds) seconds.push_back(1 / speed);
        return worth_having(sequences, processes, seconds);
    };
    EXPECT_EQ(members(12, {1, 1}), (Members{true, true}));
    EXPECT_EQ(members(12, {1, 3}), (Members{true, true}));
    EXPECT_EQ(members(12, {1, 100}), (Members{false, true}));
    EXPECT_EQ(members(12, {100, 1}), (Members{true, false}));
    EXPECT_EQ(members(12, {1, 20}), (Members{false, true}));
    EXPECT_EQ(members(200, {1, 20}), (Members{true, true}));
    EXPECT_EQ(members(200, {1, 100}), (Members{false, true}));
    EXPECT_EQ(members(12, {50, 1, 100}), (Members{true, false, true}));
    EXPECT_EQ(members(1, {1, 1, 1}), (Members{true, false, false}));
}

TEST(division, of_other_processes_does_not_fit) {
    const Division division = {{"a", 3, 3}, {"b", 4, 2}};
    EXPECT_TRUE(fits(division, 7, {{"a", 3}, {"b", 8}}));
    EXPECT_FALSE(fits(division, 8, {{"a", 3}, {"b", 8}}));
    EXPECT_FALSE(fits(division, 7, {{"b", 8}, {"a", 8}}));
    EXPECT_FALSE(fits(division, 7, {{"a", 2}, {"b", 8}}));
    EXPECT_FALSE(fits(division, 3, {{"a", 3}}));
    EXPECT_FALSE(fits({}, 7, {{"a", 3}, {"b", 8}}));
}

// How many sequences each process computes, if one takes it so many seconds with a machine's cores for
// itself, which those on_cores share, and a step of several takes `exchange` more.
static std::vector<int> fastest(int sequences, const std::vector<double>& seconds, double exchange,
                                const std::vector<bool>& on_cores, bool all_train = false) {
    const std::vector<ProcessSpeed> processes(seconds.size(), {"device", 1 << 20});
    const auto sequence = [&](const std::vector<bool>& members) {
        int sharing = 0;
        for (size_t i = 0; i < seconds.size(); i++) sharing += members[i] && on_cores[i];
        std::vector<double> found(seconds);
        for (size_t i = 0; i < seconds.size(); i++) found[i] *= !members[i] ? 0 : on_cores[i] ? sharing : 1;
        return found;
    };
    const auto step = [&](const Division& division) {
        std::vector<double> of_members = sequence(members_of(division));
        std::erase(of_members, 0.0);
        return slowest_seconds(division, of_members) + (of_members.size() > 1 ? exchange : 0);
    };
    std::vector<int> counted;
    for (const ProcessShare& share :
         fastest_division(sequences, processes, on_cores, all_train, {sequence, step}))
        counted.push_back(share.sequences);
    return counted;
}

TEST(division, leaves_out_who_costs_more_than_it_brings) {
    using Counts = std::vector<int>;
    const std::vector<bool> gpus = {false, false}, cores = {true, true};
    EXPECT_EQ(fastest(12, {1, 3}, 0, gpus), (Counts{9, 3}));
    // the others would wait for its one sequence
    EXPECT_EQ(fastest(7, {20, 1}, 0, gpus), (Counts{0, 7}));
    EXPECT_EQ(fastest(7, {20, 1}, 0, gpus, true), (Counts{1, 6}));
    // 40 sequences take 40 s alone, and 38.1 s with what all exchange
    EXPECT_EQ(fastest(40, {1, 19}, 0.1, gpus), (Counts{38, 2}));
    EXPECT_EQ(fastest(40, {1, 19}, 3, gpus), (Counts{40, 0}));
    // less than 2 % are too little
    EXPECT_EQ(fastest(40, {1, 19}, 1.5, gpus), (Counts{40, 0}));
    // each computes twice as fast with all cores, and alone it exchanges nothing
    EXPECT_EQ(fastest(12, {1, 1}, 0.5, cores), (Counts{0, 12}));
    EXPECT_EQ(fastest(12, {2, 1}, 0.5, cores), (Counts{0, 12}));
    // the processor's processes leave a GPU alone, or help it
    EXPECT_EQ(fastest(12, {1, 40, 40}, 0, {false, true, true}), (Counts{12, 0, 0}));
    EXPECT_EQ(fastest(12, {1, 2, 2}, 0, {false, true, true}), (Counts{8, 2, 2}));
}

// A process that was interrupted counts for half of the time at least, however fast its first steps were.
TEST(division, steps_are_timed_until_half_of_the_time_is_over) {
    EXPECT_EQ(steps_to_time(1, 1, 0, 0.01), 100);
    EXPECT_EQ(steps_to_time(1, 1, 0, 0.4), 5);
    EXPECT_EQ(steps_to_time(1, 1, 0, 3), 1);
    EXPECT_EQ(steps_to_time(1, 1, 0, 1e-6), 1000);
    EXPECT_EQ(steps_to_time(0.5, 1, 5, 0.1), 0);
    EXPECT_EQ(steps_to_time(0.6, 1, 5, 0.08), 7);
    EXPECT_EQ(steps_to_time(0.9, 1, 5, 1e-4), 20) << "four times as many as before, at most";
    EXPECT_EQ(steps_to_time(0.9, 1, 1000, 1e-4), 0);
}
