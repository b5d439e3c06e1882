// main.log and metrics.csv: exact lines, a fresh start, and a resume that drops the steps that are logged
// again.
#include "llmc/run/log.h"

#include <gtest/gtest.h>

#include <regex>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/run/run_folder.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

// The text with S in place of each line's seconds.
static std::string without_seconds(const std::string& metrics) {
    return std::regex_replace(metrics, std::regex("[0-9]+[.][0-9]{3},([0-9]+,[0-9.]*\n)"), "S,$1");
}

using Logs = InFolder;

TEST_F(Logs, WritesLlmcsLines) {
    MainLog log;
    log.log_val(0, 1.0f);  // not open: nothing happens
    log.tokens_per_step = 100;
    log.open(folder / "deep/er", -1);
    log.log_val(0, 10.98768f, 3.5);
    log.log_train(0, {10.98768f, 3e-4f, 1.23456f, 1234.5});
    log.log_eval(250, 0.29989f);
    EXPECT_EQ(read_whole_file(folder / "deep/er/main.log"),
              "s:0 tel:10.9877\ns:0 trl:10.9877 lr:0.000300 norm:1.23\ns:250 eval:0.2999\n");
    EXPECT_EQ(
        without_seconds(read_whole_file(folder / "deep/er/metrics.csv")),
        "step,train_loss,learning_rate,norm,tokens_per_second,skipped,val_loss,hellaswag,seconds,tokens,"
        "val_bits_per_byte\n"
        "0,,,,,,10.9876804,,S,0,3.5\n"
        "0,10.9876804,0.000300000014,1.23456001,1234,,,,S,100,\n"
        "250,,,,,,,0.299890012,S,25000,\n");
    log.open(folder / "deep/er", -1);
    EXPECT_EQ(read_whole_file(folder / "deep/er/main.log"), "");
    EXPECT_EQ(count_lines(read_whole_file(folder / "deep/er/metrics.csv")), 1);
}

// Somebody removes or empties the logs of a run: it starts new ones, which it can resume.
TEST_F(Logs, StartsAgainWhenItIsGone) {
    for (const bool emptied : {false, true}) {
        MainLog log;
        log.open(folder.path, -1);
        log.log_val(0, 1);
        for (const char* name : {"main.log", "metrics.csv"})
            emptied ? write_whole_file(folder / name, {}) : remove_file(folder / name);
        log.log_val(1, 2);
        log.log_val(2, 3);
        log.open(folder.path, 2);
        EXPECT_EQ(read_whole_file(folder / "main.log"), "s:1 tel:2.0000\n");
        EXPECT_EQ(
            without_seconds(read_whole_file(folder / "metrics.csv")),
            "step,train_loss,learning_rate,norm,tokens_per_second,skipped,val_loss,hellaswag,seconds,tokens,"
            "val_bits_per_byte\n"
            "1,,,,,,2,,S,0,\n");
    }
}

TEST_F(Logs, HasNoValuesThatAreNotFinite) {
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    MainLog log;
    log.open(folder.path, -1, true);
    for (const float value : bad) {
        log.log_train(1, {value, 0.5f, 2.0f, 10, "not finite"});
        log.log_train(2, {3.0f, 0.5f, value, 10, "not finite"});
    }
    EXPECT_EQ(read_whole_file(folder / "main.log"), "");
    EXPECT_TRUE(without_seconds(read_whole_file(folder / "metrics.csv"))
                    .ends_with("\n1,,0.5,2,10,not finite,,,S,0,\n2,3,0.5,,10,not finite,,,S,0,\n"));
    const std::string events = read_whole_file(log.events.path);
    for (const char* tag : {"loss/train", "gradient_norm"})
        EXPECT_EQ(count_of(events, tag), int(std::size(bad)));
}

TEST_F(Logs, ResumeKeepsEarlierSteps) {
    MainLog log;
    log.open(folder.path, 5);  // nothing to keep yet
    for (int step = 0; step < 12; step++) log.log_train(step, {float(step)});
    log.open(folder.path, 10);
    log.log_val(10, 1.0f);
    std::string text = read_whole_file(folder / "main.log");
    EXPECT_EQ(count_lines(text), 11);
    EXPECT_TRUE(contains(text, "s:9 trl:9.0000"));
    EXPECT_FALSE(contains(text, "s:10 trl"));
    EXPECT_TRUE(text.ends_with("s:10 tel:1.0000\n"));
    text = read_whole_file(folder / "metrics.csv");
    EXPECT_EQ(count_lines(text), 12);
    EXPECT_TRUE(without_seconds(text).ends_with("\n9,9,0,0,0,,,,S,0,\n10,,,,,,1,,S,0,\n"));
}

