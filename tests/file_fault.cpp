// A library for LD_PRELOAD that makes calls of the operating system fail, for tests. It sees the calls that
// concern one folder and its files, or one file: open, read, write, lseek, close, fsync, rename, unlink,
// mkdir, ftruncate, mmap, stat, fstat and getdents.
//
// fread() is a read, and fseeko() an lseek: the C library's own calls are not seen.
//
//     FILE_FAULT_FOLDER   the folder, or the file
//     FILE_FAULT          CALL:N:ERROR. CALL is one of the names above, or "any". Its N-th call (from 1)
//                         fails with ERROR: ENOSPC, EIO, EINTR, EMFILE, ESTALE, EDQUOT, ESPIPE, EPERM,
//                         ENOENT; EXDEV: if it renames a folder, EBADF: if it flushes one; "short" writes
//                         half, or reads 7 bytes; "lost" makes close() fail and the file empty; "kill" kills
//                         the program before the call; "gone" removes the file before it, as another program
//                         does. "N+" instead of N: this call and all later ones.
//     FILE_FAULT_CASE=1   a file system without case: names of ASCII that differ in it are one, also where an
//                         é is in another normal form. "lower" and "upper": it lists the names of files so,
//                         however they were spelled
//     FILE_FAULT_TWICE=1  folders list each name twice, as happens while names are added
//     FILE_FAULT_UNLISTED=1 folders list none of their files
//     FILE_FAULT_INODES=1 each look at a file gives it another number; "spelling": each spelling of its name;
//                         "one": all files have the same number
//     FILE_FAULT_SIZES=1  a file is said to have half of its bytes
//     FILE_FAULT_BUSY=1   no file that this program has open is renamed or removed
//     FILE_FAULT_LATE=1   a file that was removed while it was open is there again once it is closed
//     FILE_FAULT_LINKS=0  no file gets a second name
//     FILE_FAULT_FIXED=immutable  FILE_FAULT_FOLDER is a file that cannot be renamed or removed, nor
//                         get a second name; "mount": another file is mounted on it
//     FILE_FAULT_LOCKS=0  every lock is granted, as on a network file system that has none
//     FILE_FAULT_FREE     the number of bytes that the file system of the folder says are free
//     FILE_FAULT_LOG      a file to which each call is appended, as "CALL NAME"
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace {

struct Fault {
    std::string call;
    long n = 0;
    bool and_later = false;
    std::string error;
};

Fault read_fault() {
    Fault fault;
    const char* text = getenv("FILE_FAULT");
    char call[32] = {}, error[32] = {}, plus[2] = {};
    if (!text) return fault;
    if (sscanf(text, "%31[a-z]:%ld%1[+]:%31s", call, &fault.n, plus, error) != 4 &&
        sscanf(text, "%31[a-z]:%ld:%31s", call, &fault.n, error) != 3)
        abort();
    fault.call = call;
    fault.and_later = plus[0] == '+';
    fault.error = error;
    return fault;
}

template <class Function>
Function original(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

std::string path_of(int descriptor) {
    char path[PATH_MAX] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
    const ssize_t length = readlink(link.c_str(), path, sizeof(path) - 1);
    return length > 0 ? std::string(path, size_t(length)) : "";
}

std::string full_path(int folder, const char* path) {
    if (*path == '/') return path;
    if (folder != AT_FDCWD) return path_of(folder) + "/" + path;
    char here[PATH_MAX] = {};
    return std::string(getcwd(here, sizeof(here)) ? here : "") + "/" + path;
}

void log_call(const char* call, const std::string& name) {
    static const char* file = getenv("FILE_FAULT_LOG");
    if (!file) return;
    static const auto open = original<int (*)(const char*, int, ...)>("open");
    static const auto write = original<ssize_t (*)(int, const void*, size_t)>("write");
    const int descriptor = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    const std::string line = std::string(call) + " " + name + "\n";
    if (write(descriptor, line.data(), line.size()) < 0) abort();
    close(descriptor);
}

// The name with each é in one normal form, as an e with an accent.
std::string normal_form(std::string name) {
    for (size_t at; (at = name.find("\u00e9")) != name.npos;) name.replace(at, 2, "e\u0301");
    return name;
}

// The path with its last part as its folder lists it, on a file system without case.
std::string folded(const std::string& path) {
    static const char* folder = getenv("FILE_FAULT_CASE") ? getenv("FILE_FAULT_FOLDER") : nullptr;
    static const auto open_list = original<DIR* (*)(const char*)>("opendir");
    static const auto next = original<dirent* (*)(DIR*)>("readdir");
    const size_t slash = path.rfind('/');
    if (!folder || !path.starts_with(folder) || slash == path.npos || slash < strlen(folder)) return path;
    const std::string name = path.substr(slash + 1);
    DIR* const list = open_list(path.substr(0, slash).c_str());
    const std::string kept = getenv("FILE_FAULT_CASE") ? getenv("FILE_FAULT_CASE") : "";
    std::string found = name;
    for (char& c : found) c = kept == "lower" ? tolower(c) : kept == "upper" ? toupper(c) : c;
    for (const dirent* entry = list ? next(list) : nullptr; entry; entry = next(list)) {
        if (name == entry->d_name) found = name;
        if (name == entry->d_name) break;
        if (strcasecmp(normal_form(entry->d_name).c_str(), normal_form(name).c_str()) == 0)
            found = entry->d_name;
    }
    if (list) closedir(list);
    return path.substr(0, slash + 1) + found;
}

// Leaves errno as it is when it goes.
struct SameErrno {
    const int before = errno;
    ~SameErrno() { errno = before; }
};

enum Outcome { passes, fails, is_short };

// Counts a call and decides its outcome; sets errno if it fails.
Outcome outcome_of(const char* call, const std::string& path) {
    static const std::string folder = getenv("FILE_FAULT_FOLDER") ? getenv("FILE_FAULT_FOLDER") : "/nowhere";
    static const Fault fault = read_fault();
    static std::mutex mutex;
    static long calls = 0;
    if (!path.starts_with(folder)) return passes;
    const std::lock_guard lock(mutex);
    log_call(call, path.size() > folder.size() ? path.substr(folder.size() + 1) : ".");
    if (fault.call != call && fault.call != "any") return passes;
    calls++;
    if (calls != fault.n && !(fault.and_later && calls > fault.n)) return passes;
    if (fault.error == "kill") raise(SIGKILL);
    if (fault.error == "short") return is_short;
    if (fault.error == "gone") {
        original<int (*)(const char*)>("unlink")(path.c_str());
        return passes;
    }
    static const std::map<std::string, int> numbers = {
        {"ENOSPC", ENOSPC}, {"EINTR", EINTR}, {"EMFILE", EMFILE}, {"ESTALE", ESTALE}, {"EDQUOT", EDQUOT},
        {"ESPIPE", ESPIPE}, {"EXDEV", EXDEV}, {"EBADF", EBADF},   {"EPERM", EPERM},   {"ENOENT", ENOENT}};
    const bool never_interrupted =
        std::set<std::string>{"lseek", "stat", "fstat"}.count(call) && fault.error == "EINTR";
    if (never_interrupted) return passes;
    const auto number = numbers.find(fault.error);
    errno = number == numbers.end() ? EIO : number->second;
    return fails;
}

// The outcome of a call whose success leaves errno as it was.
Outcome quiet_outcome_of(const char* call, const std::string& path) {
    const int before = errno;
    const Outcome outcome = outcome_of(call, path);
    if (outcome != fails) errno = before;
    return outcome;
}

// After a call that looked at a file.
int looked_at(int result, const std::string& path, struct stat* status) {
    static const char* folder = getenv("FILE_FAULT_FOLDER");
    static const std::string numbers = getenv("FILE_FAULT_INODES") ? getenv("FILE_FAULT_INODES") : "";
    static std::atomic<ino_t> looks = 0;
    if (result != 0 || !folder || !path.starts_with(folder)) return result;
    if (numbers == "one")
        status->st_ino = 1;
    else if (!numbers.empty())
        status->st_ino += (numbers == "spelling" ? std::hash<std::string>()(path) : ++looks) << 32;
    if (getenv("FILE_FAULT_SIZES") && S_ISREG(status->st_mode)) status->st_size /= 2;
    return result;
}

bool is_folder(const std::string& path) {
    struct stat status;
    return lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// Whether this program has the file open and may therefore neither rename nor remove it; sets errno.
bool is_busy(const std::string& path) {
    if (!getenv("FILE_FAULT_BUSY") || is_folder(path)) return false;
    for (int descriptor = 0; descriptor < 256; descriptor++)
        if (path_of(descriptor) == path) {
            errno = ETXTBSY;
            return true;
        }
    return false;
}

// Whether the file stays in its place; sets errno.
bool is_fixed(const std::string& path, int error_of_mount) {
    static const char *fixed = getenv("FILE_FAULT_FIXED"), *file = getenv("FILE_FAULT_FOLDER");
    if (!fixed || path != file) return false;
    errno = strcmp(fixed, "mount") == 0 ? error_of_mount : EPERM;
    return true;
}

}  // namespace

extern "C" {

static int faulty_open(int folder, const char* path, int flags, mode_t mode) {
    static const auto real = original<int (*)(int, const char*, int, ...)>("openat");
    const std::string full = folded(full_path(folder, path));
    if (outcome_of("open", full) == fails) return -1;
    const bool is_ours = getenv("FILE_FAULT_CASE");
    return real(folder, is_ours ? full.c_str() : path, flags, mode);
}

#define MODE_OF(flags)                             \
    mode_t mode = 0;                               \
    if ((flags) & (O_CREAT | O_TMPFILE)) {         \
        va_list list;                              \
        va_start(list, flags);                     \
        mode = mode_t(va_arg(list, unsigned int)); \
        va_end(list);                              \
    }

int open(const char* path, int flags, ...) {
    MODE_OF(flags)
    return faulty_open(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
    MODE_OF(flags)
    return faulty_open(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
    MODE_OF(flags)
    return faulty_open(folder, path, flags, mode);
}
int openat64(int folder, const char* path, int flags, ...) {
    MODE_OF(flags)
    return faulty_open(folder, path, flags, mode);
}

ssize_t write(int descriptor, const void* bytes, size_t count) {
    static const auto real = original<ssize_t (*)(int, const void*, size_t)>("write");
    const Outcome outcome = outcome_of("write", path_of(descriptor));
    if (outcome == fails) return -1;
    return real(descriptor, bytes, outcome == is_short && count > 1 ? count / 2 : count);
}

ssize_t read(int descriptor, void* bytes, size_t count) {
    static const auto real = original<ssize_t (*)(int, void*, size_t)>("read");
    const Outcome outcome = quiet_outcome_of("read", path_of(descriptor));
    return outcome == fails ? -1 : real(descriptor, bytes, outcome == is_short && count > 7 ? 7 : count);
}

// glibc's bit of an error of the stream
static bool fails_in_stream(const char* call, FILE* file) {
    if (quiet_outcome_of(call, path_of(fileno(file))) != fails) return false;
    file->_flags |= 0x20;
    return true;
}
size_t fread(void* to, size_t size, size_t count, FILE* file) {
    static const auto real = original<size_t (*)(void*, size_t, size_t, FILE*)>("fread");
    return fails_in_stream("read", file) ? 0 : real(to, size, count, file);
}
int fseeko(FILE* file, off_t offset, int from) {
    static const auto real = original<int (*)(FILE*, off_t, int)>("fseeko");
    return fails_in_stream("lseek", file) ? -1 : real(file, offset, from);
}
int fseeko64(FILE* file, off64_t offset, int from) { return fseeko(file, offset, from); }

off_t lseek(int descriptor, off_t offset, int from) {
    static const auto real = original<off_t (*)(int, off_t, int)>("lseek");
    return quiet_outcome_of("lseek", path_of(descriptor)) == fails ? -1 : real(descriptor, offset, from);
}

// The descriptor is closed in any case. Of a file that "lost" strikes, nothing has been written.
int close(int descriptor) {
    static const auto real = original<int (*)(int)>("close");
    static const auto truncate = original<int (*)(int, off_t)>("ftruncate");
    static const char* fault = getenv("FILE_FAULT");
    const bool writes = (fcntl(descriptor, F_GETFL) & O_ACCMODE) != O_RDONLY;
    const std::string path = path_of(descriptor);
    const bool reports = writes && quiet_outcome_of("close", path) == fails;
    const int error = errno;
    if (reports && strstr(fault, "lost") && truncate(descriptor, 0) != 0) abort();
    if (real(descriptor) != 0) return -1;
    const std::string deleted = " (deleted)";
    if (getenv("FILE_FAULT_LATE") && writes && path.ends_with(deleted) &&
        path.starts_with(getenv("FILE_FAULT_FOLDER"))) {
        static const auto open = original<int (*)(const char*, int, ...)>("open");
        real(
            open(path.substr(0, path.size() - deleted.size()).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    }
    errno = error;
    return reports ? -1 : 0;
}

// One name a call, so that each of a folder can fail.
ssize_t getdents64(int descriptor, void* to, size_t bytes) {
    static const auto real = original<ssize_t (*)(int, void*, size_t)>("getdents64");
    static const auto seek = original<off_t (*)(int, off_t, int)>("lseek");
    const std::string path = path_of(descriptor);
    if (quiet_outcome_of("getdents", path) == fails) return -1;
    if (getenv("FILE_FAULT_UNLISTED") && path == getenv("FILE_FAULT_FOLDER")) return 0;
    const ssize_t count = real(descriptor, to, bytes);
    if (count <= 0) return count;
    const auto* first = static_cast<dirent64*>(to);
    if (seek(descriptor, first->d_off, SEEK_SET) < 0) abort();
    if (!getenv("FILE_FAULT_TWICE")) return first->d_reclen;
    memcpy(static_cast<char*>(to) + first->d_reclen, to, first->d_reclen);
    return 2 * first->d_reclen;
}

int fstat(int descriptor, struct stat* status) {
    static const auto real = original<int (*)(int, struct stat*)>("fstat");
    const std::string path = path_of(descriptor);
    if (quiet_outcome_of("fstat", path) == fails) return -1;
    return looked_at(real(descriptor, status), path, status);
}
int fstatat(int folder, const char* path, struct stat* status, int flags) {
    static const auto real = original<int (*)(int, const char*, struct stat*, int)>("fstatat");
    const std::string asked = full_path(folder, path), full = folded(asked);
    if (quiet_outcome_of("stat", full) == fails) return -1;
    const bool is_ours = getenv("FILE_FAULT_CASE");
    return looked_at(real(folder, is_ours ? full.c_str() : path, status, flags), asked, status);
}
int stat(const char* path, struct stat* status) { return fstatat(AT_FDCWD, path, status, 0); }
int lstat(const char* path, struct stat* status) {
    return fstatat(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}

// As on a file system without case: the spelling that was asked for.
char* realpath(const char* path, char* resolved) {
    static const auto real = original<char* (*)(const char*, char*)>("realpath");
    const std::string full = full_path(AT_FDCWD, path), listed = folded(full);
    if (!getenv("FILE_FAULT_CASE") || listed == full) return real(path, resolved);
    char* const found = real(listed.c_str(), nullptr);
    const std::string name = full.substr(full.rfind('/')), other = listed.substr(listed.rfind('/'));
    if (!found || !std::string_view(found).ends_with(other)) return found;
    const std::string spelled = std::string(found, strlen(found) - other.size()) + name;
    free(found);
    return strdup(spelled.c_str());
}

int flock(int descriptor, int operation) {
    static const auto real = original<int (*)(int, int)>("flock");
    return getenv("FILE_FAULT_LOCKS") ? 0 : real(descriptor, operation);
}

int fsync(int descriptor) {
    static const auto real = original<int (*)(int)>("fsync");
    static const char* fault = getenv("FILE_FAULT");
    if (fault && strstr(fault, "EBADF") && !is_folder(path_of(descriptor))) return real(descriptor);
    return outcome_of("fsync", path_of(descriptor)) == fails ? -1 : real(descriptor);
}
int fdatasync(int descriptor) {
    static const auto real = original<int (*)(int)>("fdatasync");
    return outcome_of("fsync", path_of(descriptor)) == fails ? -1 : real(descriptor);
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) {
    static const auto real = original<int (*)(int, const char*, int, const char*)>("renameat");
    const std::string source = folded(full_path(from_folder, from)),
                      target = folded(full_path(to_folder, to));
    static const char* fault = getenv("FILE_FAULT");
    const bool only_folders = fault && strstr(fault, "EXDEV");
    const bool may_fail = !only_folders || is_folder(source);
    if (may_fail && outcome_of("rename", target) == fails) return -1;
    if (is_busy(source) || is_busy(target) || is_fixed(source, EBUSY) || is_fixed(target, EBUSY)) return -1;
    if (getenv("FILE_FAULT_CASE")) return real(AT_FDCWD, source.c_str(), AT_FDCWD, target.c_str());
    return real(from_folder, from, to_folder, to);
}
int rename(const char* from, const char* to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int unlinkat(int folder, const char* path, int flags) {
    static const auto real = original<int (*)(int, const char*, int)>("unlinkat");
    const std::string full = folded(full_path(folder, path));
    const bool is_rmdir = (flags & AT_REMOVEDIR) != 0;  // which looks first whether it is a folder
    if (outcome_of("unlink", full) == fails || is_busy(full) || is_fixed(full, is_rmdir ? ENOTDIR : EBUSY))
        return -1;
    return real(folder, getenv("FILE_FAULT_CASE") ? full.c_str() : path, flags);
}
int unlink(const char* path) { return unlinkat(AT_FDCWD, path, 0); }

#ifdef STATX_ATTR_MOUNT_ROOT
int statx(int folder, const char* path, int flags, unsigned mask, struct statx* status) {
    static const auto real = original<int (*)(int, const char*, int, unsigned, struct statx*)>("statx");
    const bool is_mount = is_fixed(full_path(folder, path), EBUSY) && errno == EBUSY;
    const int error = real(folder, path, flags, mask, status);
    if (is_mount) status->stx_attributes |= STATX_ATTR_MOUNT_ROOT;
    return error;
}
#endif

int link(const char* from, const char* to) {
    static const auto real = original<int (*)(const char*, const char*)>("link");
    if (is_fixed(full_path(AT_FDCWD, from), EXDEV)) return -1;
    errno = EPERM;
    return getenv("FILE_FAULT_LINKS") ? -1 : real(from, to);
}
ssize_t sendfile(int to, int from, off_t* offset, size_t count) {
    static const auto real = original<ssize_t (*)(int, int, off_t*, size_t)>("sendfile");
    return outcome_of("write", path_of(to)) == fails ? -1 : real(to, from, offset, count);
}

int mkdirat(int folder, const char* path, mode_t mode) {
    static const auto real = original<int (*)(int, const char*, mode_t)>("mkdirat");
    return outcome_of("mkdir", full_path(folder, path)) == fails ? -1 : real(folder, path, mode);
}
int mkdir(const char* path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int ftruncate(int descriptor, off_t size) {
    static const auto real = original<int (*)(int, off_t)>("ftruncate");
    return outcome_of("ftruncate", path_of(descriptor)) == fails ? -1 : real(descriptor, size);
}
int ftruncate64(int descriptor, off64_t size) { return ftruncate(descriptor, size); }

int fstatvfs(int descriptor, struct statvfs* status) {
    static const auto real = original<int (*)(int, struct statvfs*)>("fstatvfs");
    static const char* free_text = getenv("FILE_FAULT_FREE");
    const int result = real(descriptor, status);
    if (free_text && outcome_of("statvfs", path_of(descriptor)) == passes)
        status->f_bavail = strtoull(free_text, nullptr, 10) / status->f_frsize;
    return result;
}

void* mmap(void* at, size_t size, int protection, int flags, int descriptor, off_t offset) {
    static const auto real = original<void* (*)(void*, size_t, int, int, int, off_t)>("mmap");
    const bool of_a_file = !(flags & MAP_ANONYMOUS);
    if (of_a_file && outcome_of("mmap", path_of(descriptor)) == fails) return MAP_FAILED;
    return real(at, size, protection, flags, descriptor, offset);
}
void* mmap64(void* at, size_t size, int protection, int flags, int descriptor, off64_t offset) {
    return mmap(at, size, protection, flags, descriptor, offset);
}

}  // extern "C"
