// dev/plot.sh: plots of metrics.csv and of llm.c's main.log, for one run and for two, and error messages.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <regex>

#include "llmc/base/file.h"
#include "llmc/run/log.h"
#include "tests/run_program.h"

static const std::string script = SOURCE_DIR "/dev/plot.sh";

static bool have_gnuplot() { return run_program({"sh", "-c", "command -v gnuplot"}).status == 0; }

static void write_run(const std::string& folder) {
    MainLog log;
    log.open(folder, -1);
    for (int step = 0; step < 30; step++) {
        if (step % 10 == 0) log.log_val(step, 3 - 0.05f * float(step));
        log.log_train(step, {3 - 0.05f * float(step), 1e-3f, step == 3 ? NAN : 1.0f, 1000});
    }
}

TEST(Plot, DrawsOneRunAndSeveral) {
    if (!have_gnuplot()) GTEST_SKIP() << "no gnuplot";
    TemporaryFolder folder;
    write_run(folder / "a_1");
    write_run(folder / "it's b");
    std::filesystem::remove(folder / "it's b/metrics.csv");
    const ProgramResult one = run_program({script, "--floor", "1.2", folder / "a_1"});
    EXPECT_EQ(one.status, 0) << one.err;
    EXPECT_EQ(one.err, "");
    EXPECT_NE(one.out.find("validation loss 2.0000, corpus entropy 1.2000: 0.8000"), std::string::npos)
        << one.out;
    const std::string svg = read_whole_file(folder / "a_1/loss.svg");
    for (const char* text :
         {"loss (nats per token)", "learning rate", "gradient norm", "tokens per second", "corpus entropy"})
        EXPECT_NE(svg.find(text), std::string::npos) << text;
    const ProgramResult two =
        run_program({script, "--out", folder / "both.png", folder / "a_1", folder / "it's b"});
    EXPECT_EQ(two.status, 0) << two.err;
    EXPECT_EQ(two.err, "");
    EXPECT_EQ(read_whole_file(folder / "both.png").substr(1, 3), "PNG");
}

TEST(Plot, AComparisonHasAFileOfItsOwn) {
    if (!have_gnuplot()) GTEST_SKIP() << "no gnuplot";
    TemporaryFolder folder;
    write_run(folder / "a");
    write_run(folder / "b");
    ASSERT_EQ(run_program({script, folder / "a"}).status, 0);
    const std::string own = read_whole_file(folder / "a/loss.svg");
    ASSERT_EQ(run_program({script, folder / "a", folder / "b"}).status, 0);
    EXPECT_EQ(read_whole_file(folder / "a/loss.svg"), own);
    EXPECT_NE(read_whole_file(folder / "comparison.svg").find("b training"), std::string::npos);
}

TEST(Plot, HelpIsTheScriptsComment) {
    const ProgramResult help = run_program({script, "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_NE(help.out.find("dev/plot.sh [--floor NATS]"), std::string::npos) << help.out;
    EXPECT_EQ(help.out.find('#'), std::string::npos) << help.out;
}

// The panels share their axis of steps: the loss has a validation after the last step.
TEST(Plot, PanelsEndAtTheSameStep) {
    if (!have_gnuplot()) GTEST_SKIP() << "no gnuplot";
    TemporaryFolder folder;
    MainLog log;
    log.open(folder / "a", -1);
    for (int step = 0; step < 30; step++) log.log_train(step, {3 - 0.05f * float(step), 1e-3f, 1.0f, 1000});
    log.log_val(30, 1.5f);
    ASSERT_EQ(run_program({script, folder / "a"}).status, 0);
    const std::string svg = read_whole_file(folder / "a/loss.svg");
    const std::regex label("> *30<");
    const auto panels_with_30 =
        std::distance(std::sregex_iterator(svg.begin(), svg.end(), label), std::sregex_iterator());
    EXPECT_EQ(panels_with_30, 4);
}

// Lines damaged by a crash or an editor are skipped, without messages from gnuplot.
TEST(Plot, DamagedLinesAreSkipped) {
    if (!have_gnuplot()) GTEST_SKIP() << "no gnuplot";
    TemporaryFolder folder;
    write_run(folder / "a");
    write_run(folder / "b");
    std::filesystem::remove(folder / "b/metrics.csv");
    const std::string damaged = std::string(64, '\0') +
                                "\n\xff\xfe,1\n,,,\nx,1,1,1,1,,1,\n31,1e,1.2.3,-,+,,0x1,\n" +
                                "s:x trl:1\ns:31 trl:. lr:1.2.3 norm:-\ns:32 tel:--1\n33,";
    for (const char* name : {"a/metrics.csv", "b/main.log"})
        std::ofstream(folder / name, std::ios::app) << damaged;
    const ProgramResult plot =
        run_program({script, "--floor", "1.2", "--out", folder / "ab.svg", folder / "a", folder / "b"});
    EXPECT_EQ(plot.status, 0) << plot.err;
    EXPECT_EQ(plot.err, "");
    EXPECT_NE(plot.out.find("validation loss 2.0000, corpus entropy"), std::string::npos) << plot.out;
    EXPECT_NE(read_whole_file(folder / "ab.svg").find("tokens per second"), std::string::npos);
    std::ofstream(folder / "a/metrics.csv") << damaged;
    const ProgramResult none = run_program({script, folder / "a"});
    EXPECT_EQ(none.status, 1);
    EXPECT_EQ(none.err, "plot.sh: the logs in " + folder / "a" + " contain no losses\n");
}

TEST(Plot, ErrorMessages) {
    if (!have_gnuplot()) GTEST_SKIP() << "no gnuplot";
    TemporaryFolder folder;
    write_run(folder / "a");
    MainLog().open(folder / "empty", -1);
    const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
        {{}, "usage"},
        {{folder / "missing"}, "missing"},
        {{folder / "empty"}, "no losses"},
        {{"--out", folder / "a.pdf", folder / "a"}, ".svg or .png"},
        {{"--floor", "low", folder / "a"}, "number"},
        {{"--colour", "red", folder / "a"}, "--colour"}};
    for (const auto& [arguments, says] : cases) {
        std::vector<std::string> command = {script};
        command.insert(command.end(), arguments.begin(), arguments.end());
        const ProgramResult result = run_program(command);
        EXPECT_NE(result.status, 0) << says;
        EXPECT_EQ(count_lines(result.err), 1) << result.err;
        EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
    }
}
