#include "llmc/run/run_folder.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <thread>

#include "llmc/base/error.h"
#include "llmc/base/lines.h"
#include "llmc/base/output.h"
#include "llmc/base/paths.h"
#include "llmc/base/system_files.h"
#include "llmc/base/utf8.h"
#include "llmc/files/checkpoint.h"
#include "llmc/options/recipe.h"
#include "llmc/run/tensorboard.h"

// Names the subfolder to which an earlier run is being moved; removed when all its files are there.
static const char* moving_file = "moving_earlier_run";

// The files that a run writes, also those that the folder spells otherwise, with `suffix` after their names.
static std::vector<std::string> files_of_a_run(const std::string& folder, std::string_view suffix = "") {
    static const std::regex names(
        "main\\.log|metrics\\.csv|options\\.toml|tokenizer\\.bin|loss\\.svg|model_[0-9]{8,}\\.bin|"
        "state_[0-9]{8,}_[0-9]{5,}\\.bin|run_[0-9]{8,}\\.json|(DONE|unfinished)_[0-9]{8,}");
    std::vector<std::string> found;
    for (const std::string& name : names_in(folder)) {
        const std::string own = own_spelling(name);
        if (own.ends_with(suffix) &&
            std::regex_match(own.begin(), own.end() - ptrdiff_t(suffix.size()), names) &&
            is_spelled_as(own, folder, name) && !is_folder(folder + "/" + name))
            found.push_back(own);
    }
    return found;
}

void refuse_inputs(const std::string& folder, const std::vector<std::string>& inputs) {
    std::vector<std::string> names = files_of_a_run(folder);
    const std::vector<std::string> unfinished = files_of_a_run(folder, temporary_suffix);
    names.insert(names.end(), unfinished.begin(), unfinished.end());
    for (const std::string& pattern : inputs)
        for (const std::string& input : matching_paths(pattern))
            for (const std::string& name : names)
                if (is_same_file(folder + "/" + name, input))
                    fail(
                        "%s is an input with the name of a file of the run in -o %s: move or rename it, or "
                        "choose another folder with -o",
                        input.c_str(), folder.c_str());
}

void refuse_foreign_folder(const std::string& path,
                           const std::function<bool(const std::string& name)>& is_of_run) {
    if (is_link(path) || !is_folder(path)) return;
    std::vector<std::string> names = names_in(path);
    std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
    if (!names.empty() && std::ranges::none_of(names, is_of_run))
        fail("%s is there, and a run would write to it: move it, or choose another folder with -o",
             path.c_str());
}

void create_subfolder(const std::string& path) {
    if (is_link(path)) fail("%s is a link, which is not followed: remove it", path.c_str());
    create_folders(path);
}

// Gives the earlier run its tokens: as links, or as copies where a file system has no links.
static void link_tokens(const std::string& folder, const std::string& to) {
    namespace fs = std::filesystem;
    const std::string from = folder + "/" + tokens_folder, into = to + "/" + tokens_folder;
    if (!is_folder(from) || is_link(from)) return;
    create_subfolder(into);
    for (const std::string& name : names_in(from)) {
        const std::string file = from + "/" + name, link = into + "/" + name;
        std::error_code error;
        if (is_temporary_name(fold_case(name)) || file_exists(link) || !is_regular(file)) continue;
        fs::create_hard_link(file, link, error);
        if (error) copy_file(file, link);
    }
    sync_folder(into);
}

// Moves what a run has in one folder to another.
static void move_files(const std::string& from, const std::string& to) {
    std::vector<std::string> names = files_of_a_run(from);
    if (const std::string events = from + "/" + tensorboard_folder;
        is_folder(events) && std::ranges::any_of(names_in(events), is_event_file))
        names.push_back(tensorboard_folder);
    for (const std::string& name : names) move_path(from + "/" + name, to + "/" + name);
    sync_folder(to);
}

