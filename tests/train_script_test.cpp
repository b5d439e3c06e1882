// What dev/train.sh, behind `make train`, says of a text that will not do, before anything is built.
#include <gtest/gtest.h>

#include "tests/run_program.h"

static ProgramResult check(const std::string& text) {
    return run_program({"env", "TEXT=" + text, SOURCE_DIR "/dev/train.sh", "check"});
}

TEST(TrainScript, TellsWhatIsWrongWithTheText) {
    TemporaryFolder folder;
    std::ofstream(folder / "short.txt") << "too short";
    std::ofstream(folder / "my text.txt") << std::string(20000, 'x');
    for (const auto& [text, says] :
         {std::pair{folder / "missing.txt", "no readable file " + folder / "missing.txt"},
          {folder.path, "no readable file " + folder.path},
          {folder / "no/such.txt", folder / "no/such.txt"},
          {folder / "short.txt", std::string("9 bytes; too few")}}) {
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