TEST_F(Logs, TokensContinueOnResume) {
    MainLog log;
    log.tokens_per_step = 100;
    log.first_step = 10;
    log.tokens_before = 5'000'000'000;
    log.open(folder.path, 10);
    log.log_val(10, 1.0f);
    log.log_train(11, {1.0f});
    EXPECT_TRUE(without_seconds(read_whole_file(folder / "metrics.csv"))
                    .ends_with("\n10,,,,,,1,,S,5000000000,\n11,1,0,0,0,,,,S,5000000200,\n"));
}

TEST_F(Logs, SecondsContinueOnResume) {
    MainLog log;
    for (const char* bits : {"", ",", ",1.25"}) {  // releases before had no bits per byte
        write_whole_file(folder / "metrics.csv",
                         {"step,...\n3,1,,,,,,,1000.500,400", bits, "\n4,1,,,,,,,2000.000,500\n"});
        log.open(folder.path, 4);
        log.log_val(4, 1.0f);
        EXPECT_TRUE(contains(read_whole_file(folder / "metrics.csv"), "\n4,,,,,,1,,1000.5")) << bits;
    }
    write_whole_file(folder / "metrics.csv", {"step,...\n3,1,,,,,,\n"});
    log.open(folder.path, 4);
    log.log_val(4, 1.0f);
    EXPECT_TRUE(contains(read_whole_file(folder / "metrics.csv"), "\n4,,,,,,1,,0.0"));
}

TEST_F(Logs, ResumeDropsDamagedLines) {
    const std::string nul(1, '\0'), good = "s:3 tel:1.0\ns:4 trl:2.0\n";
    for (const std::string& broken :
         {std::string("\n"), "s:\n" + nul + nul, std::string("s:5\n"), std::string("s: 3 tel:1.0\n"),
          std::string("s:-1 tel:1.0\n"), std::string("s:99999999999999999999 tel:1.0\n"), "s:3" + nul + " \n",
          std::string("3,1.0\n"), std::string("\xff\xfe\n"), std::string("s:10 tel:1.0\n")}) {
        EXPECT_EQ(lines_before(broken + "\n" + good, "s:", ' ', 10), good) << broken;
        EXPECT_EQ(lines_before(good + broken, "s:", ' ', 10), good) << broken;
    }
    EXPECT_EQ(lines_before("step,loss\n3,1.0,,\n10,1.0\n4,2", "", ',', 10),
              "3,1.0,,\n");  // the last is cut short
    EXPECT_EQ(lines_before("", "s:", ' ', 10), "");
    EXPECT_EQ(lines_before(good, "s:", ' ', 0), "");

    write_whole_file(folder / "main.log", {good, "s:5 trl:1"});
    write_whole_file(folder / "metrics.csv", {std::string(4096, '\0')});
    MainLog log;
    log.open(folder.path, 10);
    log.log_eval(10, 0.5f);
    EXPECT_EQ(read_whole_file(folder / "main.log"), good + "s:10 eval:0.5000\n");
    EXPECT_EQ(count_lines(read_whole_file(folder / "metrics.csv")), 2);
    std::filesystem::remove(folder / "main.log");
    std::filesystem::create_directory(folder / "main.log");
    EXPECT_EQ(message_of([&] { log.open(folder.path, 10); }),
              "cannot read " + folder / "main.log" + ": it is a directory");
}

TEST_F(Logs, ResumeLeavesFilesOfOthersAlone) {
    for (const std::string name : {"main.log", "metrics.csv"}) {
        MainLog log;
        log.open(folder.path, -1);
        log.log_val(0, 1.0f);
        const std::string main = read_whole_file(folder / "main.log"),
                          metrics = read_whole_file(folder / "metrics.csv");
        write_whole_file(folder / name, {"notes of somebody\n"});
        bool writes = false;
        EXPECT_EQ(message_of([&] { log.open(folder.path, 1, false, [&] { writes = true; }); }),
                  folder / name + " is not a log of this program: move it");
        EXPECT_FALSE(writes) << "options.toml would change";
        EXPECT_EQ(read_whole_file(folder / "main.log"), name == "main.log" ? "notes of somebody\n" : main);
        EXPECT_EQ(read_whole_file(folder / "metrics.csv"),
                  name == "main.log" ? metrics : "notes of somebody\n");
        write_whole_file(folder / name, {std::string(100, '\0')});
        log.open(folder.path, 1);
        EXPECT_EQ(read_whole_file(folder / name),
                  name == "main.log" ? "" : metrics.substr(0, metrics.find('\n') + 1));
    }
}

TEST_F(Logs, UnwritableDirectory) {
    write_whole_file(folder / "file", {"x"});
    MainLog log;
    EXPECT_THROW(log.open(folder / "file", -1), Error);
    log.log_val(0, 1.0f);
    EXPECT_THROW(log.open(folder / "file/below", -1), Error);
}
