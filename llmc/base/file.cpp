#include "llmc/base/file.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <utility>

#include "llmc/base/heartbeat.h"
#include "llmc/base/paths.h"
#include "llmc/base/signals.h"
#include "llmc/base/system_files.h"
#include "llmc/base/utf8.h"

static std::atomic<bool> stops_at_signals = false;

StoppedBySignal::StoppedBySignal(int number)
    : Error(format_string("stopped by %s", signal_name(number))), signal(number) {}

// For the error of a call that waited for a pipe, a terminal or a FIFO.
static void throw_if_interrupted(int error) {
    if (error == EINTR && stop_signal()) throw StoppedBySignal(stop_signal());
}

// Throws FileError: "WHAT PATH: REASON".
[[noreturn]] static void fail_file(const char* what, const std::string& path, const std::string& reason) {
    throw FileError(printable(format_string("%s %s: %s", what, path.c_str(), reason.c_str())));
}
[[noreturn]] static void fail_file(const char* what, const std::string& path, int error) {
    throw_if_interrupted(error);
    fail_file(what, path, strerror(error));
}

bool is_missing(int error) { return error == ENOENT || error == ENOTDIR; }

[[noreturn]] static void fail_to_open(const std::string& path, int error) {
    if (!is_missing(error)) fail_file("cannot open", path, error);
    const std::optional<FileStatus> itself = get_status(path, Links::keep);
    if (itself && itself->kind == FileStatus::symbolic_link)
        fail_file("cannot open", path, "it is a link that leads nowhere");
    fail("cannot open %s: %s", path.c_str(), strerror(error));
}

// The system would take the name before the zero byte.
static void refuse_zero_byte(const std::string& path) {
    if (path.find('\0') != path.npos) fail("%s: no file's name has a zero byte", printable(path).c_str());
}

// What the system says of a path; none if nothing is there. FileError if it cannot say.
static std::optional<FileStatus> status_at(const std::string& path, Links links = Links::follow) {
    refuse_zero_byte(path);
    std::optional<FileStatus> status = get_status(path, links);
    if (!status && !is_missing(errno)) fail_to_open(path, errno);
    return status;
}

// --- held folders ---

void HeldFolder::open(const std::string& path) {
    descriptor = hold_folder(path);
    if (descriptor < 0) fail("cannot open the folder %s: %s", path.c_str(), strerror(errno));
}

HeldFolder::~HeldFolder() {
    if (descriptor >= 0) release_folder(descriptor);
}

// --- reading ---

FileStatus status_of(const File& file, const std::string& path) {
    const std::optional<FileStatus> status = get_status(fileno(file.get()));
    if (!status) fail_file("cannot read", path, errno);
    return *status;
}

static File open_with(const std::string& path, Access access) {
    refuse_zero_byte(path);
    const int descriptor = open_path(path, access);
    if (descriptor < 0) fail_to_open(path, errno);
    File file(fdopen(descriptor, "rb"));
    if (!file) {
        const int error = errno;
        close(descriptor);
        fail_to_open(path, error);
    }
    if (status_of(file, path).kind == FileStatus::folder)
        fail("cannot read %s: it is a directory", path.c_str());
    return file;
}

// A clone without git-lfs has these small files in the place of large ones.
static void refuse_lfs_pointer(const File& file, const std::string& path) {
    const FileStatus status = status_of(file, path);
    const std::string_view begins = "version https://git-lfs.github.com/spec/";
    char start[64];
    if (status.kind != FileStatus::regular || status.size > 1024) return;
    const size_t count = read_stream(file, path, start, begins.size());
    if (lseek(fileno(file.get()), 0, SEEK_SET) != 0) fail_file("cannot read", path, errno);
    if (std::string_view(start, count) == begins)
        fail("%s is a pointer of git-lfs, not the file itself: fetch it with git lfs pull", path.c_str());
}

File open_stream(const std::string& path) {
    File file = open_with(path, Access::read);
    refuse_lfs_pointer(file, path);
    return file;
}

