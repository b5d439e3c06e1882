// The folder of a run: which checkpoints are deleted, what a stopped program left, a folder that is renamed
// under a running program, and runs whose options, data or checksums were changed before they resume.
#include "llmc/run/run_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <thread>

#include "llmc/base/file.h"
#include "llmc/files/checkpoint.h"
#include "llmc/options/option_files.h"
#include "tests/message_of.h"
#include "tests/small_checkpoint.h"
#include "tests/tiny_run.h"

static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

static std::vector<int> pruned(const std::vector<int>& steps, int newest, int keep, int major) {
    TemporaryFolder folder;
    for (int step : steps) write_small(folder.path, step);
    prune_checkpoints(folder.path, {.newest = newest, .keep = keep, .major = major});
    return list_checkpoints(folder.path);
}

using Steps = std::vector<int>;

TEST(PruneCheckpoints, KeepsTheNewest) {
    EXPECT_EQ(pruned({1, 2, 3, 4}, 4, 2, 0), (Steps{4, 3}));
    EXPECT_EQ(pruned({1, 2, 3, 4}, 4, 0, 0), (Steps{4, 3, 2, 1}));
    EXPECT_EQ(pruned({1, 2}, 2, 5, 0), (Steps{2, 1}));
}

TEST(PruneCheckpoints, ExtraOnesDoNotCount) {
    const auto left = [](const KeptCheckpoints& kept) {
        TemporaryFolder folder;
        for (int step : {5, 10, 14, 15}) write_small(folder.path, step);
        prune_checkpoints(folder.path, kept);
        return list_checkpoints(folder.path);
    };
    for (const WrittenFor reason : {WrittenFor::best, WrittenFor::signal}) {
        const ExtraCheckpoints extra = {{14, reason}};
        EXPECT_EQ(left({.newest = 14, .keep = 2, .best = 14, .extra = extra}), (Steps{15, 14, 10, 5}));
        EXPECT_EQ(left({.newest = 15, .keep = 2, .best = 14, .extra = extra}), (Steps{15, 14, 10}));
        EXPECT_EQ(left({.newest = 15, .keep = 2, .healthy = 5, .extra = extra}), (Steps{15, 10, 5}));
        EXPECT_EQ(left({.newest = 15, .keep = 2, .healthy = 14, .extra = extra}), (Steps{15, 14, 10}));
    }
    // one that was the best goes, also if all are kept, unless -nm keeps its step
    const ExtraCheckpoints best = {{14, WrittenFor::best}}, signal = {{14, WrittenFor::signal}};
    EXPECT_EQ(left({.newest = 15, .extra = best}), (Steps{15, 10, 5}));
    EXPECT_EQ(left({.newest = 15, .major = 7, .extra = best}), (Steps{15, 14, 10, 5}));
    EXPECT_EQ(left({.newest = 15, .extra = signal}), (Steps{15, 14, 10, 5}));
    EXPECT_EQ(left({.newest = 15, .keep = 9, .major = 7, .extra = signal}), (Steps{15, 10, 5}));
}

// A run that resumed at an earlier checkpoint neither counts nor deletes the later ones.
TEST(PruneCheckpoints, LeavesNewerCheckpointsAlone) {
    EXPECT_EQ(pruned({2, 4, 6, 8}, 4, 1, 0), (Steps{8, 6, 4}));
    EXPECT_EQ(pruned({2, 4, 6, 8}, 6, 2, 0), (Steps{8, 6, 4}));
}

TEST(PruneCheckpoints, KeepsMajorStepsThatAreOffTheGrid) {
    EXPECT_EQ(pruned({3, 6, 9, 12, 15}, 15, 1, 4), (Steps{15, 12}));
    EXPECT_EQ(pruned({3, 6, 9, 12, 15}, 15, 2, 6), (Steps{15, 12, 6}));
    EXPECT_EQ(pruned({3, 6, 9}, 9, 1, 100), (Steps{9}));
}

TEST(PruneCheckpoints, OldFilesWithoutDoneGoToo) {
    TemporaryFolder folder;
    for (int step : {2, 4, 6}) write_small(folder.path, step);
    std::filesystem::remove(done_path(folder.path, 2));  // as if a program had been stopped
    std::filesystem::remove(done_path(folder.path, 6));
    write_whole_file(model_path(folder.path, 1), {"weights that somebody kept"});
    prune_checkpoints(folder.path, {.newest = 4, .keep = 1});
    EXPECT_FALSE(std::filesystem::exists(model_path(folder.path, 2)));
    EXPECT_FALSE(std::filesystem::exists(optimizer_path(folder.path, 2)));
    EXPECT_TRUE(std::filesystem::exists(model_path(folder.path, 6)));  // newer
    EXPECT_TRUE(std::filesystem::exists(model_path(folder.path, 1)));
}

