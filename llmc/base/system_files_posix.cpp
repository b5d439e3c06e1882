#include "llmc/base/system_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <string_view>

#include "llmc/base/signals.h"

// Repeats a system call as long as signals interrupt it.
template <class Call>
static auto retry(Call call) {
    auto result = call();
    while (result == -1 && errno == EINTR) result = call();
    return result;
}

// close() that keeps errno.
static void close_after_error(int descriptor) {
    const int error = errno;
    if (descriptor >= 0) close(descriptor);
    errno = error;
}

// --- held folders ---

struct Held {
    int descriptor = -1;
    std::string path;  // without slashes at its end
};
static Held held;

// What the calls of the openat() family take instead of a path.
struct HeldPath {
    int folder = AT_FDCWD;
    std::string name;
};

static HeldPath place_of(const std::string& path) {
    if (held.descriptor < 0 || !path.starts_with(held.path)) return {AT_FDCWD, path};
    const std::string_view rest = std::string_view(path).substr(held.path.size());
    const size_t name = rest.find_first_not_of('/');
    if (name == std::string_view::npos) return {held.descriptor, "."};
    if (name == 0 && held.path != "/") return {AT_FDCWD, path};  // a longer name
    return {held.descriptor, std::string(rest.substr(name))};
}

int hold_folder(const std::string& path) {
    const int descriptor = open_path(path, Access::folder);
    const size_t last = path.find_last_not_of('/');
    if (descriptor >= 0) held = {descriptor, last == std::string::npos ? "/" : path.substr(0, last + 1)};
    return descriptor;
}

void release_folder(int descriptor) {
    if (held.descriptor == descriptor) held = {};
    close(descriptor);
}

// --- files ---

// What macOS names and does otherwise.
#ifdef __APPLE__
static timespec time_written(const struct stat& status) { return status.st_mtimespec; }
// fsync() leaves the bytes in the disk's cache there; not every file system has the other one.
static int flush(int descriptor) { return fcntl(descriptor, F_FULLFSYNC) == 0 ? 0 : fsync(descriptor); }
static constexpr bool polls_for_writer = false;  // poll() of a FIFO that has had no writer reports its end
#else
static timespec time_written(const struct stat& status) { return status.st_mtim; }
static int flush(int descriptor) { return fsync(descriptor); }
static constexpr bool polls_for_writer = true;
#endif

static const std::map<Access, int> flags_of = {
    {Access::read, O_RDONLY},
    {Access::read_at_once, O_RDONLY | O_NONBLOCK},
    {Access::read_itself, O_RDONLY | O_NONBLOCK | O_NOFOLLOW},
    {Access::write, O_WRONLY},
    {Access::create, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW},
    // not blocking: a pipe without a reader is an error, not a reason to wait
    {Access::append, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOFOLLOW},
    {Access::folder, O_RDONLY | O_DIRECTORY}};

// Waits a short time only, since a signal can come just before poll().
static bool is_ready(int descriptor, short events) {
    pollfd waiting = {descriptor, events, 0};
    const int count = poll(&waiting, 1, 50);
    return count > 0 || (count < 0 && errno != EINTR);
}

static bool is_stopped() {
    if (stop_signal()) errno = EINTR;
    return stop_signal() != 0;
}

static bool wait_for(int descriptor, short events) {
    while (!is_ready(descriptor, events))
        if (is_stopped()) return false;
    return true;
}

int64_t read_when_ready(int descriptor, void* to, size_t bytes) {
    if (!wait_for(descriptor, POLLIN)) return -1;
    return retry([&] { return read(descriptor, to, bytes); });
}

int64_t write_when_ready(int descriptor, const void* from, size_t bytes) {
    const size_t part = std::min<size_t>(bytes, PIPE_BUF);  // a pipe that is ready has room for it
    if (!wait_for(descriptor, POLLOUT)) return -1;
    return retry([&] { return write(descriptor, from, part); });
}

static int open_fifo(const HeldPath& at, int flags) {
    const auto try_to_open = [&] {
        return retry([&] { return openat(at.folder, at.name.c_str(), flags | O_NONBLOCK | O_CLOEXEC); });
    };
    int descriptor = try_to_open();
    for (; descriptor < 0 && errno == ENXIO; descriptor = try_to_open()) {  // to write, but nobody reads
        is_ready(-1, 0);
        if (is_stopped()) return -1;
    }
    if (descriptor < 0) return -1;
    const bool blocks = fcntl(descriptor, F_SETFL, flags) == 0;
    if (blocks && (flags == O_WRONLY || wait_for(descriptor, POLLIN))) return descriptor;
    close_after_error(descriptor);
    return -1;
}

static bool is_fifo(const HeldPath& at) {
    struct stat found;
    return fstatat(at.folder, at.name.c_str(), &found, 0) == 0 && S_ISFIFO(found.st_mode);
}

int open_path(const std::string& path, Access access) {
    const HeldPath at = place_of(path);
    const int flags = flags_of.at(access);
    const bool may_wait = flags == O_WRONLY || (flags == O_RDONLY && polls_for_writer);
    if (may_wait && is_fifo(at)) return open_fifo(at, flags);
    return retry([&] { return openat(at.folder, at.name.c_str(), flags | O_CLOEXEC, 0666); });
}

// A signal that interrupts it loses nothing, and the call must not be repeated.
bool close_written(int descriptor) { return close(descriptor) == 0 || errno == EINTR; }

void redirect(FILE* stream, int descriptor) {
    fflush(stream);
    dup2(descriptor, fileno(stream));
}

