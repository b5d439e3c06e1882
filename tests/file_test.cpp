// Errors of the file system are reported with their true reason.
#include "llmc/base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

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

TEST(FileErrors, HaveTheTrueReason) {
    TemporaryFolder folder;
    std::ofstream(folder / "file") << "text";
    chmod((folder / "file").c_str(), 0400);
    mkdir((folder / "closed").c_str(), 0755);
    chmod((folder / "closed").c_str(), 0555);
    for (const char* name : {"open", "open/a.tmp"}) mkdir((folder / name).c_str(), 0777);
    chmod((folder / "open").c_str(), 0777);
    chmod(folder.path.c_str(), 0555);
    const std::string closed = folder / "closed", file = folder / "file";
    const struct {
        std::function<void()> action;
        const char* reason;
    } cases[] = {
        {[&] { create_folders(closed + "/a"); }, "/a: Permission denied"},
        {[&] { create_folders(closed + "/a/b/c"); }, "/a: Permission denied"},
        {[&] { create_folders(file); }, "/file: Not a directory"},
        {[&] { create_folders(file + "/a"); }, "/file: Not a directory"},
        {[&] { create_folders("/proc/none"); }, "/proc/none: No such file or directory"},  // as mkdir says
        {[&] { write_whole_file(closed + "/a", {"text"}); }, "/a.tmp: Permission denied"},
        {[&] { write_whole_file(folder / "open/a", {"text"}); }, "/a.tmp: Is a directory"},
        {[&] { remove_file(file); }, "/file: Permission denied"},
        {[&] { rename_file(file, closed + "/a"); }, "/a: Permission denied"},
        {[&] { names_in(file); }, "/file: Not a directory"},
        {[&] { sync_folder(file); }, "/file: Not a directory"},
        {[&] { HeldFolder().open(file); }, "/file: Not a directory"},
        {[&] { open_to_read(folder / "missing"); }, "/missing: No such file or directory"},
    };
    {
        const WithoutRights everybody;
        for (const auto& c : cases) {
            const std::string message = message_of(c.action);
            EXPECT_TRUE(message.ends_with(c.reason)) << message;
        }
    }
    chmod(folder.path.c_str(), 0755);
}
