// A library for LD_PRELOAD that makes calls of the operating system fail, for tests. It sees the calls that
// concern one folder and its files: open, write, fsync, rename, unlink, mkdir, ftruncate, mmap.
//
//     FILE_FAULT_FOLDER   the folder
//     FILE_FAULT          CALL:N:ERROR. CALL is one of the names above, or "any". Its N-th call (from 1)
//     fails
//                         with ERROR: ENOSPC, EIO, EINTR; "short" writes half; "kill" kills the program
//                         before the call. "N+" instead of N: this call and all later ones.
//     FILE_FAULT_FREE     the number of bytes that the file system of the folder says are free
//     FILE_FAULT_LOG      a file to which each call is appended, as "CALL NAME"
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

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
    errno = fault.error == "ENOSPC" ? ENOSPC : fault.error == "EINTR" ? EINTR : EIO;
    return fails;
}

}  // namespace

extern "C" {

static int faulty_open(int folder, const char* path, int flags, mode_t mode) {
    static const auto real = original<int (*)(int, const char*, int, ...)>("openat");
    if (outcome_of("open", full_path(folder, path)) == fails) return -1;
    return real(folder, path, flags, mode);
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

int fsync(int descriptor) {
    static const auto real = original<int (*)(int)>("fsync");
    return outcome_of("fsync", path_of(descriptor)) == fails ? -1 : real(descriptor);
}
int fdatasync(int descriptor) {
    static const auto real = original<int (*)(int)>("fdatasync");
    return outcome_of("fsync", path_of(descriptor)) == fails ? -1 : real(descriptor);
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) {
    static const auto real = original<int (*)(int, const char*, int, const char*)>("renameat");
    if (outcome_of("rename", full_path(to_folder, to)) == fails) return -1;
    return real(from_folder, from, to_folder, to);
}
int rename(const char* from, const char* to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int unlinkat(int folder, const char* path, int flags) {
    static const auto real = original<int (*)(int, const char*, int)>("unlinkat");
    return outcome_of("unlink", full_path(folder, path)) == fails ? -1 : real(folder, path, flags);
}
int unlink(const char* path) { return unlinkat(AT_FDCWD, path, 0); }

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