int duplicate(int descriptor) { return fcntl(descriptor, F_DUPFD_CLOEXEC, 0); }

static FileStatus status_from(const struct stat& status) {
    const timespec written = time_written(status);
    return {.kind = S_ISREG(status.st_mode)   ? FileStatus::regular
                    : S_ISDIR(status.st_mode) ? FileStatus::folder
                    : S_ISLNK(status.st_mode) ? FileStatus::symbolic_link
                                              : FileStatus::other,
            .device = uint64_t(status.st_dev),
            .number = uint64_t(status.st_ino),
            .size = uint64_t(status.st_size),
            .written = int64_t(written.tv_sec) * 1000000000 + written.tv_nsec};
}

std::optional<FileStatus> get_status(const std::string& path, Links links) {
    const HeldPath at = place_of(path);
    struct stat found;
    if (fstatat(at.folder, at.name.c_str(), &found, links == Links::keep ? AT_SYMLINK_NOFOLLOW : 0) != 0)
        return std::nullopt;
    return status_from(found);
}

std::optional<FileStatus> get_status(int descriptor) {
    struct stat found;
    if (fstat(descriptor, &found) != 0) return std::nullopt;
    return status_from(found);
}

bool lock_file(int descriptor) {
    return retry([&] { return flock(descriptor, LOCK_EX | LOCK_NB); }) == 0 || errno != EWOULDBLOCK;
}

bool flush_to_disk(int descriptor) {
    return retry([&] { return flush(descriptor); }) == 0 || errno == EINVAL || errno == ENOTSUP ||
           errno == ENOSYS || errno == EROFS;
}

bool touch_file(const std::string& path) {
    const HeldPath at = place_of(path);
    return retry([&] { return utimensat(at.folder, at.name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW); }) == 0;
}

bool rename_path(const std::string& from, const std::string& to) {
    const HeldPath a = place_of(from), b = place_of(to);
    return retry([&] { return renameat(a.folder, a.name.c_str(), b.folder, b.name.c_str()); }) == 0;
}

bool unlink_path(const std::string& path) {
    const HeldPath at = place_of(path);
    return retry([&] { return unlinkat(at.folder, at.name.c_str(), 0); }) == 0;
}

// --- folders ---

bool make_folder(const std::string& path) {
    const HeldPath at = place_of(path);
    return retry([&] { return mkdirat(at.folder, at.name.c_str(), 0777); }) == 0;
}

bool remove_folder(const std::string& path) {
    const HeldPath at = place_of(path);
    return retry([&] { return unlinkat(at.folder, at.name.c_str(), AT_REMOVEDIR); }) == 0;
}

#ifdef STATX_ATTR_MOUNT_ROOT
bool is_mount(const std::string& path) {
    const HeldPath at = place_of(path);
    struct statx status;
    return statx(at.folder, at.name.c_str(), AT_SYMLINK_NOFOLLOW, 0, &status) == 0 &&
           (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}
#else
bool is_mount(const std::string&) { return false; }
#endif

// Appends the names that an open folder lists, and closes it.
#ifdef __GLIBC__
// Its readdir() takes ENOENT for the end: file systems answer it of a folder that was replaced meanwhile.
static bool list_and_close(int descriptor, std::vector<std::string>& names) {
    alignas(dirent64) char entries[1 << 15];
    ssize_t bytes;
    while ((bytes = retry([&] { return getdents64(descriptor, entries, sizeof entries); })) > 0)
        for (ssize_t at = 0; at < bytes;) {
            const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
            names.push_back(entry->d_name);
            at += entry->d_reclen;
        }
    if (bytes < 0 && errno == ENOENT) errno = ESTALE;  // ENOENT is a folder that is missing
    close_after_error(descriptor);
    return bytes == 0;
}
#else
static bool list_and_close(int descriptor, std::vector<std::string>& names) {
    DIR* list = fdopendir(descriptor);
    if (!list) {
        close_after_error(descriptor);
        return false;
    }
    const auto next = [&] {
        errno = 0;  // the end of the folder leaves it
        return readdir(list);
    };
    while (const dirent* entry = next()) names.push_back(entry->d_name);
    const int error = errno;
    closedir(list);
    errno = error;
    return error == 0;
}
#endif

bool list_folder(const std::string& path, std::vector<std::string>& names) {
    const int descriptor = open_path(path, Access::folder);
    if (descriptor < 0) return false;
    const bool listed = list_and_close(descriptor, names);
    std::erase_if(names, [](const std::string& name) { return name == "." || name == ".."; });
    return listed;
}

uint64_t free_bytes(const std::string& folder) {
    const int descriptor = open_path(folder, Access::folder);
    struct statvfs status = {};
    const bool known = descriptor >= 0 && retry([&] { return fstatvfs(descriptor, &status); }) == 0;
    if (descriptor >= 0) close(descriptor);
    if (!known || status.f_blocks == 0) return ~uint64_t(0);
    return uint64_t(status.f_bavail) * status.f_frsize;
}

// --- names ---

const char* const separators = "/";
bool is_separator(char c) { return c == '/'; }

bool matches_pattern(const std::string& pattern, const std::string& path) {
    return fnmatch(pattern.c_str(), path.c_str(), FNM_PATHNAME) == 0;
}

std::string escaped_pattern(const std::string& path) {
    std::string pattern;
    for (const char c : path) {
        if (strchr("*?[\\", c)) pattern += '\\';
        pattern += c;
    }
    return pattern;
}