// Undoes what an error interrupted.
static void put_back(const std::string& from, const std::string& folder) {
    move_files(from, folder);
    const std::string events = from + "/" + tensorboard_folder, links = from + "/" + tokens_folder;
    if (is_folder(events)) move_path(events, folder + "/" + tensorboard_folder);
    for (const std::string& name : names_in(links)) remove_file(links + "/" + name);
    for (const std::string& empty : {links, from}) remove_folder(empty);
    remove_file(folder + "/" + moving_file);
}

// Moves the whole run to its subfolder `name`, or nothing: a mount or an immutable file cannot be renamed.
static void move_run(const std::string& folder, const std::string& name) {
    const std::string to = folder + "/" + name;
    try {
        write_whole_file(folder + "/" + moving_file, {name});
        create_subfolder(to);
        link_tokens(folder, to);
        move_files(folder, to);
    } catch (const FileError& error) {
        std::string where = "the earlier run stays in " + folder + ": choose another folder with -o";
        try {
            put_back(to, folder);
        } catch (const Error& of_return) {
            where = "a part of the earlier run is in " + to + ": " + of_return.what();
        }
        throw FileError(std::string(error.what()) + "; " + where);
    }
    remove_file(folder + "/" + moving_file);
    sync_folder(folder);
}

bool holds_run(const std::string& folder) { return !files_of_a_run(folder).empty(); }

void move_earlier_run(const std::string& folder) {
    if (!holds_run(folder)) return;
    std::string name;
    for (int i = 1; name.empty() || file_exists(folder + "/" + name) || is_link(folder + "/" + name); i++)
        name = format_string("earlier_%d", i);
    move_run(folder, name);
    print_line(stdout, "note: %s held an earlier run, which is now in %s/%s; -y 1 resumes a run",
               folder.c_str(), folder.c_str(), name.c_str());
}

// Moves the rest of an earlier run if a program was killed while it moved it.
static void finish_moving(const std::string& folder) {
    const std::string marker = folder + "/" + moving_file;
    remove_file(temporary_of(marker));
    if (!file_exists(marker)) return;
    const std::string name = read_whole_file(marker, 1 << 10);
    if (!std::regex_match(name, std::regex("earlier_[1-9][0-9]*")))
        fail("%s names no folder of an earlier run; move the files of that run by hand and remove it",
             marker.c_str());
    move_run(folder, name);
    print_line(stdout, "note: the rest of an earlier run in %s is now in its folder %s, too", folder.c_str(),
               name.c_str());
}

// The last training step in a main.log; -1: none.
static int last_step_in_log(const std::string& path) {
    int last = -1;
    for (const std::string& line : lines_of(read_whole_file(path))) {
        int step = -1, length = 0;  // 0: a line of another kind
        if (sscanf(line.c_str(), "s:%d trl:%n", &step, &length) == 1 && length) last = std::max(last, step);
    }
    return last;
}

std::string unexplained_file(const std::string& folder, int first_checkpoint) {
    const std::vector<std::string> names = files_of_a_run(folder);
    for (const std::string& name : names)
        for (const char* start : {"model_", "state_", "run_"})
            if (name.starts_with(start)) return name;
    const bool has_options = std::count(names.begin(), names.end(), "options.toml");
    for (const std::string& name : names) {
        const bool follows_options = name == "main.log" || name == "metrics.csv" || name == "tokenizer.bin";
        if (follows_options && !has_options && !read_whole_file(folder + "/" + name).empty()) return name;
        if (name == "main.log" && last_step_in_log(folder + "/" + name) >= first_checkpoint) return name;
    }
    return "";
}

void remove_leftovers(const std::string& folder) {
    for (const std::string& name : files_of_a_run(folder, temporary_suffix)) remove_file(folder + "/" + name);
    remove_unfinished_checkpoints(folder);
}