TEST(PruneCheckpoints, AnErrorIsAWarning) {
    TemporaryFolder folder;
    for (int step : {2, 4}) write_small(folder.path, step);
    std::filesystem::remove(model_path(folder.path, 2));
    std::filesystem::create_directory(model_path(folder.path, 2));  // cannot be unlinked
    testing::internal::CaptureStderr();
    prune_checkpoints(folder.path, {.newest = 4, .keep = 1});
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(said.starts_with("warning: an old checkpoint was not deleted: cannot remove")) << said;
    EXPECT_EQ(count_lines(said), 1);
    EXPECT_EQ(list_checkpoints(folder.path), (Steps{4}));
    std::filesystem::remove(model_path(folder.path, 2));
    prune_checkpoints(folder.path, {.newest = 4, .keep = 0});  // the next one finishes it
    EXPECT_FALSE(std::filesystem::exists(optimizer_path(folder.path, 2)));
    EXPECT_FALSE(std::filesystem::exists(folder / "unfinished_00000002"));
}

TEST(RunFolder, RemovesWhatAStoppedProgramLeft) {
    TemporaryFolder folder;
    for (int step : {2, 4, 6}) write_small(folder.path, step);
    std::filesystem::rename(done_path(folder.path, 2), folder / "unfinished_00000002");
    write_whole_file(folder / "unfinished_00000004", {});
    std::filesystem::remove(done_path(folder.path, 6));  // not by this program
    for (const std::string name : {"main.log", "model_00000008.bin", "unfinished_00000008", "mine"})
        for (const std::string& suffix : {std::string(temporary_suffix), std::string(".tmp")})
            write_whole_file(folder / (name + suffix), {"x"});
    {
        RunFolder held;
        held.open(folder.path);
    }
    EXPECT_EQ(list_checkpoints(folder.path), (Steps{4}));
    EXPECT_FALSE(std::filesystem::exists(optimizer_path(folder.path, 2)));
    EXPECT_TRUE(std::filesystem::exists(optimizer_path(folder.path, 6)));
    for (const std::string name : {"main.log", "model_00000008.bin", "unfinished_00000008", "mine"}) {
        EXPECT_EQ(std::filesystem::exists(temporary_of(folder / name)), name == "mine") << name;
        EXPECT_TRUE(std::filesystem::exists(folder / (name + ".tmp"))) << name;  // somebody else's
    }
    for (const char* name : {"unfinished_00000002", "unfinished_00000004"})
        EXPECT_FALSE(std::filesystem::exists(folder / name)) << name;
}

// The functions of file.h stay in the folder that was opened, whatever its path names now.
TEST(RunFolder, FollowsARenamedFolder) {
    TemporaryFolder data;
    const std::string a = data / "a", b = data / "b";
    RunFolder held;
    held.open(a + "/");
    write_small(a, 1);
    std::filesystem::rename(a, b);
    std::filesystem::create_directory(a);
    write_whole_file(a + "/main.log", {"another run's"});
    write_small(a, 2);
    EXPECT_EQ(append_to_file(a + "/main.log", "line\n"), 5u);
    prune_checkpoints(a, {.newest = 2, .keep = 1});
    EXPECT_EQ(names_in(a).size(), 6u);  // of b, with the lease
    EXPECT_TRUE(std::filesystem::exists(model_path(b, 2)));
    EXPECT_FALSE(std::filesystem::exists(model_path(b, 1)));
    EXPECT_EQ(read_whole_file(b + "/main.log"), "another run'sline\n");
    EXPECT_TRUE(std::filesystem::is_empty(a));
    write_whole_file(a + "2", {"x"});  // a longer name is another path
    EXPECT_EQ(read_whole_file(a + "2"), "x");
}

// --- runs of the program ---

static const Words eight = words_of("-x 8 -n 4 -s 0 -v 0 -l 0.01 -u 2 --device cpu");

static void edit(const std::string& path, const std::string& from, const std::string& to) {
    std::string text = read_whole_file(path);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_whole_file(path, {text.replace(at, from.size(), to)});
}

