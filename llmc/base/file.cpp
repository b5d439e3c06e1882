// Reading and writing files: see file.h.
#include "llmc/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "llmc/base/error.h"

// Throws FileError: "WHAT PATH: REASON".
[[noreturn]] static void fail_file(const char* what, const std::string& path, const std::string& reason) {
    throw FileError(printable(format_string("%s %s: %s", what, path.c_str(), reason.c_str())));
}
[[noreturn]] static void fail_file(const char* what, const std::string& path, int error) {
    fail_file(what, path, strerror(error));
}

// --- held folders ---

struct Held {
    int descriptor = -1;
    std::string path;  // without slashes at its end
};
static Held held;

// What the calls of the openat() family take instead of a path.
struct Place {
    int folder = AT_FDCWD;
    std::string name;
};

static Place place_of(const std::string& path) {
    if (held.descriptor < 0 || !path.starts_with(held.path)) return {AT_FDCWD, path};
    const std::string_view rest = std::string_view(path).substr(held.path.size());
    const size_t name = rest.find_first_not_of('/');
    if (name == std::string_view::npos) return {held.descriptor, "."};
    if (name == 0 && held.path != "/") return {AT_FDCWD, path};  // a longer name
    return {held.descriptor, std::string(rest.substr(name))};
}

static int open_place(const std::string& path, int flags, mode_t mode = 0) {
    const Place at = place_of(path);
    return retry([&] { return openat(at.folder, at.name.c_str(), flags | O_CLOEXEC, mode); });
}

static int unlink_place(const std::string& path) {
    const Place at = place_of(path);
    return retry([&] { return unlinkat(at.folder, at.name.c_str(), 0); });
}

static int rename_place(const std::string& from, const std::string& to) {
    const Place a = place_of(from), b = place_of(to);
    return retry([&] { return renameat(a.folder, a.name.c_str(), b.folder, b.name.c_str()); });
}

static int status_of_place(const std::string& path, struct stat& status, int flags = 0) {
    const Place at = place_of(path);
    return fstatat(at.folder, at.name.c_str(), &status, flags);
}

void HeldFolder::open(const std::string& path) {
    descriptor = open_place(path, O_RDONLY | O_DIRECTORY);
    if (descriptor < 0) fail("cannot open the folder %s: %s", path.c_str(), strerror(errno));
    const size_t last = path.find_last_not_of('/');
    held = {descriptor, last == std::string::npos ? "/" : path.substr(0, last + 1)};
}

HeldFolder::~HeldFolder() {
    if (descriptor < 0) return;
    if (held.descriptor == descriptor) held = {};
    close(descriptor);
}

// --- reading ---

static struct stat status_of(const File& file, const std::string& path) {
    struct stat status;
    if (fstat(fileno(file.get()), &status) != 0) fail("cannot read %s: %s", path.c_str(), strerror(errno));
    return status;
}

static File open_with(const std::string& path, int flags) {
    const int descriptor = open_place(path, flags);
    if (descriptor < 0) fail("cannot open %s: %s", path.c_str(), strerror(errno));
    File file(fdopen(descriptor, "rb"));
    if (!file) {
        const int error = errno;
        close(descriptor);
        fail("cannot open %s: %s", path.c_str(), strerror(error));
    }
    if (S_ISDIR(status_of(file, path).st_mode)) fail("cannot read %s: it is a directory", path.c_str());
    return file;
}

// A clone without git-lfs has these small files in the place of large ones.
static void refuse_lfs_pointer(const File& file, const std::string& path) {
    const struct stat status = status_of(file, path);
    const std::string_view begins = "version https://git-lfs.github.com/spec/";
    char start[64];
    if (!S_ISREG(status.st_mode) || status.st_size > 1024) return;
    const ssize_t count = pread(fileno(file.get()), start, begins.size(), 0);
    if (count == ssize_t(begins.size()) && std::string_view(start, begins.size()) == begins)
        fail("%s is a pointer of git-lfs, not the file itself: fetch it with git lfs pull", path.c_str());
}