// Listings of network file systems may be older than files: a run that is not listed would be replaced.
static void check_listing(const std::string& folder) {
    const std::vector<std::string> listed = files_of_a_run(folder);
    for (const std::string name : {"options.toml", "main.log", "metrics.csv"})
        if (const std::string path = folder + "/" + name;
            file_exists(path) && !is_folder(path) && !std::ranges::count(listed, name))
            fail(
                "%s is there, and the listing of its folder lacks it: try again later, or choose another "
                "folder with -o",
                path.c_str());
}

// The held folder writes files whose whole paths the system would refuse to read later.
static void refuse_long_path(const std::string& folder) {
    const size_t longest_name = 64;  // of a run's files
    if (!get_status(folder + "/" + std::string(longest_name, 'x')) && errno == ENAMETOOLONG)
        fail("-o %s: the path is too long for a run's files: choose a shorter one", folder.c_str());
}

void RunFolder::open(const std::string& folder) {
    refuse_long_path(folder);
    create_folders(folder);
    held.open(folder);
    // A killed program keeps its lock until its memory is freed, which takes a second.
    for (int tenths = 0; tenths < 20 && !lock_file(held.descriptor); tenths++)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (!lock_file(held.descriptor))
        fail("-o %s: another %s is using this folder; wait for it, or choose another folder", folder.c_str(),
             command_of("train_gpt2").c_str());
    lease.take(folder);
    check_listing(folder);
    finish_moving(folder);
    remove_leftovers(folder);
}

// The checkpoints that do not stay.
static std::vector<int> superfluous(const std::string& folder, const KeptCheckpoints& kept) {
    std::vector<int> steps;
    int scheduled = 0;
    for (int step : list_checkpoints(folder)) {  // newest first
        if (step > kept.newest) continue;
        const auto extra = kept.extra.find(step);
        const bool for_signal = extra != kept.extra.end() && extra->second == WrittenFor::signal;
        const bool is_major = kept.major && step % kept.major == 0 && !for_signal;
        const bool goes = extra == kept.extra.end() ? kept.keep && scheduled++ >= kept.keep
                                                    : step != kept.newest && (!for_signal || kept.keep);
        if (goes && !is_major && step != kept.healthy && step != kept.best) steps.push_back(step);
    }
    return steps;
}

void prune_checkpoints(const std::string& folder, const KeptCheckpoints& kept) {
    try {
        for (int step : superfluous(folder, kept)) delete_checkpoint(folder, step);
        remove_unfinished_checkpoints(folder);  // which an earlier error left
        if (kept.keep == 0) return;
        for (int step : list_checkpoints_without_done(folder))
            if (step < kept.newest && (kept.major == 0 || step % kept.major != 0))
                delete_checkpoint(folder, step);
    } catch (const Error& error) {
        warn("an old checkpoint was not deleted: %s; the next checkpoint tries again", error.what());
    }
}

void check_room_for_run(const std::string& folder, uint64_t bytes, int existing, int count, int keep) {
    if (count < 1) return;
    check_room(folder, bytes);
    // a new checkpoint is written before the oldest one goes
    const int most = keep == 0 ? count : std::max(1, std::min(count, keep + 1 - existing));
    const uint64_t room = free_bytes(folder);
    if (room / bytes < uint64_t(most))
        print_line(
            stdout,
            "note: %s has room for %llu more checkpoints of %.1f MiB, and this run needs room for %d; %s",
            folder.c_str(), (unsigned long long)(room / bytes), double(bytes) / (1 << 20), most,
            keep == 0 ? "-nk keeps only the newest" : "free some space");
}

std::string lines_before(std::string_view text, std::string_view before, char after, int step) {
    std::string kept;
    for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
        const std::string_view line = text.substr(0, end + 1);
        if (!line.starts_with(before)) continue;
        int number;
        const auto [next, error] = std::from_chars(line.data() + before.size(), line.data() + end, number);
        if (error == std::errc() && *next == after && number >= 0 && number < step) kept += line;
    }
    return kept;
}
