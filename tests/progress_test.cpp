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

// Reports steps whose times jitter, as those of a device that runs ahead of the host do.
TEST(Progress, RatesAreTokensOverTimeWhateverTheJitter) {
    TemporaryFolder folder;
    MainLog log;
    log.open(folder.path, -1);
    const int steps = 60, tokens = 1000, window = int(Progress::window);
    Progress progress = {.log = log, .max_steps = steps, .tokens_per_step = tokens};
    std::vector<double> times = {now()};
    testing::internal::CaptureStdout();
    for (int step = 0; step < steps; step++) {
        std::this_thread::sleep_for(std::chrono::microseconds(step % 4 == 3 ? 20000 : 50));
        progress.report(step, 4.0f, 1.0f, 1e-3f, {});
        times.push_back(now());
    }
    const std::vector<double> printed = printed_rates(testing::internal::GetCapturedStdout());
    const std::vector<double> logged = column(folder / "metrics.csv", 4);
    ASSERT_EQ(printed.size(), size_t(steps));
    ASSERT_EQ(logged.size(), size_t(steps));
    for (int step = 8; step < steps; step++) {  // the first step does not count
        const int count = std::min(step, window);
        const double rate = count * tokens / (times[step + 1] - times[step + 1 - count]);
        EXPECT_NEAR(printed[step], rate, 0.1 * rate) << step;
        EXPECT_NEAR(logged[step], rate, 0.1 * rate) << step;
    }
}

TEST(Progress, TheFirstStepCountsOnlyUntilThereIsAnother) {
    TemporaryFolder folder;
    MainLog log;
    Progress progress = {.log = log, .max_steps = 3, .tokens_per_step = 1000};
    testing::internal::CaptureStdout();
    for (const int milliseconds : {200, 10, 10}) {
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
        progress.report(progress.steps, 4.0f, 1.0f, 1e-3f, {});
    }
    const std::vector<double> rates = printed_rates(testing::internal::GetCapturedStdout());
    ASSERT_EQ(rates.size(), 3u);
    EXPECT_LT(rates[0], 5100);
    EXPECT_GT(rates[1], 20000);  // 100,000 on an idle machine
    EXPECT_GT(rates[2], 20000);
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
    EXPECT_NE(shown.find("writing the checkpoint (2.0 of 3.0 GiB)"), std::string::npos) << shown;
}