File open_to_read(const std::string& path) {
    File file = open_with(path, Access::read_at_once);  // opening a FIFO would block until it has a writer
    if (status_of(file, path).kind != FileStatus::regular)
        fail("cannot read %s: it is not a regular file", path.c_str());
    refuse_lfs_pointer(file, path);
    return file;
}

uint64_t size_of(const File& file, const std::string& path) { return status_of(file, path).size; }

size_t read_some(const File& file, const std::string& path, void* to, size_t bytes) {
    size_t count = fread(to, 1, bytes, file.get());
    while (ferror(file.get()) && errno == EINTR) {  // of some file systems of users (FUSE) and networks
        clearerr(file.get());
        count += fread(static_cast<char*>(to) + count, 1, bytes - count, file.get());
    }
    heartbeats++;
    if (ferror(file.get())) fail_file("cannot read", path, errno);
    return count;
}

size_t read_stream(const File& file, const std::string& path, void* to, size_t bytes) {
    throw_if_stopped();
    size_t filled = 0;
    while (filled < bytes) {
        const int64_t count =
            read_when_ready(fileno(file.get()), static_cast<char*>(to) + filled, bytes - filled);
        if (count < 0) fail_file("cannot read", path, errno);
        if (count == 0) break;
        filled += size_t(count);
        heartbeats++;
    }
    return filled;
}

void read_exactly(const File& file, const std::string& path, void* to, size_t bytes) {
    if (bytes > 0 && read_some(file, path, to, bytes) != bytes)
        fail("cannot read %s to its end", path.c_str());
}

void seek(const File& file, const std::string& path, uint64_t position) {
    if (fseeko(file.get(), off_t(position), SEEK_SET) != 0) fail_file("cannot read", path, errno);
}

std::string first_bytes(const std::string& path, size_t most) {
    const File file = open_to_read(path);
    std::string bytes(most, '\0');
    bytes.resize(read_some(file, path, bytes.data(), most));
    return bytes;
}

std::string read_whole_file(const std::string& path, uint64_t limit) {
    File file = open_to_read(path);
    uint64_t size = size_of(file, path);
    if (size > limit)
        fail("%s has %llu bytes, but such a file can have at most %llu", path.c_str(),
             (unsigned long long)size, (unsigned long long)limit);
    std::string bytes(size, '\0');
    read_exactly(file, path, bytes.data(), size);
    std::string more(4096, '\0');  // some file systems remember a size from before the file grew
    while (const size_t count = read_some(file, path, more.data(), more.size())) {
        bytes.append(more, 0, count);
        if (bytes.size() > limit)
            fail("%s has more than %llu bytes", path.c_str(), (unsigned long long)limit);
    }
    return bytes;
}

bool file_exists(const std::string& path) { return status_at(path).has_value(); }

static bool is_kind(FileStatus::Kind kind, const std::optional<FileStatus>& status) {
    return status && status->kind == kind;
}

bool is_folder(const std::string& path) { return is_kind(FileStatus::folder, status_at(path)); }

bool is_regular(const std::string& path) { return is_kind(FileStatus::regular, status_at(path)); }

void refuse_unreachable(const std::string& path) {
    if (!get_status(path) && errno != ENOENT) fail_file("cannot open", path, errno);
}

bool is_link(const std::string& path) {
    return is_kind(FileStatus::symbolic_link, status_at(path, Links::keep));
}

bool optional_file_exists(const std::string& path) {
    if (file_exists(path)) return true;
    if (is_link(path)) fail_to_open(path, ENOENT);
    return false;
}

// --- writing ---

static constexpr size_t buffer_bytes = 1 << 20;

std::string temporary_of(const std::string& path) { return path + std::string(temporary_suffix); }

// Whether both have the number of one file; a device of Windows has none.
static bool have_one_number(const std::optional<FileStatus>& a, const std::optional<FileStatus>& b) {
    return a && b && a->kind == b->kind && a->has_identity() && b->has_identity() && a->is_same_file(*b);
}

