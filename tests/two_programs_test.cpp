// Two programs, one output: a lock lets one write at a time, and shards appear under their names together,
// with a list against which training checks them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <tuple>

#include "llmc/base/file.h"
#include "llmc/base/output.h"
#include "llmc/data/token_file.h"
#include "tests/message_of.h"
#include "tests/run_program.h"
#include "tests/token_shard.h"

namespace fs = std::filesystem;

static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

// Texts of one token per byte; `letter` tells whose a shard is.
static std::string write_text(const TemporaryFolder& folder, char letter, size_t size) {
    const std::string path = folder / (std::string(1, letter) + ".txt");
    std::ofstream(path) << std::string(size, letter);
    return path;
}

static Words prepare(const TemporaryFolder& folder, const std::string& text) {
    return args(bin("prepare_data"), "--out", folder / "data",
                "--name x --shard-tokens 1000 --val-tokens 500", text);
}

// The letters in all shards, and their number.
static std::pair<std::set<int>, size_t> letters_of(const std::string& pattern) {
    std::set<int> letters;
    size_t count = 0;
    for (const TokenShard& shard : open_token_shards(pattern)) {
        const std::vector<uint16_t> tokens = read_shard(shard.path);
        letters.insert(tokens.begin(), tokens.end());
        count++;
    }
    letters.erase(256);  // end of text
    return {letters, count};
}

using TwoPrograms = InFolder;

// Whoever wins, the shards are those of one text.
TEST_F(TwoPrograms, ShardsOfTwoNeverMix) {
    const std::string texts[] = {write_text(folder, 'a', 60000), write_text(folder, 'b', 40000)};
    for (int round = 0; round < 5; round++) {
        ProgramResult results[2];
        std::thread second([&] { results[1] = run_program(prepare(folder, texts[1])); });
        results[0] = run_program(prepare(folder, texts[0]));
        second.join();
        EXPECT_TRUE(results[0].status == 0 || results[1].status == 0);
        const auto [letters, count] = letters_of(folder / "data/x_train*.bin");
        EXPECT_EQ(letters.size(), 1u);
        EXPECT_EQ(count, letters.count('a') ? 60u : 40u);
    }
}

// On a disk that is full after so many kilobytes, and when it is killed, the earlier shards stay whole, or
// are refused.
TEST_F(TwoPrograms, APreparationThatFailsLeavesTheEarlierShards) {
    const std::string a = write_text(folder, 'a', 3500), b = write_text(folder, 'b', 9500);
    expect_ok(run_program(prepare(folder, a)));
    const Words before = names_in(folder / "data");
    for (const char* call : {"open", "write", "fsync", "rename"})
        for (int n = 1; n <= 40; n += 3)
            for (const char* error : {"ENOSPC", "kill"}) {
                SCOPED_TRACE(std::string(call) + " " + std::to_string(n) + " " + error);
                Words command = {"env", "LD_PRELOAD=" BINARY_DIR "/libfile_fault.so",
                                 "FILE_FAULT_FOLDER=" + folder / "data",
                                 std::string("FILE_FAULT=") + call + ":" + std::to_string(n) + ":" + error};
                const Words rest = prepare(folder, b);
                command.insert(command.end(), rest.begin(), rest.end());
                const ProgramResult result = run_program(command);
                std::set<int> letters;
                size_t count = 0;
                const std::string refusal =
                    message_of([&] { std::tie(letters, count) = letters_of(folder / "data/x_train*.bin"); });
                const bool is_old = letters == std::set<int>{'a'} && count == 4,
                           is_new = letters == std::set<int>{'b'} && count == 10;
                EXPECT_TRUE(is_old || is_new || refusal.find("run prepare_data again") != std::string::npos)
                    << refusal;
                if (result.status == 1 && is_old) {  // an error leaves nothing behind
                    EXPECT_EQ(names_in(folder / "data"), before) << result.err;
                    EXPECT_EQ(count_lines(result.err), 1) << result.err;
                }
                expect_ok(run_program(prepare(folder, a)));  // cleans up
                EXPECT_EQ(names_in(folder / "data"), before);
            }
}

#ifndef _WIN32  // which has no LD_PRELOAD
// Earlier shards that no list names any more are still the program's own.
TEST_F(TwoPrograms, TheNextOneRemovesWhatAKilledPreparationLeaves) {
    const std::string a = write_text(folder, 'a', 500), b = write_text(folder, 'b', 3500);
    expect_ok(run_program(prepare(folder, a)));
    const Words before = names_in(folder / "data");
    int kills = 0;
    for (const char* call : {"rename", "unlink"})
        for (int n = 1, is_killed = 1; is_killed; n++) {
            SCOPED_TRACE(std::string(call) + " " + std::to_string(n));
            ASSERT_LT(n, 20);
            expect_ok(run_program(prepare(folder, b)));
            Words command = args("env", "LD_PRELOAD=" BINARY_DIR "/libfile_fault.so",
                                 "FILE_FAULT_FOLDER=" + folder / "data",
                                 std::string("FILE_FAULT=") + call + ":" + std::to_string(n) + ":kill");
            is_killed = run_program(with(command, prepare(folder, a))).status != 0;
            kills += is_killed;
            expect_ok(run_program(prepare(folder, a)));
            EXPECT_EQ(names_in(folder / "data"), before);
            EXPECT_FALSE(contains(read_whole_file(folder / "data/x.json"), "replaced"));
        }
    EXPECT_GT(kills, 6);
}
#endif

