// Idle threads of the programs spin briefly, then block, unless the environment says otherwise. The tests
// read the settings that OpenMP itself prints.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/run_program.h"

// The values of a setting that the OpenMP libraries of a program print when it starts, in an environment with
// these settings and no others. Empty if the OpenMP library is not GNU's.
static Words settings(const std::string& name, const Words& environment) {
    Words argv = words_of("env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT -u OMP_PLACES OMP_DISPLAY_ENV=verbose");
    argv.insert(argv.end(), environment.begin(), environment.end());
    argv.insert(argv.end(), {BINARY_DIR "/train_gpt2", "--help"});
    const ProgramResult result = run_program(argv);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(contains(result.out, "--train-data"));
    Words values;
    const std::string before = name + " = ";
    for (size_t at = 0; (at = result.err.find(before, at)) != std::string::npos;) {
        at += before.size();
        values.push_back(result.err.substr(at, result.err.find('\n', at) - at));
    }
    return values;
}

// How many times the program started with this GOMP_SPINCOUNT.
static long starts_with(const std::string& count, const Words& environment) {
    const Words all = settings("GOMP_SPINCOUNT", environment);
    return std::count(all.begin(), all.end(), "'" + count + "'");
}

TEST(wait_briefly, sets_what_is_not_set) {
    if (settings("GOMP_SPINCOUNT", {}).empty()) GTEST_SKIP() << "the OpenMP library is not GNU's";
    EXPECT_EQ(starts_with("1000", {}), 1);
    EXPECT_EQ(starts_with("1000", {"OMP_WAIT_POLICY=passive"}), 0);
    EXPECT_EQ(starts_with("77", {"GOMP_SPINCOUNT=77"}), 1);  // it did not restart
}

// Bound threads have the same places after the restart, not only the place of the first thread.
TEST(wait_briefly, keeps_places) {
    if (settings("GOMP_SPINCOUNT", {}).empty()) GTEST_SKIP() << "the OpenMP library is not GNU's";
    const Words places = settings("OMP_PLACES", {"OMP_PROC_BIND=close"});
    ASSERT_EQ(places.size(), 2u);
    EXPECT_EQ(places[0], places[1]);
}