// Whether `path` still names the open file. Numbers that do not last tell nothing: see is_same_file().
static bool is_named(int descriptor, const std::string& path) {
    const auto look = [&] {
        const std::optional<FileStatus> status = get_status(descriptor);
        if (!status) fail_file("cannot write", path, errno);
        return std::pair(status, status_at(path, Links::keep));
    };
    const auto [file, named] = look();
    if (!named || named->kind != file->kind) return false;
    if (have_one_number(file, named)) return true;
    const auto [file_again, named_again] = look();
    return !have_one_number(file, file_again) || !have_one_number(named, named_again);
}

// Without links; empty for what has no name in a folder, such as a pipe behind /dev/stdout.
static std::filesystem::path real_path(const std::string& path) {
    std::error_code error;
    const std::filesystem::path found = std::filesystem::canonical(path, error);
    if (error && !is_missing(error.value())) fail_file("cannot use", path, error.value());
    return found;
}

// Whether two paths that exist and look alike are one, by their names alone. In a folder that lists both
// names, they are two; where it lists one of them, the other is another spelling. Where it lists neither,
// names are one that differ only in case; error if the folder that tells cannot be listed.
static bool is_same_name(const std::string& a, const std::string& b) {
    const std::filesystem::path x = real_path(a), y = real_path(b);
    if (std::distance(x.begin(), x.end()) != std::distance(y.begin(), y.end())) return false;
    std::filesystem::path folder;
    for (auto i = x.begin(), j = y.begin(); i != x.end(); folder /= *i, ++i, ++j) {
        const std::string name = i->generic_string(), other = j->generic_string();
        if (name == other) continue;
        const bool differ_in_case = fold_case(name) == fold_case(other);
        std::vector<std::string> names;
        if (!list_folder(folder.generic_string(), names)) {
            if (differ_in_case && errno != ENOENT)
                fail_file("cannot read the folder", folder.string(), errno);
            names.clear();
        }
        const auto lists = [&](const std::string& n) { return std::ranges::find(names, n) != names.end(); };
        if (lists(name) ? lists(other) : !lists(other) && !differ_in_case) return false;
    }
    return !x.empty();
}

static bool are_alike(const FileStatus& a, const FileStatus& b) {
    return a.size == b.size && a.written == b.written;
}

// Whether two looks with one number are at one file. Some file systems (FUSE, network) give several files one
// number: those differ and stay as they are.
template <class LookA, class LookB>
static bool are_at_one_file(const LookA& look_a, const LookB& look_b) {
    const std::optional<FileStatus> a = look_a(), b = look_b();
    return have_one_number(a, b) && (are_alike(*a, *b) || look_a() != a || look_b() != b);
}

// Some file systems (FUSE, FAT) number a file anew at each look, or once for each spelling of its name: their
// numbers tell nothing of files that otherwise look alike.
bool is_same_file(const std::string& a, const std::string& b) {
    const std::optional<FileStatus> x = status_at(a), y = status_at(b);
    if (!x || !y || x->kind != y->kind) return false;
    if (are_at_one_file([&] { return status_at(a); }, [&] { return status_at(b); })) return true;
    const auto folded = [](const std::string& path) {
        return fold_case(std::filesystem::path(path).filename().generic_string());
    };
    const bool look_alike = are_alike(*x, *y);
    return (look_alike || folded(a) == folded(b)) && is_same_name(a, b);
}

std::string whole_name(const std::string& path) { return generic_text(absolute_path(path)); }

bool has_separator(const std::string& path) { return path.find_first_of(separators) != std::string::npos; }

bool is_plain_name(const std::string& name) {
    return !name.empty() && name != "." && name != ".." && !has_separator(name) &&
           std::filesystem::path(name).root_name().empty();
}

std::string path_as_listed(const std::string& path) {
    const std::string name = std::filesystem::path(path).filename().generic_string();
    const std::string before = path.substr(0, path.size() - name.size());
    const std::string folder = before.empty() ? "." : before;
    std::vector<std::string> names;
    if (!list_folder(folder, names) && errno != EACCES && !is_missing(errno))
        fail_file("cannot read the folder", folder, errno);
    if (std::count(names.begin(), names.end(), name)) return path;
    for (const std::string& listed : names)
        if (fold_case(listed) == fold_case(name) && is_same_file(before + listed, path))
            return before + listed;
    return path;
}

