// Reads, writes and removes files, with errors that name the file. Files are written under a temporary name,
// flushed to disk and renamed, so a reader never sees half a file, even if the writer crashes. System calls
// that a signal interrupts are repeated. All binary formats of the project are little-endian and are read
// into memory without conversion.
#pragma once
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/error.h"

static_assert(std::endian::native == std::endian::little, "the file formats are read as little-endian");

// The operating system refused an operation on a file. Nothing is known about the file's content, and trying
// again may help. A missing file is no FileError.
struct FileError : Error {
    using Error::Error;
};

struct FileCloser {
    void operator()(FILE* file) const { fclose(file); }
};
using File = std::unique_ptr<FILE, FileCloser>;

// Opens a regular file for reading. Error if it is missing, unreadable, a directory, a pipe or a device.
File open_to_read(const std::string& path);

// Like open_to_read(), but accepts pipes and devices: only read_stream() can read them. While these two wait,
// they throw StoppedBySignal at a stop signal (os/signals.h).
File open_stream(const std::string& path);
size_t read_stream(const File& file, const std::string& path, void* to, size_t bytes);  // as read_some()

// Size in bytes of an open regular file.
uint64_t size_of(const File& file, const std::string& path);

// Reads up to so many bytes, fewer at the end of the file. Returns their number. Error if reading fails.
size_t read_some(const File& file, const std::string& path, void* to, size_t bytes);

// Reads so many bytes. Error if reading fails or the file ends before.
void read_exactly(const File& file, const std::string& path, void* to, size_t bytes);

// Continues reading at this position.
void seek(const File& file, const std::string& path, uint64_t position);

// Files of llm.c begin with so many int32.
constexpr int header_ints = 256;
constexpr uint64_t header_bytes = header_ints * sizeof(int32_t);

// What the system says of an open file (os/files.h). It tells the file from one that took its place, or that
// was written since.
struct FileStatus;
FileStatus status_of(const File& file, const std::string& path);

// Reads the whole file. Error if it cannot be read or is larger than `limit` bytes.
std::string read_whole_file(const std::string& path, uint64_t limit = uint64_t(1) << 32);

// The file's first bytes, at most so many.
std::string first_bytes(const std::string& path, size_t most);

// Each throws FileError if the system cannot say.
bool file_exists(const std::string& path);
bool is_folder(const std::string& path);
bool is_regular(const std::string& path);
bool is_link(const std::string& path);
// Whether a file that need not be there is. FileError if the path is a link that leads nowhere: the file is
// missing, and was meant to be there.
bool optional_file_exists(const std::string& path);

// Error if the path leads nowhere for another reason than that nothing is there: a closed folder, a loop of
// links, a name that is too long. For what would otherwise say that there is no such file.
void refuse_unreachable(const std::string& path);

// The path itself if it exists, else what it matches as a shell pattern (* ? [...]), sorted by name. Error if
// a folder cannot be listed, or if more than three parts of the path have wildcards.
std::vector<std::string> matching_paths(const std::string& pattern);

// Whether both paths lead to one file, through links, under several names, or in another case where the file
// system ignores that. Where files have no lasting numbers, names decide.
bool is_same_file(const std::string& a, const std::string& b);

// The path from the root, without "." and "..", also if nothing is there.
std::string whole_name(const std::string& path);

// Whether a path has more parts than one, as the system separates them.
bool has_separator(const std::string& path);
// Whether it names something in a folder, and nothing elsewhere: ../x and, on Windows, ..\\x and C:x do not.
bool is_plain_name(const std::string& name);

// The path with its last name as the folder lists it: it may differ in case from the one that leads there.
// `path` itself if there is no such file, or if the folder may not be listed.
std::string path_as_listed(const std::string& path);

// Whether the path leads to something that is written to as it is, and never replaced: a device, a pipe,
// standard output or standard error.
bool is_written_in_place(const std::string& path);

// What follows the name of a file while it is written, and the name of what a program locks. Nobody else's
// files end like this, so that files and folders of any name may be next to an output.
constexpr std::string_view temporary_suffix = ".vulkan-gpt2.tmp", lock_suffix = ".vulkan-gpt2.lock";
std::string temporary_of(const std::string& path);

