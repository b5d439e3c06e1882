// Errors of the file system are reported with their true reason; paths lead where the system says.
#include "llmc/base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "llmc/base/paths.h"
#include "llmc/data/token_file.h"
#include "llmc/files/model_source.h"
#include "llmc/run/loss_plot.h"
#include "llmc/text/text_file.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

// While it exists, this process may write only what everybody may.
struct WithoutRights {
    const bool was_root = geteuid() == 0;
    WithoutRights() {
        if (was_root && seteuid(65534) != 0) throw std::runtime_error("cannot give up the rights of root");
    }
    ~WithoutRights() {
        if (was_root && seteuid(0) != 0) abort();
    }
};

struct FailingAction {
    std::function<void()> action;
    const char* reason;
};

static void expect_reasons(const std::vector<FailingAction>& cases) {
    for (const FailingAction& c : cases) {
        const std::string message = message_of(c.action);
        EXPECT_TRUE(message.ends_with(c.reason)) << message;
    }
}

using FileErrors = InFolder;

TEST_F(FileErrors, HaveTheTrueReason) {
    const std::string file = folder / "file";
    std::ofstream(file) << "text";
    create_folders(temporary_of(folder / "open/a"));
    expect_reasons({
        {[&] { create_folders(file); }, "/file: Not a directory"},
        {[&] { create_folders(file + "/a"); }, "/file: Not a directory"},
        {[&] { write_whole_file(folder / "open/a", {"text"}); }, "/a.vulkan-gpt2.tmp: Is a directory"},
        {[&] { names_in(file); }, "/file: Not a directory"},
        {[&] { sync_folder(file); }, "/file: Not a directory"},
        {[&] { HeldFolder().open(file); }, "/file: Not a directory"},
        {[&] { open_to_read(folder / "missing"); }, "/missing: No such file or directory"},
        {[&] { file_exists(file + '\0'); }, "/file\\x00: no file's name has a zero byte"},
        {[&] { open_to_read(file + '\0'); }, "/file\\x00: no file's name has a zero byte"},
    });
}

// The kernel refuses to read this file's first bytes.
TEST_F(FileErrors, OfReadingHaveTheTrueReason) {
    const std::string path = "/proc/self/mem";
    char bytes[8];
    expect_reasons({
        {[&] { read_some(open_to_read(path), path, bytes, sizeof bytes); }, "/mem: Input/output error"},
        {[&] { read_exactly(open_to_read(path), path, bytes, sizeof bytes); }, "/mem: Input/output error"},
        {[&] { read_exactly(open_to_read("/dev/null"), "null", bytes, sizeof bytes); }, "not a regular file"},
    });
    const ProgramResult result = run_program("prepare_data", path, "--out /nowhere --name x");
    EXPECT_TRUE(contains(result.err, "cannot read /proc/self/mem: Input/output error"));
}

// Out of a link, ".." leads to the folder of what it leads to.
TEST(Paths, AreThoseOfTheSystem) {
    const TemporaryFolder folder;
    const std::filesystem::path root = std::filesystem::canonical(folder.path);
    std::filesystem::create_directories(root / "real/deep/er");
    std::filesystem::create_directory_symlink("real/deep", root / "link");
    for (const char* path : {"link/../deep", "link/er/..", "link/er/../../deep", "link/../../real/./deep",
                             "real/../link", "link/er/../", "none/../link", "link/./../deep"})
        EXPECT_EQ(std::filesystem::weakly_canonical(normal_path(root / path)), root / "real/deep") << path;
    EXPECT_EQ(normal_path(root / "real/deep/../../../x"), root.parent_path() / "x");
    for (const auto& [path, normal] :
         {std::pair("../a/..", ".."), {"a/../..", ".."}, {"a/..", "."}, {"/..", "/"}})
        EXPECT_EQ(normal_path(path), normal) << path;
}

TEST(MatchingPaths, DoNotSearchAWholeDisk) {
    TemporaryFolder folder;
    std::filesystem::create_directories(folder / "a/b");
    write_whole_file(folder / "a/b/c1", {""});
    EXPECT_EQ(matching_paths(folder / "*/b/c*"), (Words{folder / "a/b/c1"}));
    EXPECT_EQ(matching_paths(folder / "a/b/[c]?").size(), 1u);
    for (const char* pattern : {"/*/*/*/*", "/*/?/*/*/*x", "*/[a]/*/b/?"})
        expect_error("at most three parts", [&] { matching_paths(pattern); });
}

TEST_F(FileErrors, NameMissingRights) {
    const std::string closed = folder / "closed", file = folder / "file";
    std::ofstream(file) << "text";
    create_folders(closed);
    chmod(file.c_str(), 0400);
    chmod(closed.c_str(), 0555);
    chmod(folder.path.c_str(), 0555);
    {
        const WithoutRights everybody;
        expect_reasons({
            {[&] { create_folders(closed + "/a"); }, "/a: Permission denied"},
            {[&] { create_folders(closed + "/a/b/c"); }, "/a: Permission denied"},
            {[&] { create_folders("/proc/none"); },
             "/proc/none: No such file or directory"},  // as mkdir says
            {[&] { write_whole_file(closed + "/a", {"text"}); }, "/a.vulkan-gpt2.tmp: Permission denied"},
            {[&] { remove_file(file); }, "/file: Permission denied"},
            {[&] { rename_file(file, closed + "/a"); }, "/a: Permission denied"},
        });
    }
    chmod(folder.path.c_str(), 0755);
}

// What looks for a file before it opens it does not say that there is none.
TEST_F(FileErrors, AFolderWithoutPermissionIsNotAMissingFile) {
    const std::string run = folder / "closed/run";
    create_folders(run);
    write_whole_file(run + "/metrics.csv", {"step,loss\n1,2\n"});
    chmod(folder.path.c_str(), 0755);
    chmod((folder / "closed").c_str(), 0);
    {
        const WithoutRights everybody;
        for (const std::string& message :
             {message_of([&] { find_model(run); }), message_of([&] { find_model(run + ":last"); }),
              message_of([&] { open_token_shards(run + "/a_train.bin"); }),
              message_of([&] { open_token_shards(run + "/a_train_*.bin"); }),
              message_of([&] { read_series(run, PlotOver::steps); })})
            EXPECT_TRUE(message.ends_with(": Permission denied")) << message;
    }
    chmod((folder / "closed").c_str(), 0755);
}

TEST_F(FileErrors, APathThatLeadsNowhereSaysWhy) {
    const std::string loop = folder / "loop", file = folder / "file";
    std::filesystem::create_symlink("loop", loop);
    write_whole_file(file, {"text"});
    for (const auto& [path, reason] : {std::pair{loop, ELOOP},
                                       {loop + "/run", ELOOP},
                                       {folder / std::string(300, 'n'), ENAMETOOLONG},
                                       {file + "/run", ENOTDIR}})
        for (const std::string& message :
             {message_of([&] { find_model(path); }), message_of([&] { open_token_shards(path); }),
              message_of([&] { open_token_shards(path + "*"); }),
              message_of([&] { read_series(path, PlotOver::steps); }),
              message_of([&] { read_text_file(path); })})
            EXPECT_TRUE(message.ends_with(std::string(": ") + strerror(reason))) << message;
    std::filesystem::create_symlink("nowhere", folder / "dangling");
    for (const std::string& link : {loop, folder / "dangling"})
        EXPECT_EQ(message_of([&] { create_folders(link); }),
                  "cannot create directory " + link + ": it is a link that leads nowhere");
}
