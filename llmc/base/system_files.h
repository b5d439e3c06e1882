// Files and folders as the operating system offers them, for llmc/base/file.h, which explains errors.
// Functions that fail return -1, false or nothing, and set errno. Calls that a signal interrupts are
// repeated. Paths are UTF-8.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

struct FileStatus {
    enum Kind { regular, folder, symbolic_link, other } kind = other;
    uint64_t device = 0, number = 0;  // what tells the file from all others
    uint64_t size = 0;                // bytes
    int64_t written = 0;              // nanoseconds since an epoch of the system
    bool hidden = false;              // an attribute on Windows; on other systems the name says it

    bool operator==(const FileStatus&) const = default;
    bool has_identity() const { return number != 0; }  // devices of Windows have none
    bool is_same_file(const FileStatus& o) const { return device == o.device && number == o.number; }
};

enum class Links { follow, keep };
std::optional<FileStatus> get_status(const std::string& path, Links links = Links::follow);
std::optional<FileStatus> get_status(int descriptor);
// Whether an error of the system says that nothing is there; any other one says nothing about a file.
bool is_missing(int error);

enum class Access {
    // `read` waits for the writer of a FIFO, `write` for its reader; EINTR: a stop signal came (signals.h)
    read,
    read_at_once,  // does not wait for the writer of a FIFO
    read_itself,   // the same, and a link is an error
    write,         // what exists already
    create,        // a new file; an error if something of that name exists
    append,        // not through a link; creates the file if it is missing
    folder,
};

// Returns a binary descriptor, for read(), write(), fdopen() and close(), which child processes do not
// inherit.
int open_path(const std::string& path, Access access);

// read() and write() of something that may be a pipe or a terminal. EINTR: a stop signal came while it had
// nothing to read, or took nothing.
int64_t read_when_ready(int descriptor, void* to, size_t bytes);
int64_t write_when_ready(int descriptor, const void* from, size_t bytes);

// False, with errno: something that was written is lost. The descriptor is closed in any case.
bool close_written(int descriptor);

void redirect(FILE* stream, int descriptor);  // what is written from now on goes there
int duplicate(int descriptor);                // child processes do not inherit the copy either

// Locks a file or folder for this open descriptor until it is closed. False: another program holds the lock.
// A file system without locks counts as success.
bool lock_file(int descriptor);

// Also true if the file system cannot do it.
bool flush_to_disk(int descriptor);

// Sets the time of its last write to now, by the clock of its file system's server. Follows no link.
bool touch_file(const std::string& path);

bool rename_path(const std::string& from, const std::string& to);  // replaces `to` in one step
bool unlink_path(const std::string& path);                         // removes a file or a link
bool make_folder(const std::string& path);
bool remove_folder(const std::string& path);  // which is empty
bool is_mount(const std::string& path);       // false if the system does not say

// Appends the folder's names, in no order.
bool list_folder(const std::string& path, std::vector<std::string>& names);

// Bytes that may still be written to the folder's file system; ~0 if it does not say.
uint64_t free_bytes(const std::string& folder);

// The characters that separate the parts of a path: a slash, on Windows also a backslash.
extern const char* const separators;
bool is_separator(char c);

// Whether the pattern of a shell (* ? [...]) matches the path; * and ? stand for no separator.
bool matches_pattern(const std::string& pattern, const std::string& path);
// A pattern that matches this path only.
std::string escaped_pattern(const std::string& path);

// From now on, the functions above reach this folder and its files through the descriptor that is returned,
// even if the folder is renamed. One folder is held at a time.
int hold_folder(const std::string& path);
void release_folder(int descriptor);