TEST_F(TwoPrograms, TrainingRefusesShardsThatAreNotListed) {
    expect_ok(run_program(prepare(folder, write_text(folder, 'a', 3500))));
    const std::string pattern = folder / "data/x_train*.bin", one = folder / "data/x_train_000001.bin",
                      saved = folder / "saved";
    EXPECT_EQ(letters_of(pattern).second, 4u);
    EXPECT_EQ(letters_of(folder / "data/x_train_00000[0-2].bin").second, 3u);  // some of them
    EXPECT_EQ(letters_of(one).second, 1u);
    EXPECT_EQ(letters_of(folder / "data//x_train*.bin").second, 4u);
    fs::copy_file(one, saved);
    const auto expect_refused = [&](const char* says) {
        const std::string message = message_of([&] { open_token_shards(pattern); });
        EXPECT_TRUE(contains(message, says));
        for (const char* program : {BINARY_DIR "/train_gpt2", BINARY_DIR "/eval"})
            expect_refusal(run_program(args(program, "-i", pattern,
                                            "-e custom:layers=1,heads=1,channels=16,max_seq_len=16,vocab=257 "
                                            "--device cpu -b 1 -t 16")),
                           says);
    };
    std::vector<uint16_t> tokens(1000, 'b');
    write_token_shard(one, tokens.data(), tokens.size());  // of the same size
    expect_refused("x_train_000001.bin is not one of the shards that ");
    write_token_shard(one, tokens.data(), 999);
    expect_refused("x_train_000001.bin is not one of the shards that ");
    fs::remove(one);
    expect_refused("x_train_000001.bin is missing, which ");
    EXPECT_THROW(open_token_shards(folder / ".//data//x_train*"), Error);
    fs::copy_file(saved, one);
    fs::copy_file(saved, folder / "data/x_train_000004.bin");
    expect_refused("x_train_000004.bin is not one of the shards that ");
    fs::remove(folder / "data/x_train_000004.bin");
    EXPECT_EQ(letters_of(pattern).second, 4u);
    for (const std::string& name : names_in(folder / "data"))  // the list goes with all of them
        fs::rename(folder / ("data/" + name), folder / ("data/renamed" + name.substr(1)));
    EXPECT_EQ(letters_of(folder / "data/renamed_train*.bin").second, 4u);
    for (const std::string& name : names_in(folder / "data"))
        fs::rename(folder / ("data/" + name), folder / ("data/x" + name.substr(7)));
    fs::remove(folder / "data/x.json");  // shards without a list are accepted
    fs::remove(one);
    EXPECT_EQ(letters_of(pattern).second, 3u);
}

// Each output, while another program holds its lock.
TEST_F(TwoPrograms, OnlyOneWritesAnOutput) {
    for (const char* name : {"data", "hf"}) create_folders(folder / name);
    const std::string shape = "custom:layers=1,heads=1,channels=8,max_seq_len=8,vocab=257";
    const Words corpus = {BINARY_DIR "/make_corpus", "--stories", "2", "--out", folder / "c.txt"};
    std::vector<std::pair<std::string, Words>> commands = {
        {folder / "data/x" + std::string(lock_suffix), prepare(folder, write_text(folder, 'a', 3500))},
        {folder / "c.txt", corpus},
        {folder / "c.json", corpus},
        {folder / "hf/.export" + std::string(lock_suffix),
         {BINARY_DIR "/train_gpt2", "-e", shape, "--export", "hf", folder / "hf"}}};
    if (fs::exists(BINARY_DIR "/report"))  // built with the benchmarks
        commands.push_back({folder / "report" + std::string(lock_suffix),
                            args(bin("report"), "--device cpu --out", folder.path, "--only peak --quick")});
    for (const auto& [lock, command] : commands) {
        SCOPED_TRACE(lock);
        const bool is_lock = lock.ends_with(lock_suffix);
        {
            const std::string output = lock.substr(0, lock.size() - is_lock * lock_suffix.size());
            const FileWriter other = is_lock ? lock_outputs(output) : FileWriter(output);
            EXPECT_EQ(fs::exists(lock), is_lock);
            expect_refusal(run_program(command), "another program is writing it");
        }
        EXPECT_FALSE(fs::exists(folder / "c.txt"));
        if (!is_lock || lock == folder / "report" + std::string(lock_suffix)) continue;
        expect_ok(run_program(command));
        EXPECT_FALSE(fs::exists(lock));
    }
}