// The folder of a running trainer is renamed, and a second one starts at the old path: neither writes to the
// other's files.
TEST(RunFolder, TwoProgramsAfterARename) {
    Data data;
    const std::string a = data / "a", b = data / "b";
    const Words options = args("-x 3000 -n 20 -nk 2 -s 0 -v 0 --device cpu -o", a);
    ProgramResult first;
    std::thread running([&] { first = data.run(options); });
    for (int i = 0; i < 1000 && list_checkpoints(a).empty(); i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::filesystem::rename(a, b);
    const ProgramResult second = data.run(with(options, {"-x", "60"}));
    running.join();
    EXPECT_EQ(first.status, 0) << first.err;
    EXPECT_EQ(second.status, 0) << second.err;
    EXPECT_EQ(list_checkpoints(b), (Steps{3000, 2980}));
    EXPECT_EQ(list_checkpoints(a), (Steps{60, 40}));
    EXPECT_EQ(data.losses(b).size(), 3000u);
    EXPECT_EQ(data.losses(a).size(), 60u);
}

TEST(ResumeOptions, TheCheckpointHoldsThem) {
    Data data;
    const std::string a = data / "a", toml = options_path(a);
    expect_ok(data.run(with(eight, {"-o", a})));
    delete_checkpoint(a, 8);
    const std::string text = read_whole_file(toml), log = read_whole_file(a + "/main.log");
    auto again = [&] {
        const std::string result = output_of(resume(a));
        EXPECT_EQ(list_checkpoints(a), (Steps{8, 4}));
        const std::string new_log = read_whole_file(a + "/main.log");
        delete_checkpoint(a, 8);
        std::pair<std::string, std::string> found = {result, new_log};
        return found;
    };
    // a lost line, lost lines, a lost file: the run's values
    edit(toml, "checkpoint-every=4\n", "");
    EXPECT_EQ(again().second, log);
    EXPECT_EQ(read_whole_file(toml), text);  // the line is back
    edit(toml, "learning-rate=0.01\nwarmup-steps=2\n", "");
    EXPECT_EQ(again().second, log);
    std::filesystem::remove(toml);
    EXPECT_EQ(again().second, log);
    EXPECT_EQ(read_whole_file(toml), text);
    // a changed digit is named
    edit(toml, "learning-rate=0.01", "learning-rate=0.02");
    const auto [out, new_log] = again();
    EXPECT_TRUE(contains(out, "note: learning-rate is 0.02, and was 0.01"));
    EXPECT_NE(new_log, log);
}

TEST(ResumeChecksums, AMissingRunFileIsRefused) {
    Data data;
    const std::string a = data / "a";
    expect_ok(data.run(with(eight, {"-o", a, "-x", "12"})));
    std::filesystem::remove(run_path(a, 12));
    const ProgramResult older = resume(a);  // falls back to the checkpoint before
    EXPECT_EQ(older.status, 0) << older.err;
    EXPECT_TRUE(contains(older.out, "run_00000012.json is missing, which the run had"));
    EXPECT_TRUE(contains(older.out, "at step 8"));
    for (const std::string& path : {run_path(a, 12), options_path(a)}) std::filesystem::remove(path);
    const ProgramResult by_older_ones = resume(a);
    EXPECT_TRUE(contains(by_older_ones.out, "which the run had"));
    for (int step : {4, 8, 12}) std::filesystem::remove(run_path(a, step));
    expect_refusal(resume(a, {"-x", "16"}), "which the run had");
}

// --- files ---

TEST(FileWriter, DoesNotFollowALinkAtItsTemporaryName) {
    TemporaryFolder folder;
    write_whole_file(folder / "target", {"precious"});
    for (const std::string& link : {folder / "target", folder / "nothing"}) {
        std::filesystem::create_symlink(link, temporary_of(folder / "x"));
        write_whole_file(folder / "x", {"new"});
        EXPECT_EQ(read_whole_file(folder / "x"), "new");
        EXPECT_FALSE(std::filesystem::is_symlink(folder / "x"));
    }
    EXPECT_EQ(read_whole_file(folder / "target"), "precious");
    EXPECT_FALSE(std::filesystem::exists(folder / "nothing"));
}

TEST(FileWriter, WritesPiecesOfAllSizes) {
    TemporaryFolder folder;
    std::string all;
    FileWriter file(folder / "x");
    for (size_t size : {0, 1, 1000000, 48575, 1, 1048576, 3000000, 7}) {
        const std::string piece(size, char('a' + size % 26));
        file.write(piece);
        all += piece;
    }
    file.finish();
    EXPECT_TRUE(read_whole_file(folder / "x") == all);
}

using ReadWholeFile = InFolder;

TEST_F(ReadWholeFile, AcceptsFilesUpToTheLimit) {
    write_whole_file(folder / "a", {"12345"});
    EXPECT_EQ(read_whole_file(folder / "a", 5), "12345");
    const std::string message = message_of([&] { read_whole_file(folder / "a", 4); });
    EXPECT_TRUE(contains(message, "has 5 bytes, but such a file can have at most 4"));
}

// A pipe in the place of a file is an error at once; opening it would wait for another program.
TEST_F(ReadWholeFile, DoesNotWaitForAPipe) {
    const std::string pipe = folder / "options.toml";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    const std::string message = message_of([&] { read_whole_file(pipe); });
    EXPECT_TRUE(contains(message, "options.toml: it is not a regular file"));
    EXPECT_EQ(append_to_file(pipe, "text"), 0u);
    EXPECT_EQ(errno, ENXIO);
}
