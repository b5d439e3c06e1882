// Numbers of more digits than usual: steps from 10^8 on, products of options that exceed an int, dates of
// other centuries (tensorboard_test), counts of shards.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>

#include "llmc/base/file.h"
#include "llmc/files/checkpoint.h"
#include "llmc/run/run_folder.h"
#include "llmc/run/train_options.h"
#include "tests/message_of.h"
#include "tests/run_program.h"
#include "tests/small_checkpoint.h"

static const std::vector<int> steps = {INT_MAX, 1 << 30, 100000000, 99999999, 7};  // newest first

TEST(ManyDigits, CheckpointsOfAnyStep) {
    TemporaryFolder folder;
    for (int step : steps) write_small(folder.path, step);
    EXPECT_EQ(list_checkpoints(folder.path), steps);
    for (int step : steps) {
        EXPECT_EQ(find_latest_checkpoint(folder.path).step, step);
        delete_checkpoint(folder.path, step);
    }
    EXPECT_EQ(names_in(folder.path), std::vector<std::string>{});
}

TEST(ManyDigits, AnEarlierRunMovesWithAllItsCheckpoints) {
    TemporaryFolder folder;
    for (int step : steps) write_small(folder.path, step);
    move_earlier_run(folder.path);
    const std::string moved = folder / "earlier_1";
    EXPECT_EQ(names_in(folder.path), std::vector<std::string>{"earlier_1"});
    EXPECT_EQ(list_checkpoints(moved), steps);
    EXPECT_EQ(find_latest_checkpoint(moved).step, steps[0]);
}

TEST(ManyDigits, LeftoversOfAnyStepGo) {
    TemporaryFolder folder;
    for (int step : steps) {
        write_whole_file(model_path(folder.path, step) + ".tmp", {"half a model"});
        write_whole_file(optimizer_part_path(folder.path, step, 123456) + ".tmp", {"half a state"});
        write_whole_file(folder / format_string("unfinished_%08d", step), {});
        write_whole_file(optimizer_part_path(folder.path, step, 123456), {"a state"});
    }
    remove_leftovers(folder.path);
    EXPECT_EQ(names_in(folder.path), std::vector<std::string>{});
}

TEST(ManyDigits, StepsInNames) {
    for (int step : steps)
        EXPECT_EQ(step_in_name(format_string("model_%08d.bin", step), "model_", ".bin"), step);
    for (const char* name :
         {"model_.bin", "model_1.bin", "model_0000001.bin", "model_000000001.bin", "model_-0000001.bin",
          "model_+0000001.bin", "model_ 0000001.bin", "model_00000001.bin.tmp", "model_00000001",
          "model_2147483648.bin", "model_99999999999999999999999.bin", "state_00000001.bin"})
        EXPECT_EQ(step_in_name(name, "model_", ".bin"), -1) << name;
}

// The message of a job of so many processes with these options; "" if they are accepted.
static std::string refusal(int processes, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"train_gpt2", "-i", "x"});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    Options options;
    options.num_processes = processes;
    return message_of([&] { parse_options(int(argv.size()), argv.data(), options); });
}

TEST(ManyDigits, ProductsOfOptionsAreChecked) {
    for (int processes : {2, 3, 4, 5, 8, 1 << 20})
        for (const char* batch : {"1073741824", "1073741823", "536870913"})
            for (const char* sequence : {"1", "2", "4", "1024", "1073741824"}) {
                const std::string message = refusal(processes, {"-b", batch, "-t", sequence, "-d", "4096"});
                const int64_t sequences = atoll(batch) * processes;
                EXPECT_EQ(message, format_string("-b %lld times -t %s is more than 2^30 tokens",
                                                 (long long)sequences, sequence));
            }
    EXPECT_EQ(refusal(1, {"-b", "1073741824", "-t", "1", "-d", "1073741824"}), "");
    EXPECT_EQ(refusal(4, {"-b", "268435456", "-t", "1"}), "");
    EXPECT_EQ(refusal(4, {"-b", "1", "-t", "1", "-d", "6"}), "-d 6 is not a multiple of B*T*processes = 4");
}

TEST(ManyDigits, CountsOfShards) {
    TemporaryFolder folder;
    for (const std::string count : {"0", "1029", "99999", "9223372036854775808", "18446744073709551617",
                                    "99999999999999999999999", "-1", "1e3", "0x10", "", " 5"}) {
        const ProgramResult result =
            run_program({SOURCE_DIR "/data/download.sh", "fineweb", count, folder.path});
        EXPECT_EQ(result.status, 1);
        EXPECT_EQ(result.err,
                  "download.sh: the number of training shards must be from 1 to 1028, not '" + count + "'\n");
    }
}