// Standard output or standard error, if the path leads to where it leads; else -1.
static int standard_stream(const std::string& path) {
    for (int stream : {STDOUT_FILENO, STDERR_FILENO})
        if (are_at_one_file([&] { return get_status(stream); }, [&] { return get_status(path); }))
            return stream;
    return -1;
}

bool is_written_in_place(const std::string& path) {
    const std::optional<FileStatus> status = status_at(path);
    if (!status || status->kind == FileStatus::folder) return false;
    return status->kind != FileStatus::regular || standard_stream(path) >= 0;
}

// Opens such a path. Standard output is shared, so that what is printed before and after stays in order.
static int open_in_place(const std::string& path) {
    const int stream = standard_stream(path);
    fflush(stdout);
    const int descriptor = stream >= 0 ? duplicate(stream) : open_path(path, Access::write);
    if (descriptor < 0) fail_file("cannot write", path, errno);
    return descriptor;
}

// The file to which a link leads; the path itself if it is none. Error if it leads nowhere.
static std::string target_of(const std::string& path) {
    if (!is_link(path)) return path;
    std::error_code leads_nowhere;
    const std::string target = std::filesystem::canonical(path, leads_nowhere).generic_string();
    if (!leads_nowhere) return target;
    if (!is_missing(leads_nowhere.value())) fail_file("cannot write", path, leads_nowhere.value());
    fail_file("cannot write", path, "it is a link that leads nowhere");
}

// Error if a file at this path would replace something that is no file.
static void check_replaceable(const std::string& path) {
    const std::optional<FileStatus> status = status_at(path, Links::keep);
    if (is_kind(FileStatus::folder, status)) fail_file("cannot write", path, EISDIR);
    if (is_kind(FileStatus::other, status))
        fail_file("cannot write", path, "it is a device or a pipe, not a file");
}

struct Descriptor {
    int number;
    ~Descriptor() {
        if (number >= 0) close(number);
    }
};

// Some shared folders of virtual machines neither remove nor rename a file that is open.
static bool remove_and_close(const std::string& path, int descriptor) {
    const bool removed = unlink_path(path);
    const int error = errno;
    if (descriptor >= 0) close(descriptor);
    errno = error;
    return removed || (descriptor >= 0 && error != ENOENT && unlink_path(path));
}

// Removes what is at a temporary name, unless it is a file that another program is writing: its lock says so.
static void remove_stale(const std::string& path) {
    Descriptor file = {open_path(path, Access::read_itself)};
    if (file.number >= 0 && !lock_file(file.number))
        fail_file("cannot write", path, "another program is writing it: wait for it, or choose another name");
    const bool stale = file.number < 0 || is_named(file.number, path);
    if (stale && !remove_and_close(path, std::exchange(file.number, -1)) && errno != ENOENT)
        fail_file("cannot remove", path, errno);
}

// Creates and locks a file that did not exist.
static int create_new(const std::string& path) {
    for (int attempt = 0; attempt < 100; attempt++) {
        Descriptor file = {open_path(path, Access::create)};
        if (file.number < 0 && errno != EEXIST) fail_file("cannot write", path, errno);
        try {
            if (file.number >= 0 && lock_file(file.number) && is_named(file.number, path))
                return std::exchange(file.number, -1);
        } catch (const Error&) {
            remove_and_close(path, std::exchange(file.number, -1));  // it is this program's, since it is new
            throw;
        }
        remove_stale(path);
    }
    fail_file("cannot write", path, "something of that name cannot be removed");
}

static constexpr size_t most_of_a_write = 1 << 30;  // of Windows, which counts in 32 bits

size_t write_bytes(int descriptor, std::string_view bytes) {
    size_t done = 0;
    while (done < bytes.size()) {
        const size_t part = std::min(bytes.size() - done, most_of_a_write);
        const auto count = ::write(descriptor, bytes.data() + done, part);
        if (count < 0 && errno == EINTR) continue;
        if (count == 0) errno = ENOSPC;
        if (count <= 0) break;
        done += size_t(count);
        heartbeats++;
    }
    return done;
}

