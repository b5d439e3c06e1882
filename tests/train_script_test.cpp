// dev/train.sh, which `make train` runs, rejects an unusable text before anything is built.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/run_program.h"

TEST(TrainScript, HelpIsTheScriptsComment) {
    const ProgramResult help = run_program({SOURCE_DIR "/dev/train.sh", "--help"});
    EXPECT_EQ(help.status, 0) << help.err;
    EXPECT_NE(help.out.find("dev/train.sh [options of train_gpt2"), std::string::npos) << help.out;
    EXPECT_EQ(help.out.find('#'), std::string::npos) << help.out;
}

static ProgramResult check(const std::string& text) {
    return run_program({"env", "TEXT=" + text, SOURCE_DIR "/dev/train.sh", "check"});
}

TEST(TrainScript, ChecksTheText) {
    TemporaryFolder folder;
    std::ofstream(folder / "short.txt") << "too short";
    std::ofstream(folder / "my text.txt") << std::string(20000, 'x');
    for (const auto& [text, says] :
         {std::pair{folder / "missing.txt", folder / "missing.txt" + " is not a readable file"},
          {folder.path, folder.path + " is not a readable file"},
          {folder / "no/such.txt", folder / "no/such.txt"},
          {folder / "short.txt", std::string("9 bytes; training needs")}}) {
        const ProgramResult result = check(text);
        EXPECT_EQ(result.status, 1) << text;
        EXPECT_EQ(count_lines(result.err), 1) << result.err;
        EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
    }
    for (const std::string& text : {folder / "my text.txt", std::string()}) {
        const ProgramResult result = check(text);
        EXPECT_EQ(result.status, 0) << result.err;
        EXPECT_EQ(result.err + result.out, "");
    }
}