File open_stream(const std::string& path) {
    File file = open_with(path, O_RDONLY);
    refuse_lfs_pointer(file, path);
    return file;
}

File open_to_read(const std::string& path) {
    File file = open_with(path, O_RDONLY | O_NONBLOCK);  // opening a FIFO would block until it has a writer
    if (!S_ISREG(status_of(file, path).st_mode))
        fail("cannot read %s: it is not a regular file", path.c_str());
    refuse_lfs_pointer(file, path);
    return file;
}

uint64_t size_of(const File& file, const std::string& path) {
    return uint64_t(status_of(file, path).st_size);
}

FileVersion version_of(const File& file, const std::string& path) {
    const struct stat status = status_of(file, path);
    return {.file_number = uint64_t(status.st_ino),
            .size = uint64_t(status.st_size),
            .written = int64_t(status.st_mtim.tv_sec) * 1000000000 + status.st_mtim.tv_nsec};
}

std::string read_whole_file(const std::string& path, uint64_t limit) {
    File file = open_to_read(path);
    uint64_t size = size_of(file, path);
    if (size > limit)
        fail("%s has %llu bytes, but such a file can have at most %llu", path.c_str(),
             (unsigned long long)size, (unsigned long long)limit);
    std::string bytes(size, '\0');
    if (fread(bytes.data(), 1, size, file.get()) != size) fail("cannot read %s to its end", path.c_str());
    return bytes;
}

bool file_exists(const std::string& path) {
    struct stat status;
    return status_of_place(path, status) == 0;
}

bool is_link(const std::string& path) {
    struct stat status;
    return status_of_place(path, status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode);
}

std::vector<std::string> matching_paths(const std::string& pattern) {
    if (file_exists(pattern)) return {pattern};
    std::vector<std::string> paths;
    glob_t found;
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
        paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    return paths;
}

std::string escaped_pattern(const std::string& path) {
    std::string pattern;
    for (const char c : path) {
        if (strchr("*?[\\", c)) pattern += '\\';
        pattern += c;
    }
    return pattern;
}

// --- writing ---

static constexpr size_t buffer_bytes = 1 << 20;

static std::string temporary(const std::string& path) { return path + ".tmp"; }

static bool same(const struct stat& a, const struct stat& b) {
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Whether `path` still names the open file.
static bool is_named(int descriptor, const std::string& path) {
    struct stat open = {}, named = {};
    return fstat(descriptor, &open) == 0 && status_of_place(path, named, AT_SYMLINK_NOFOLLOW) == 0 &&
           same(open, named);
}

bool is_same_file(const std::string& a, const std::string& b) {
    struct stat first = {}, second = {};
    return status_of_place(a, first) == 0 && status_of_place(b, second) == 0 && same(first, second);
}

// Standard output or standard error, if the path leads to where it leads; else -1.
static int standard_stream(const struct stat& named) {
    struct stat open = {};
    for (int stream : {STDOUT_FILENO, STDERR_FILENO})
        if (fstat(stream, &open) == 0 && same(open, named)) return stream;
    return -1;
}

bool is_written_in_place(const std::string& path) {
    struct stat status = {};
    if (status_of_place(path, status) != 0 || S_ISDIR(status.st_mode)) return false;
    return !S_ISREG(status.st_mode) || standard_stream(status) >= 0;
}

// Opens such a path. Standard output is shared, so that what is printed before and after stays in order.
static int open_in_place(const std::string& path) {
    struct stat status = {};
    const int stream = status_of_place(path, status) == 0 ? standard_stream(status) : -1;
    fflush(stdout);
    const int descriptor = stream >= 0 ? fcntl(stream, F_DUPFD_CLOEXEC, 0) : open_place(path, O_WRONLY);
    if (descriptor < 0) fail_file("cannot write", path, errno);
    return descriptor;
}

// The file to which a link leads; the path itself if it is none. Error if it leads nowhere.
static std::string target_of(const std::string& path) {
    char resolved[PATH_MAX];
    if (!is_link(path)) return path;
    if (!realpath(path.c_str(), resolved)) fail_file("cannot write", path, "it is a link that leads nowhere");
    return resolved;
}

// Error if a file at this path would replace something that is no file.
static void check_replaceable(const std::string& path) {
    struct stat status = {};
    if (status_of_place(path, status, AT_SYMLINK_NOFOLLOW) != 0) return;
    if (S_ISDIR(status.st_mode)) fail_file("cannot write", path, EISDIR);
    if (!S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode))
        fail_file("cannot write", path, "it is a device or a pipe, not a file");
}