StopWritingAtSignals::StopWritingAtSignals() {
    catch_stop_signals();
    stops_at_signals = true;
}
StopWritingAtSignals::~StopWritingAtSignals() {
    stops_at_signals = false;
    release_stop_signals();
}

bool work_is_stopped() { return stops_at_signals && stop_signal(); }

void throw_if_stopped() {
    if (work_is_stopped()) throw StoppedBySignal(stop_signal());
}

FileWriter::FileWriter(const std::string& to, Target target) : path(to) {
    in_place = target == Target::named && is_written_in_place(path);
    if (in_place) {
        descriptor = open_in_place(path);
        return;
    }
    if (target == Target::named) path = target_of(path);
    if (target != Target::lock) check_replaceable(path);
    temporary = target == Target::lock ? path + std::string(lock_suffix) : temporary_of(path);
    descriptor = create_new(temporary);
}

FileWriter::~FileWriter() {
    if (descriptor < 0) return;
    try {
        if (!in_place && is_named(descriptor, temporary)) {
            remove_and_close(temporary, std::exchange(descriptor, -1));
            // some network file systems write a removed file at close()
            if (get_status(temporary, Links::keep)) remove_stale(temporary);
        }
    } catch (const Error&) {
        // the error that led here is the one to report
    }
    if (descriptor >= 0) close(descriptor);
}

void FileWriter::write_out(std::string_view bytes) {
    while (in_place && !bytes.empty()) {
        const int64_t count = write_when_ready(descriptor, bytes.data(), bytes.size());
        if (count < 0) fail_file("cannot write", path, errno);
        bytes.remove_prefix(size_t(count));
    }
    if (write_bytes(descriptor, bytes) != bytes.size()) fail_file("cannot write", path, errno);
}

void FileWriter::write(const void* bytes, size_t count) {
    throw_if_stopped();
    const std::string_view piece(static_cast<const char*>(bytes), count);
    if (buffer.size() + count >= buffer_bytes) {
        write_out(buffer);
        buffer.clear();
    }
    if (count >= buffer_bytes)
        write_out(piece);
    else
        buffer += piece;
}

void FileWriter::replace_start(std::string_view bytes) {
    write_out(buffer);
    buffer.clear();
    if (lseek(descriptor, 0, SEEK_SET) != 0) fail_file("cannot write", path, errno);
    write_out(bytes);
}

// The folder that holds `path`. That of C:\\name is C:\\, and not C:, the current folder of that disk.
static std::string parent_of(const std::string& path) {
    const size_t last = path.find_last_not_of(separators);
    const size_t separator = last == std::string::npos ? last : path.find_last_of(separators, last);
    if (separator == std::string::npos) return last == std::string::npos ? "/" : ".";
    const bool is_root = separator > 0 && path[separator - 1] == ':';
    return path.substr(0, std::max<size_t>(separator + is_root, 1));
}

void FileWriter::finish() {
    throw_if_stopped();
    write_out(buffer);
    buffer.clear();
    if (!flush_to_disk(descriptor)) fail_file("cannot flush to disk", path, errno);
    // before the file gets its name: quotas and NFS report some errors of writing at close() alone
    const int copy = duplicate(descriptor);
    if (copy < 0 || !close_written(copy)) fail_file("cannot write", path, errno);
    if (!in_place && !is_named(descriptor, temporary))
        fail_file("cannot write", path, "another program removed its temporary file");
    const bool is_renamed = in_place || rename_path(temporary, path);
    const bool is_busy = !is_renamed && (errno == ETXTBSY || errno == EBUSY);  // see remove_and_close()
    if (!is_renamed && !is_busy) fail_file("cannot write", path, errno);
    const bool is_closed = close_written(std::exchange(descriptor, -1));
    if (!is_closed || (is_busy && !rename_path(temporary, path))) {
        const int error = errno;
        if (is_busy) unlink_path(temporary);
        fail_file("cannot write", path, error);
    }
    if (!in_place) sync_folder(parent_of(path));
}

