#include "llmc/run/run_folder.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "llmc/base/error.h"
#include "llmc/files/checkpoint.h"
#include "llmc/run/tensorboard.h"

void RunFolder::open(const std::string& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) fail("cannot create directory %s: %s", folder.c_str(), error.message().c_str());
    lock = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // A killed program keeps its lock until its memory is freed, which takes a second. A file system without
    // locks gives another error; the folder is then used without one.
    const auto taken = [&] {
        return lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    };
    for (int tenths = 0; tenths < 20 && taken(); tenths++) usleep(100000);
    if (taken())
        fail("-o %s: another train_gpt2 is using this folder; wait for it, or choose another folder",
             folder.c_str());
}

RunFolder::~RunFolder() {
    if (lock >= 0) close(lock);
}

// The files that a run writes, with `suffix` after their names.
static std::vector<std::filesystem::path> files_of_a_run(const std::string& folder, const char* suffix) {
    static const char* names[] = {"main.log",
                                  "metrics.csv",
                                  "options.toml",
                                  "model_????????.bin",
                                  "state_????????_?????.bin",
                                  "run_????????.json",
                                  "DONE_????????",
                                  "loss.svg"};
    std::vector<std::filesystem::path> found;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
        for (const char* name : names) {
            const std::string pattern = std::string(name) + suffix, file = entry.path().filename().string();
            if (entry.is_regular_file(error) && fnmatch(pattern.c_str(), file.c_str(), 0) == 0)
                found.push_back(entry.path());
        }
    return found;
}

std::string move_earlier_run(const std::string& folder) {
    std::vector<std::filesystem::path> found = files_of_a_run(folder, "");
    if (found.empty()) return "";
    std::error_code error;
    const std::filesystem::path events = std::filesystem::path(folder) / tensorboard_folder;
    if (std::filesystem::is_directory(events, error)) found.push_back(events);
    std::string to;
    for (int i = 1; to.empty() || std::filesystem::exists(to); i++)
        to = format_string("%s/earlier_%d", folder.c_str(), i);
    std::filesystem::create_directory(to, error);
    for (const std::filesystem::path& file : found)
        if (!error) std::filesystem::rename(file, std::filesystem::path(to) / file.filename(), error);
    if (error)
        fail("cannot move the earlier run in %s to %s: %s", folder.c_str(), to.c_str(),
             error.message().c_str());
    return to;
}

void remove_temporary_files(const std::string& folder) {
    std::error_code ignored;
    for (const std::filesystem::path& file : files_of_a_run(folder, ".tmp"))
        std::filesystem::remove(file, ignored);
}

void prune_checkpoints(const std::string& folder, int newest, int keep, int major) {
    int kept = 0;
    for (int step : list_checkpoints(folder)) {  // newest first
        if (keep == 0 || step > newest || kept++ < keep) continue;
        if (major == 0 || step % major != 0) delete_checkpoint(folder, step);
    }
}
