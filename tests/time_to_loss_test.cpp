// dev/time_to_loss.sh: recipes are compared by the steps and seconds to a loss, and bad input changes
// nothing.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

#include "llmc/base/file.h"
#include "tests/tiny_run.h"

static ProgramResult compare(const Data& data, const std::string& recipes, const std::string& options = "") {
    write_whole_file(data / "recipes", {recipes});
    return run_program({"bash", "-c",
                        "cd " + data.path +
                            " && " SOURCE_DIR "/dev/time_to_loss.sh --build " BINARY_DIR " --out out " +
                            options + " recipes -i train.bin -j val.bin -e " + tiny +
                            " -b 2 -t 8 -x 9 -v 3 -m 2 --device cpu"});
}

TEST(TimeToLoss, ComparesRecipes) {
    const Data data;
    const std::string result =
        output_of(compare(data, "# two\nslow -l 1e-5\n\nfast --optimizer muon -l 1e-2  # muon\n"));
    const std::regex slow(R"(\| slow \| ([\d.]+) \| [\d.]+ \| 9 \| 144 \| [\d.]+ \| 1 \|)"),
        fast(R"(\| fast \| ([\d.]+) \| [\d.]+ \| \d+ \| \d+ \| [\d.]+ \| [\d.]+ \|)");
    std::smatch of_slow, of_fast;
    ASSERT_TRUE(std::regex_search(result, of_slow, slow)) << result;
    ASSERT_TRUE(std::regex_search(result, of_fast, fast)) << result;
    EXPECT_LT(std::stod(of_fast[1]), std::stod(of_slow[1]));
    for (const char* name : {"table.md", "comparison_over_tokens.svg", "comparison_over_seconds.svg"})
        EXPECT_TRUE(std::filesystem::exists(data / ("out/" + std::string(name)))) << name;
    const ProgramResult again = compare(data, "slow -l 1e-5\n");
    EXPECT_EQ(again.status, 1);
    EXPECT_EQ(again.err, "time_to_loss.sh: out/slow exists: move it, or choose another --out\n");
}

TEST(TimeToLoss, ALossThatNoRunReaches) {
    const Data data;
    expect_ok(compare(data, "slow -l 1e-5\n", "--target 0.01"), "| never | | | |");
}

TEST(TimeToLoss, BadInputIsOneLine) {
    for (const auto& [recipes, options] :
         std::vector<std::pair<std::string, std::string>>{{"../out -l 1\n", ""},
                                                          {"a -l 1\na -l 2\n", ""},
                                                          {"# none\n", ""},
                                                          {"a -l x\n", ""},
                                                          {"a\n", "--target x"},
                                                          {"a\n", "--unknown 1"}}) {
        SCOPED_TRACE(recipes + options);
        const Data data;
        expect_refusal(compare(data, recipes, options), "time_to_loss.sh: ");
    }
}

TEST(TimeToLoss, FilesOfOthersStay) {
    const Words names = {"slow.log", "table.md"};
    for (const std::string& name : names)
        for (const bool is_link : {false, true}) {
            SCOPED_TRACE(name);
            const Data data;
            std::filesystem::create_directory(data / "out");
            write_whole_file(data / "theirs", {"my notes\n"});
            const std::string path = data / ("out/" + name);
            if (is_link)
                std::filesystem::create_symlink(data / "theirs", path);
            else
                write_whole_file(path, {"my notes\n"});
            expect_refusal(compare(data, "slow -l 1e-5\n"),
                           "out/" + name + " is there, and this script has not written it");
            EXPECT_EQ(read_whole_file(path), "my notes\n");
            EXPECT_EQ(names_in(data / "out"), Words{name});
        }
    const Data data;  // a run that failed can be started again
    EXPECT_EQ(compare(data, "slow -l x\n").status, 1);
    expect_ok(compare(data, "slow -l 1e-5\n"));
}

TEST(TimeToLoss, RecipesDoNotActOnATerminal) {
    const Data data;
    const std::string result = output_of(compare(data, "slow -l 1e-5 # \x1b]0;title\x07\n"));
    const ProgramResult bad = compare(data, "bad --\x1b[31m\n");
    EXPECT_EQ(bad.status, 1);
    EXPECT_EQ((result + bad.out + bad.err).find('\x1b'), std::string::npos) << bad.out;
}