void write_whole_file(const std::string& path, std::initializer_list<std::string_view> parts, Target target) {
    FileWriter writer(path, target);
    for (std::string_view part : parts) writer.write(part);
    writer.finish();
}

size_t append_to_file(const std::string& path, std::string_view bytes) {
    const int descriptor = open_path(path, Access::append);
    if (descriptor < 0) return 0;
    const std::optional<FileStatus> before = get_status(descriptor);
    size_t done = write_bytes(descriptor, bytes);
    int error = done == bytes.size() ? 0 : errno;
    if (!close_written(descriptor)) {
        error = errno;
        const std::optional<FileStatus> after = get_status(path, Links::keep);
        const bool is_known = before && after && before->kind == FileStatus::regular;
        const uint64_t added = is_known && after->size > before->size ? after->size - before->size : 0;
        done = is_known ? std::min<uint64_t>(done, added) : 0;
    }
    errno = error;
    return done;
}

bool flush_file(const std::string& path) {
    const std::optional<FileStatus> status = get_status(path, Links::keep);
    if (!status || status->kind != FileStatus::regular) return true;
    const int descriptor = open_path(path, Access::write);
    const bool flushed = descriptor >= 0 && flush_to_disk(descriptor);
    const int error = errno;
    const bool closed = descriptor >= 0 && close_written(descriptor);
    if (!flushed) errno = error;
    return flushed && closed;
}

void remove_file(const std::string& path) {
    if (unlink_path(path)) return;
    const int error = errno;  // a read-only file system gives one for a file that is not there, too
    if (error != ENOENT && (get_status(path, Links::keep) || !is_missing(errno)))
        fail_file("cannot remove", path, error);
}

void rename_file(const std::string& from, const std::string& to) {
    if (!rename_path(from, to)) fail_file("cannot rename", from + " to " + to, errno);
}

void copy_file(const std::string& from, const std::string& to) {
    const File file = open_to_read(from);
    FileWriter writer(to);
    std::string bytes(buffer_bytes, '\0');
    while (const size_t count = read_some(file, from, bytes.data(), bytes.size()))
        writer.write(bytes.data(), count);
    writer.finish();
}

void move_path(const std::string& from, const std::string& to) {
    if (rename_path(from, to)) return;
    const int error = errno;
    if (error != EXDEV && error != ENOTEMPTY && error != EEXIST)
        fail_file("cannot rename", from + " to " + to, error);
    if (is_folder(from) && !is_link(from)) {
        create_folders(to);
        for (const std::string& name : names_in(from)) move_path(from + "/" + name, to + "/" + name);
        sync_folder(to);
        if (!remove_folder(from)) fail_file("cannot remove", from, errno);
    } else {
        copy_file(from, to);
        remove_file(from);
    }
}

// --- folders ---

void create_folders(const std::string& path) {
    if (is_kind(FileStatus::folder, get_status(path))) return;
    const std::string above = parent_of(path);
    if (above != path) create_folders(above);
    const bool created = make_folder(path);
    const int error = errno;  // before is_folder() sets another
    if (!created && !is_kind(FileStatus::folder, get_status(path))) {
        if (is_link(path) && !get_status(path))
            fail("cannot create directory %s: it is a link that leads nowhere", path.c_str());
        fail_file("cannot create directory", path, error == EEXIST ? ENOTDIR : error);
    }
    sync_folder(above);
}

void sync_folder(const std::string& path) {
    const int descriptor = open_path(path, Access::folder);
    if (descriptor < 0 && errno == EACCES) return;  // a folder that may be written but not listed
    // some file systems say of every folder that it cannot be flushed
    const bool synced = descriptor >= 0 && (flush_to_disk(descriptor) || errno == EBADF);
    const int error = errno;
    if (descriptor >= 0) close(descriptor);
    if (!synced) fail_file("cannot flush to disk the folder", path, error);
}

std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    if (!list_folder(folder, names) && errno != ENOENT) fail_file("cannot read the folder", folder, errno);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());  // some file systems repeat names
    return names;
}