// What a FileWriter's path may be.
enum class Target {
    file,   // the program's own file: a link there is replaced; a device or a pipe is an Error
    named,  // an output that somebody named: a link leads to its target; see is_written_in_place()
    lock,   // none: only PATH with lock_suffix is there, and finish() is not called
};

// Writes a file piece by piece under its temporary name, which finish() flushes to disk and renames to PATH;
// then it flushes the name. Without finish(), PATH is unchanged and the temporary file is removed. Each
// function throws Error if writing fails.
//
// The temporary file is always a new one: a link of that name is replaced, not followed. What a killed
// program left there is replaced, too. Error if another program is writing it.
struct FileWriter {
    std::string path;

    explicit FileWriter(const std::string& path, Target target = Target::file);
    ~FileWriter();
    FileWriter(const FileWriter&) = delete;
    FileWriter& operator=(const FileWriter&) = delete;

    void write(const void* bytes, size_t count);
    void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
    // Replaces the file's first bytes, after all others were written; only finish() may follow. Not for a
    // device or a pipe.
    void replace_start(std::string_view bytes);
    void finish();

   private:
    void write_out(std::string_view bytes);
    bool in_place = false;
    int descriptor = -1;
    std::string temporary, buffer;
};

// Thrown at a stop signal by FileWriter, while it waits to write to a pipe, and by all that
// StopWritingAtSignals ends.
struct StoppedBySignal : Error {
    int signal;
    explicit StoppedBySignal(int number);
};

// During its lifetime, the stop signals (signals.h) end the writing of files, and the reading and the work
// before it: what is not complete is removed, as after an error. For output that is of no use in part. In the
// end, release_stop_signals().
struct StopWritingAtSignals {
    StopWritingAtSignals();
    ~StopWritingAtSignals();
    StopWritingAtSignals(const StopWritingAtSignals&) = delete;
};

// For long work between reading and writing, which a StopWritingAtSignals of its caller ends.
bool work_is_stopped();
void throw_if_stopped();  // StoppedBySignal

// Writes the concatenated parts as the file's whole content, with a FileWriter.
void write_whole_file(const std::string& path, std::initializer_list<std::string_view> parts,
                      Target target = Target::file);

// Writes to a descriptor. Returns the number of bytes written; if some are missing, errno says why.
size_t write_bytes(int descriptor, std::string_view bytes);

// Appends to a file, which is created if it is missing; a link is not followed. Returns the number of bytes
// written. errno is 0, or says why some are missing, or why the file could not be closed.
size_t append_to_file(const std::string& path, std::string_view bytes);

// Flushes what was appended to disk, unless the file has been removed or replaced by a link or a device.
// Returns whether it could; errno says why not.
bool flush_file(const std::string& path);

// Error if the file exists and cannot be removed.
void remove_file(const std::string& path);

void rename_file(const std::string& from, const std::string& to);

// The copy appears when it is complete.
void copy_file(const std::string& from, const std::string& to);

// Moves a file, or a folder with all in it, to another folder of the same disk: entry by entry where the file
// system cannot rename it, as for folders of a container's image, or where an interrupted move left a part.
void move_path(const std::string& from, const std::string& to);

// --- folders ---

// Creates a folder and those above it. The names of new folders are flushed to disk.
void create_folders(const std::string& path);

// Flushes the names in a folder, new and removed ones, to disk. Error if the disk reports one; not an error
// on file systems that cannot do it.
void sync_folder(const std::string& path);

// The names in a folder, sorted; none if there is no such folder. Error if it cannot be read.
std::vector<std::string> names_in(const std::string& folder);

// While a folder is held, the functions of this header reach it and its files through a descriptor, not
// through its path: if the folder is renamed, they follow it, and they never touch another folder that takes
// its place. A program holds one folder at a time.
struct HeldFolder {
    int descriptor = -1;

    HeldFolder() = default;
    ~HeldFolder();
    HeldFolder(const HeldFolder&) = delete;
    HeldFolder& operator=(const HeldFolder&) = delete;

    void open(const std::string& path);
};