// Locks the file for this program. A file system without locks counts as success.
static bool locks(int descriptor) {
    return retry([&] { return flock(descriptor, LOCK_EX | LOCK_NB); }) == 0 || errno != EWOULDBLOCK;
}

// Removes what is at a temporary name, unless it is a file that another program is writing: its lock says so.
static void remove_stale(const std::string& path) {
    const int descriptor = open_place(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    const bool in_use = descriptor >= 0 && !locks(descriptor);
    const bool stale = descriptor < 0 || is_named(descriptor, path);
    const bool stays = !in_use && stale && unlink_place(path) != 0 && errno != ENOENT;
    const int error = errno;
    if (descriptor >= 0) close(descriptor);
    if (stays) fail_file("cannot remove", path, error);
    if (in_use)
        fail_file("cannot write", path, "another program is writing it: wait for it, or choose another name");
}

// Creates and locks a file that did not exist.
static int create_new(const std::string& path) {
    for (int attempt = 0; attempt < 100; attempt++) {
        const int descriptor = open_place(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
        if (descriptor >= 0 && locks(descriptor) && is_named(descriptor, path)) return descriptor;
        const int error = descriptor >= 0 ? EEXIST : errno;
        if (descriptor >= 0) close(descriptor);
        if (error != EEXIST) fail_file("cannot write", path, error);
        remove_stale(path);
    }
    fail_file("cannot write", path, "something of that name cannot be removed");
}

// Writes to a descriptor. Returns the number of bytes written; if some are missing, errno says why.
static size_t write_bytes(int descriptor, std::string_view bytes) {
    size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t count =
            retry([&] { return ::write(descriptor, bytes.data() + done, bytes.size() - done); });
        if (count == 0) errno = ENOSPC;
        if (count <= 0) break;
        done += size_t(count);
    }
    return done;
}

// Whether an error of fsync() means that the file system cannot do it.
static bool cannot_sync(int error) {
    return error == EINVAL || error == ENOTSUP || error == ENOSYS || error == EROFS;
}

FileWriter::FileWriter(const std::string& to, Target target) : path(to) {
    in_place = target == Target::named && is_written_in_place(path);
    if (in_place) {
        descriptor = open_in_place(path);
        return;
    }
    if (target == Target::named) path = target_of(path);
    check_replaceable(path);
    descriptor = create_new(temporary(path));
}

FileWriter::~FileWriter() {
    if (descriptor < 0) return;
    if (!in_place && is_named(descriptor, temporary(path))) unlink_place(temporary(path));
    close(descriptor);
}

void FileWriter::write_out(std::string_view bytes) {
    if (write_bytes(descriptor, bytes) != bytes.size()) fail_file("cannot write", path, errno);
}

void FileWriter::write(const void* bytes, size_t count) {
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

void FileWriter::finish() {
    write_out(buffer);
    buffer.clear();
    if (retry([&] { return fsync(descriptor); }) != 0 && !cannot_sync(errno))
        fail_file("cannot flush to disk", path, errno);
    if (!in_place && !is_named(descriptor, temporary(path)))
        fail_file("cannot write", path, "another program removed its temporary file");
    if (!in_place && rename_place(temporary(path), path) != 0) fail_file("cannot write", path, errno);
    close(descriptor);
    descriptor = -1;
}

void write_whole_file(const std::string& path, std::initializer_list<std::string_view> parts, Target target) {
    FileWriter writer(path, target);
    for (std::string_view part : parts) writer.write(part);
    writer.finish();
}

size_t append_to_file(const std::string& path, std::string_view bytes) {
    // not blocking: a pipe without a reader is an error, not a reason to wait
    const int descriptor = open_place(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOFOLLOW, 0666);
    if (descriptor < 0) return 0;
    const size_t done = write_bytes(descriptor, bytes);
    const int error = errno;
    close(descriptor);
    errno = error;
    return done;
}

void remove_file(const std::string& path) {
    if (unlink_place(path) != 0 && errno != ENOENT) fail_file("cannot remove", path, errno);
}

void rename_file(const std::string& from, const std::string& to) {
    if (rename_place(from, to) != 0) fail_file("cannot rename", from + " to " + to, errno);
}

// --- folders ---

// The folder that holds `path`.
static std::string parent_of(const std::string& path) {
    const size_t last = path.find_last_not_of('/');
    const size_t slash = last == std::string::npos ? last : path.rfind('/', last);
    if (slash == std::string::npos) return last == std::string::npos ? "/" : ".";
    return path.substr(0, std::max<size_t>(slash, 1));
}

static bool is_folder(const std::string& path) {
    struct stat status;
    return status_of_place(path, status) == 0 && S_ISDIR(status.st_mode);
}

void create_folders(const std::string& path) {
    if (is_folder(path)) return;
    const std::string above = parent_of(path);
    if (above != path) create_folders(above);
    const Place at = place_of(path);
    const bool created = retry([&] { return mkdirat(at.folder, at.name.c_str(), 0777); }) == 0;
    const int error = errno;  // before is_folder() sets another
    if (!created && !is_folder(path))
        fail_file("cannot create directory", path, error == EEXIST ? ENOTDIR : error);
    sync_folder(above);
}

void sync_folder(const std::string& path) {
    const int descriptor = open_place(path, O_RDONLY | O_DIRECTORY);
    if (descriptor < 0 && errno == EACCES) return;  // a folder that may be written but not listed
    const bool synced =
        descriptor >= 0 && (retry([&] { return fsync(descriptor); }) == 0 || cannot_sync(errno));
    const int error = errno;
    if (descriptor >= 0) close(descriptor);
    if (!synced) fail_file("cannot flush to disk the folder", path, error);
}

std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    const int descriptor = open_place(folder, O_RDONLY | O_DIRECTORY);
    if (descriptor < 0 && errno == ENOENT) return names;
    DIR* list = descriptor < 0 ? nullptr : fdopendir(descriptor);
    if (!list) {
        const int error = errno;
        if (descriptor >= 0) close(descriptor);
        fail("cannot read the folder %s: %s", folder.c_str(), strerror(error));
    }
    errno = 0;
    while (const dirent* entry = readdir(list)) {
        const std::string name = entry->d_name;
        if (name != "." && name != "..") names.push_back(name);
    }
    const int error = errno;
    closedir(list);
    if (error) fail("cannot read the folder %s: %s", folder.c_str(), strerror(error));
    std::sort(names.begin(), names.end());
    return names;
}

uint64_t free_bytes(const std::string& folder) {
    const int descriptor = open_place(folder, O_RDONLY | O_DIRECTORY);
    struct statvfs status = {};
    const bool known = descriptor >= 0 && retry([&] { return fstatvfs(descriptor, &status); }) == 0;
    if (descriptor >= 0) close(descriptor);
    if (!known || status.f_blocks == 0) return ~uint64_t(0);
    return uint64_t(status.f_bavail) * status.f_frsize;
}
