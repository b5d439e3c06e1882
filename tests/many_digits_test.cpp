// Numbers of more digits than usual: steps from 10^8 on, products of options that exceed an int, dates of
// other centuries (tensorboard_test); huge and infinite values of every option.
#include <gtest/gtest.h>

#include <climits>
#include <regex>

#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/files/checkpoint.h"
#include "llmc/options/train_options.h"
#include "llmc/run/run_folder.h"
#include "tests/message_of.h"
#include "tests/small_checkpoint.h"
#include "tests/tiny_run.h"

static const std::vector<int> steps = {INT_MAX, 1 << 30, 100000000, 99999999, 7};  // newest first

using ManyDigits = InFolder;

TEST_F(ManyDigits, CheckpointsOfAnyStep) {
    for (int step : steps) write_small(folder.path, step);
    EXPECT_EQ(list_checkpoints(folder.path), steps);
    for (int step : steps) {
        EXPECT_EQ(find_latest_checkpoint(folder.path).step, step);
        delete_checkpoint(folder.path, step);
    }
    EXPECT_EQ(names_in(folder.path), Words{});
}

TEST_F(ManyDigits, AnEarlierRunMovesWithAllItsCheckpoints) {
    for (int step : steps) write_small(folder.path, step);
    move_earlier_run(folder.path);
    const std::string moved = folder / "earlier_1";
    EXPECT_EQ(names_in(folder.path), Words{"earlier_1"});
    EXPECT_EQ(list_checkpoints(moved), steps);
    EXPECT_EQ(find_latest_checkpoint(moved).step, steps[0]);
}

TEST_F(ManyDigits, LeftoversOfAnyStepGo) {
    for (int step : steps) {
        write_whole_file(temporary_of(model_path(folder.path, step)), {"half a model"});
        write_whole_file(temporary_of(optimizer_part_path(folder.path, step, 123456)), {"half a state"});
        write_whole_file(folder / format_string("unfinished_%08d", step), {});
        write_whole_file(optimizer_part_path(folder.path, step, 123456), {"a state"});
    }
    remove_leftovers(folder.path);
    EXPECT_EQ(names_in(folder.path), Words{});
}

TEST_F(ManyDigits, StepsInNames) {
    for (int step : steps) EXPECT_EQ(checkpoint_of(format_string("model_%08d.bin", step)).step, step);
    for (const char* name :
         {"model_.bin", "model_1.bin", "model_0000001.bin", "model_000000001.bin", "model_-0000001.bin",
          "model_+0000001.bin", "model_ 0000001.bin", "model_00000001.bin.tmp", "model_00000001",
          "model_2147483648.bin", "model_99999999999999999999999.bin", "state_00000001.bin"})
        EXPECT_EQ(checkpoint_of(name).step, -1) << name;
}

// A number in a format with a width loses its further digits.
TEST_F(ManyDigits, NoFormatReadsSoManyDigits) {
    static const std::regex width("scanf\\([^;]*%[0-9]+[a-z]");
    for (const auto& entry : std::filesystem::recursive_directory_iterator(SOURCE_DIR "/llmc"))
        if (entry.is_regular_file()) {
            EXPECT_FALSE(std::regex_search(read_whole_file(entry.path().string()), width)) << entry.path();
        }
}

// The message of a job of so many processes with these options; "" if they are accepted.
static std::string refusal(int processes, Words arguments) {
    arguments.insert(arguments.begin(), {"train_gpt2", "-i", "x"});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    Options options;
    options.num_processes = processes;
    return message_of([&] { parse_options(int(argv.size()), argv.data(), options); });
}

