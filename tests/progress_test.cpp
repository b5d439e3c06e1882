// Tests of the figures that a run prints and logs while it works.
#include "llmc/run/progress.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "llmc/base/clock.h"
#include "tests/run_program.h"

// The column of metrics.csv, counted from 0.
static std::vector<double> column(const std::string& path, int index) {
    std::ifstream file(path);
    std::vector<double> values;
    std::string line, field;
    std::getline(file, line);  // the names
    while (std::getline(file, line)) {
        std::istringstream fields(line);
        for (int i = 0; i <= index; i++) std::getline(fields, field, ',');
        values.push_back(atof(field.c_str()));
    }
    return values;
}

static std::vector<double> printed_rates(const std::string& out) {
    std::vector<double> rates;
    for (size_t at = 0; (at = out.find(" tok/s", at)) != std::string::npos; at++)
        rates.push_back(atof(out.c_str() + out.rfind(' ', at - 1)));
    return rates;
}

// Steps whose times jitter, as those of a device that runs ahead of the host do.
TEST(Progress, RatesAreTokensOverTimeWhateverTheJitter) {
    TemporaryFolder folder;
    MainLog log;
    log.open(folder.path, -1);
    const int steps = 60, tokens = 1000, window = int(Progress::window);
    Progress progress = {.log = log, .max_steps = steps, .tokens_per_step = tokens};
    std::vector<double> times = {progress.last};
    testing::internal::CaptureStdout();
    for (int step = 0; step < steps; step++) {
        times.push_back(times.back() + (step % 4 == 3 ? 0.02 : 0.00005));
        progress.report(step, times.back(), 4.0f, 1.0f, 1e-3f, {});
    }
    const std::vector<double> printed = printed_rates(testing::internal::GetCapturedStdout());
    const std::vector<double> logged = column(folder / "metrics.csv", 4);
    ASSERT_EQ(printed.size(), size_t(steps));
    ASSERT_EQ(logged.size(), size_t(steps));
    for (int step = 4; step < steps; step++) {  // the first step does not count
        const int count = std::min(step, window);
        const double rate = count * tokens / (times[step + 1] - times[step + 1 - count]);
        EXPECT_NEAR(printed[step], rate, 1e-4 * rate + 1) << step;
        EXPECT_NEAR(logged[step], rate, 1e-4 * rate + 1) << step;
    }
}

// Whenever a step is reported, its time is that from the end of the one before to its own.
TEST(Progress, TheFirstStepCountsOnlyUntilThereIsAnother) {
    MainLog log;
    Progress progress = {.log = log, .max_steps = 3, .tokens_per_step = 1000};
    double end = progress.last;
    testing::internal::CaptureStdout();
    for (const double seconds : {0.2, 0.01, 0.03}) {
        end += seconds;
        progress.report(progress.steps, end, 4.0f, 1.0f, 1e-3f, {});
    }
    progress.print_summary({});
    const std::string text = testing::internal::GetCapturedStdout();
    const std::vector<double> rates = printed_rates(text);
    ASSERT_EQ(rates.size(), 3u);
    EXPECT_NEAR(rates[0], 5000, 1);
    EXPECT_NEAR(rates[1], 100000, 1);
    EXPECT_NEAR(rates[2], 50000, 1);
    EXPECT_TRUE(contains(text, "total average iteration time: 20.000000 ms\n"));
}

// A short file prints nothing, a long one how much of it is done.
TEST(Progress, LargeFilesShowHowMuchIsDone) {
    const uint64_t gib = uint64_t(1) << 30;
    EXPECT_EQ(bytes_text(gib / 2, 18 * gib), "0.5 of 18.0 GiB");
    EXPECT_EQ(bytes_text(3 * gib, 2 * gib), "2.0 of 2.0 GiB");
    EXPECT_EQ(bytes_text(gib, 0), "1.0 GiB");
    EXPECT_EQ(bytes_text(3 << 20, 0), "3.0 MiB");
    EXPECT_EQ(bytes_text(3 << 20, 60 << 20), "3.0 of 60.0 MiB");
    ByteProgress progress("writing the checkpoint", 3 * gib);
    testing::internal::CaptureStdout();
    progress.add(gib);
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
    std::this_thread::sleep_for(std::chrono::milliseconds(2100));
    testing::internal::CaptureStdout();
    progress.add(gib);
    const std::string shown = testing::internal::GetCapturedStdout();
    EXPECT_TRUE(contains(shown, "writing the checkpoint (2.0 of 3.0 GiB)"));
}

TEST(Progress, TheStatusLineEndsWithAWholeCharacter) {
    setenv(columns_variable, "10", 1);
    const uint64_t gib = uint64_t(1) << 30;
    ByteProgress progress("12345678\xe2\x82\xac", 3 * gib);
    std::this_thread::sleep_for(std::chrono::milliseconds(2100));
    testing::internal::CaptureStdout();
    progress.add(gib);
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "12345678");
    clear_status_line();
    unsetenv(columns_variable);
}

// The launcher of --devices stands between a program and its terminal, which may be one without a status
// line.
TEST(Progress, TextGoesToTheLaunchersTerminal) {
    EXPECT_EQ(prints_to_terminal(), is_terminal(stdout));
    for (const char* columns : {"0", "80"}) {
        setenv(columns_variable, columns, 1);
        EXPECT_TRUE(prints_to_terminal());
        EXPECT_EQ(on_terminal(), columns[0] != '0');
    }
    unsetenv(columns_variable);
}
