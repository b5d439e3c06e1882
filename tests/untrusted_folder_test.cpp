// A run's folder that somebody else prepared: no link in it is followed when the trainer writes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "llmc/base/file.h"
#include "tests/tiny_run.h"

namespace fs = std::filesystem;

static const int one_thread = setenv("OMP_NUM_THREADS", "1", 1);

static ProgramResult train(const Data& data, const std::string& output, Words more = {}) {
    return data.run(with(args("-o", output, "-x 4 -n 2 -s 0 -v 2 --device cpu --tensorboard"), more));
}

// All files below the folder, and what is in them.
static std::map<std::string, std::string> content_of(const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
        files[entry.path().lexically_relative(folder).generic_string()] =
            entry.is_regular_file() ? read_whole_file(entry.path().string()) : "";
    return files;
}

// A folder of the victim's with a file of each name that a run writes.
static void write_victim(const std::string& folder, const std::string& run) {
    for (const auto& entry : fs::recursive_directory_iterator(run)) {
        const fs::path path = folder / entry.path().lexically_relative(run);
        fs::create_directories(path.parent_path());
        if (entry.is_regular_file()) std::ofstream(path) << "the victim's";
    }
}

using UntrustedFolder = WithData;

TEST_F(UntrustedFolder, FilesThatAreLinksAreReplacedAndNotFollowed) {
    expect_ok(train(data, data / "first"));
    write_victim(data / "victim", data / "first");
    const auto before = content_of(data / "victim");
    ASSERT_GE(before.size(), 10u);
    for (const bool resume : {false, true}) {
        const std::string run = data / (resume ? "resumed" : "new");
        fs::create_directory(run);
        for (const auto& [name, content] : before)
            for (const std::string& suffix : {std::string(), std::string(temporary_suffix)})
                if (name.find("tensorboard") == std::string::npos)
                    fs::create_symlink(data / ("victim/" + name), run + "/" + name + suffix);
        const ProgramResult result = train(data, run, resume ? Words{"-y", "1"} : Words{});
        EXPECT_EQ(content_of(data / "victim"), before) << result.out << result.err;
    }
}

TEST_F(UntrustedFolder, FoldersThatAreLinksAreRefused) {
    expect_ok(train(data, data / "first"));
    write_victim(data / "victim", data / "first");
    const auto before = content_of(data / "victim");
    for (const bool moving : {false, true}) {
        const std::string run = data / (moving ? "moving" : "tensorboard"),
                          link = run + (moving ? "/earlier_1" : "/tensorboard");
        fs::create_directory(run);
        fs::create_directory_symlink(data / "victim", link);
        if (moving) {
            std::ofstream(run + "/moving_earlier_run") << "earlier_1";
            std::ofstream(run + "/main.log") << "s:0 tel:1\n";
        }
        expect_refusal(train(data, run), "train_gpt2: " + link + " is a link");
        EXPECT_EQ(content_of(data / "victim"), before);
    }
}

// The folder of a run's tokens, and the one of an earlier run's.
TEST_F(UntrustedFolder, FoldersOfTokensThatAreLinksAreRefused) {
    const std::string text = numbered(1000, "some words of a text, ", "\n\n");
    write_whole_file(data / "a.txt", {text});
    write_whole_file(data / "b.txt", {text, text});
    const auto train_text = [&](const char* name, const std::string& run) {
        return run_program(
            "train_gpt2 --text", data / name, "-o", run,
            "-e custom:layers=1,heads=1,channels=8,max_seq_len=16 -b 1 -t 16 -x 1 -s 0 --device cpu");
    };
    expect_ok(train_text("a.txt", data / "victim"));
    const auto before = content_of(data / "victim/tokens");
    ASSERT_GE(before.size(), 4u);
    for (const bool moving : {false, true}) {
        const std::string run = data / (moving ? "moving" : "run"),
                          link = run + (moving ? "/earlier_1/tokens" : "/tokens");
        fs::create_directories(fs::path(link).parent_path());
        fs::create_directory_symlink(data / "victim/tokens", link);
        std::ofstream(run + "/main.log") << "s:0 tel:1\n";
        if (moving) {
            fs::create_directory(run + "/tokens");
            std::ofstream(run + "/tokens/text_new.bin") << "x";
            std::ofstream(run + "/moving_earlier_run") << "earlier_1";
        }
        expect_refusal(train_text("b.txt", run), "train_gpt2: " + link + " is a link");
        EXPECT_EQ(content_of(data / "victim/tokens"), before);
    }
}

TEST_F(UntrustedFolder, AnEarlierRunMovesBesideALink) {
    const std::string run = data / "run";
    expect_ok(train(data, run));
    fs::create_directory(data / "victim");
    fs::create_directory_symlink(data / "victim", run + "/earlier_1");
    fs::create_directory_symlink(data / "missing", run + "/earlier_2");
    expect_ok(train(data, run));
    EXPECT_TRUE(fs::exists(run + "/earlier_3/main.log"));
    EXPECT_TRUE(fs::is_empty(data / "victim"));
    EXPECT_FALSE(fs::exists(data / "missing"));
}

TEST_F(UntrustedFolder, AMarkerNamesAnEarlierRunAndNothingElse) {
    const std::string run = data / "run";
    fs::create_directory(run);
    for (const std::string name : {"..", "../victim", "earlier_1/..", "earlier_", "earlier_0", "earlier_1\n",
                                   "earlier_1\x1b[31m", "earlier_1/x", "/tmp", ""}) {
        std::ofstream(run + "/moving_earlier_run") << name;
        const ProgramResult result = train(data, run);
        expect_refusal(result, "names no folder of an earlier run");
        EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
        EXPECT_EQ(result.err.find('\x1b'), std::string::npos);
    }
}
