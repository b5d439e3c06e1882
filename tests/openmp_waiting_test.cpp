// Programs begin with threads that sleep soon while they wait, unless the environment says otherwise: what
// OpenMP itself prints of its settings.
#include <gtest/gtest.h>

#include "tests/run_program.h"

// How often the program's OpenMP library began with this setting, of the environment and nothing else.
static int begins_with(const std::string& setting, const std::vector<std::string>& environment) {
    std::vector<std::string> argv = {
        "env", "-u", "OMP_WAIT_POLICY", "-u", "GOMP_SPINCOUNT", "OMP_DISPLAY_ENV=verbose"};
    argv.insert(argv.end(), environment.begin(), environment.end());
    argv.insert(argv.end(), {BINARY_DIR "/train_gpt2", "--help"});
    const ProgramResult result = run_program(argv);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.out.find("--train-data"), std::string::npos);
    if (result.err.find("GOMP_SPINCOUNT") == std::string::npos) return -1;
    int times = 0;
    for (size_t at = 0; (at = result.err.find(setting, at)) != std::string::npos; at++) times++;
    return times;
}

TEST(wait_briefly, sets_what_is_not_set) {
    const std::string ours = "GOMP_SPINCOUNT = '1000'";
    const int times = begins_with(ours, {});
    if (times < 0) GTEST_SKIP() << "this is another OpenMP library than GNU's";
    EXPECT_EQ(times, 1);
    EXPECT_EQ(begins_with(ours, {"OMP_WAIT_POLICY=passive"}), 0);
    EXPECT_EQ(begins_with("GOMP_SPINCOUNT = '77'", {"GOMP_SPINCOUNT=77"}), 1);  // it did not begin again
}

// Threads that are bound have the same places after it has begun again: not the first thread's alone.
TEST(wait_briefly, keeps_places) {
    const std::vector<std::string> argv = {"env",
                                           "-u",
                                           "OMP_WAIT_POLICY",
                                           "-u",
                                           "GOMP_SPINCOUNT",
                                           "-u",
                                           "OMP_PLACES",
                                           "OMP_DISPLAY_ENV=verbose",
                                           "OMP_PROC_BIND=close",
                                           BINARY_DIR "/train_gpt2",
                                           "--help"};
    const std::string err = run_program(argv).err, name = "OMP_PLACES = ";
    if (err.find("GOMP_SPINCOUNT") == std::string::npos) GTEST_SKIP() << "another OpenMP library than GNU's";
    std::vector<std::string> places;
    for (size_t at = 0; (at = err.find(name, at)) != std::string::npos; at++)
        places.push_back(err.substr(at, err.find('\n', at) - at));
    ASSERT_EQ(places.size(), 2u) << err;
    EXPECT_EQ(places[0], places[1]);
}
