// Files of POSIX systems: see files.h.
#include "llmc/os/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <glob.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

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

static int flags_of(Access access) {
    switch (access) {
        case Access::read:
            return O_RDONLY;
        case Access::read_at_once:
            return O_RDONLY | O_NONBLOCK;
        case Access::read_itself:
            return O_RDONLY | O_NONBLOCK | O_NOFOLLOW;
        case Access::write:
            return O_WRONLY;
        case Access::create:
            return O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
        case Access::append:  // not blocking: a pipe without a reader is an error, not a reason to wait
            return O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOFOLLOW;
        case Access::folder:
            return O_RDONLY | O_DIRECTORY;
    }
    return O_RDONLY;
}

int open_path(const std::string& path, Access access) {
    const Place at = place_of(path);
    return retry([&] { return openat(at.folder, at.name.c_str(), flags_of(access) | O_CLOEXEC, 0666); });
}

int duplicate(int descriptor) { return fcntl(descriptor, F_DUPFD_CLOEXEC, 0); }

// What macOS names and does otherwise.
#ifdef __APPLE__
static timespec time_written(const struct stat& status) { return status.st_mtimespec; }
// fsync() leaves the bytes in the disk's cache there; not every file system has the other one.
static int flush(int descriptor) { return fcntl(descriptor, F_FULLFSYNC) == 0 ? 0 : fsync(descriptor); }
#else
static timespec time_written(const struct stat& status) { return status.st_mtim; }
static int flush(int descriptor) { return fsync(descriptor); }
#endif

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

bool get_status(const std::string& path, FileStatus& status, Links links) {
    const Place at = place_of(path);
    struct stat found;
    if (fstatat(at.folder, at.name.c_str(), &found, links == Links::keep ? AT_SYMLINK_NOFOLLOW : 0) != 0)
        return false;
    status = status_from(found);
    return true;
}

bool get_status(int descriptor, FileStatus& status) {
    struct stat found;
    if (fstat(descriptor, &found) != 0) return false;
    status = status_from(found);
    return true;
}

bool lock_file(int descriptor) {
    return retry([&] { return flock(descriptor, LOCK_EX | LOCK_NB); }) == 0 || errno != EWOULDBLOCK;
}

bool flush_to_disk(int descriptor) {
    return retry([&] { return flush(descriptor); }) == 0 || errno == EINVAL || errno == ENOTSUP ||
           errno == ENOSYS || errno == EROFS;
}

bool rename_path(const std::string& from, const std::string& to) {
    const Place a = place_of(from), b = place_of(to);
    return retry([&] { return renameat(a.folder, a.name.c_str(), b.folder, b.name.c_str()); }) == 0;
}

bool unlink_path(const std::string& path) {
    const Place at = place_of(path);
    return retry([&] { return unlinkat(at.folder, at.name.c_str(), 0); }) == 0;
}

// --- folders ---

bool make_folder(const std::string& path) {
    const Place at = place_of(path);
    return retry([&] { return mkdirat(at.folder, at.name.c_str(), 0777); }) == 0;
}

bool list_folder(const std::string& path, std::vector<std::string>& names) {
    const int descriptor = open_path(path, Access::folder);
    DIR* list = descriptor < 0 ? nullptr : fdopendir(descriptor);
    if (!list) {
        close_after_error(descriptor);
        return false;
    }
    errno = 0;
    while (const dirent* entry = readdir(list)) {
        const std::string name = entry->d_name;
        if (name != "." && name != "..") names.push_back(name);
    }
    const int error = errno;
    closedir(list);
    errno = error;
    return error == 0;
}

uint64_t free_bytes(const std::string& folder) {
    const int descriptor = open_path(folder, Access::folder);
    struct statvfs status = {};
    const bool known = descriptor >= 0 && retry([&] { return fstatvfs(descriptor, &status); }) == 0;
    if (descriptor >= 0) close(descriptor);
    if (!known || status.f_blocks == 0) return ~uint64_t(0);
    return uint64_t(status.f_bavail) * status.f_frsize;
}

std::vector<std::string> matching_pattern(const std::string& pattern) {
    std::vector<std::string> paths;
    glob_t found;
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
        paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    return paths;
}

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
