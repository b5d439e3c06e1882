// Programs begin with threads that sleep soon while they wait, unless the environment says otherwise: what
// OpenMP itself prints of its settings.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/run_program.h"

// What follows `name` in each line that has it, of what the program's OpenMP libraries print when they begin,
// with these settings of the environment and no others. Empty: this is another library than GNU's.
static std::vector<std::string> settings(const std::string& name,
                                         const std::vector<std::string>& environment) {
    std::vector<std::string> argv = {"env", "-u",         "OMP_WAIT_POLICY",        "-u", "GOMP_SPINCOUNT",
                                     "-u",  "OMP_PLACES", "OMP_DISPLAY_ENV=verbose"};
    argv.insert(argv.end(), environment.begin(), environment.end());
    argv.insert(argv.end(), {BINARY_DIR "/train_gpt2", "--help"});
    const ProgramResult result = run_program(argv);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("--train-data"), std::string::npos);
    std::vector<std::string> values;
    const std::string before = name + " = ";
    for (size_t at = 0; (at = result.err.find(before, at)) != std::string::npos;) {
        at += before.size();
        values.push_back(result.err.substr(at, result.err.find('\n', at) - at));
    }
    return values;
}

// How often the program's OpenMP library began with this GOMP_SPINCOUNT.
static long begins_with(const std::string& count, const std::vector<std::string>& environment) {
    const std::vector<std::string> all = settings("GOMP_SPINCOUNT", environment);
    return std::count(all.begin(), all.end(), "'" + count + "'");
}

TEST(wait_briefly, sets_what_is_not_set) {
    if (settings("GOMP_SPINCOUNT", {}).empty()) GTEST_SKIP() << "this is another OpenMP library than GNU's";
    EXPECT_EQ(begins_with("1000", {}), 1);
    EXPECT_EQ(begins_with("1000", {"OMP_WAIT_POLICY=passive"}), 0);
    EXPECT_EQ(begins_with("77", {"GOMP_SPINCOUNT=77"}), 1);  // it did not begin again
}

// Threads that are bound have the same places after it has begun again: not the first thread's alone.
TEST(wait_briefly, keeps_places) {
    if (settings("GOMP_SPINCOUNT", {}).empty()) GTEST_SKIP() << "this is another OpenMP library than GNU's";
    const std::vector<std::string> places = settings("OMP_PLACES", {"OMP_PROC_BIND=close"});
    ASSERT_EQ(places.size(), 2u);
    EXPECT_EQ(places[0], places[1]);
}