TEST_F(ManyDigits, ProductsOfOptionsAreChecked) {
    for (int processes : {2, 3, 4, 5, 8, 1 << 20})
        for (const char* batch : {"1073741824", "1073741823", "536870913"})
            for (const char* sequence : {"1", "2", "4", "1024", "1073741824"}) {
                const std::string message = refusal(processes, {"-b", batch, "-t", sequence, "-d", "4096"});
                const int64_t sequences = atoll(batch) * processes;
                EXPECT_EQ(message, format_string("-b %lld times -t %s is more than 2^30 tokens",
                                                 (long long)sequences, sequence));
            }
    EXPECT_EQ(refusal(1, args("-b 1073741824 -t 1 -d 1073741824")), "");
    EXPECT_EQ(refusal(4, {"-b", "268435456", "-t", "1"}), "");
    EXPECT_EQ(refusal(4, {"-b", "1", "-t", "1", "-d", "6"}), "-d 6 is not a multiple of B*T*processes = 4");
}

// The long options in a program's --help, without those that end the program.
static Words options_of(const std::string& path) {
    static const std::regex pattern("\n +(-[^ ]*,)?(--[a-z0-9-]+)");
    const std::string help = run_program({path, "--help"}).out;
    Words options;
    for (std::sregex_iterator match(help.begin(), help.end(), pattern), end; match != end; ++match)
        if (const std::string name = (*match)[2]; name != "--help" && name != "--version")
            options.push_back(name);
    return options;
}

// A command that gives every option of a program a value. What it writes stays in the folder, and is small.
// A run that would take years, such as one of 2^31 - 1 steps, is stopped; in the foreground, since timeout
// otherwise also sends SIGCONT, which lets LeakSanitizer wait for ever.
static void expect_success_or_one_line(const std::string& folder, const Words& command) {
    SCOPED_TRACE(joined(command, " "));
    const ProgramResult result =
        run_program(with({"env", "-C", folder, "OMP_NUM_THREADS=1", "bash", "-c",
                          "ulimit -f 20000; exec timeout --foreground -k 30 0.5 \"$@\"", "bash"},
                         command));
    const bool stopped = result.status == 124;
    EXPECT_TRUE(result.status == 0 || result.status == 1 || stopped) << result.status << result.err;
    if (result.status == 1) {
        EXPECT_EQ(count_lines(result.err), 1) << result.err;
        EXPECT_LT(result.err.size(), 1000u) << result.err;
        for (const char* words :
             {"stoll", "stoi", "std::", "unrecognized character", "Could not convert", "cannot use --",
              "basic_string", "vector", "filesystem error"})  // a library's own
            EXPECT_FALSE(contains(result.err, words));
    }
    for (const char* value : {"loss nan", "loss inf", "norm nan", "norm inf"})
        EXPECT_FALSE(contains(result.out, value));
}

class AnyOption : public testing::TestWithParam<const char*> {};

TEST_P(AnyOption, TakesOrRefusesTheValue) {
    const std::string value = GetParam();
    const Data data;
    write_whole_file(data / "text", {"some text\n\nand more\n"});
    const std::vector<Words> commands = {
        args(program, "-i", data.train, "-j", data.val, "-e", tiny,
             "-b 1 -t 17 -x 2 -n 1 -v 1 -s 1 -g 3 -o folder -l 1e-9 -h 0 -m 1 --seed 5 --device cpu"),
        {BINARY_DIR "/eval", "-e", tiny, "-i", data.val, "-t", "17"},
        {BINARY_DIR "/generate", "-e", "custom:layers=1,heads=1,channels=8,max_seq_len=8,vocab=257", "x"},
        args(bin("prepare_data"), data / "text", "--out shards --name name"),
        args(bin("make_corpus"), "--out stories --bytes 1000")};
    for (const Words& command : commands)
        for (const std::string& option : options_of(command[0])) {
            expect_success_or_one_line(data.path, with(command, {option + "=" + value}));
            if (testing::Test::HasFailure()) return;
        }
}

INSTANTIATE_TEST_SUITE_P(ManyDigits, AnyOption,
                         testing::Values("2147483647", "2147483648", "-2147483649", "1000000000000000000",
                                         "9223372036854775807", "9223372036854775808", "18446744073709551615",
                                         "18446744073709551616", "1e400", "nan", "-inf", "0x7fffffff", "1.5",
                                         "all", ""));
