#include "llmc/distributed/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <random>

#include "llmc/base/ceil_div.h"
#include "llmc/base/error.h"
#include "llmc/base/os.h"

// No Vulkan device needs more (limit of minImportedHostPointerAlignment).
static constexpr size_t ALIGNMENT = 65536;

static size_t rounded_up(size_t size) { return ceil_div(size ? size : 1, ALIGNMENT) * ALIGNMENT; }

// Memory on Linux; elsewhere temporary files, which the system keeps in memory while it can.
static std::string folder() {
    std::error_code none;
    if (std::filesystem::is_directory("/dev/shm", none)) return "/dev/shm";
    return std::filesystem::temp_directory_path();
}

static std::string mib(double bytes) { return format_string("%.1f MiB", bytes / (1 << 20)); }

SharedMemory::~SharedMemory() {
    if (address) munmap(address, bytes);
    unlink();
    close_file();
}

void SharedMemory::create() {
#ifdef O_TMPFILE
    file = ::open(folder().c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    path = format_string("/proc/%d/fd/%d", int(getpid()), file);
    if (file >= 0) return;
#endif
    std::random_device random;
    path = format_string("%s/vulkan_gpt2-%08x%08x", folder().c_str(), random(), random());
    file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        fail("cannot create %s, to share memory between processes: %s", path.c_str(), strerror(errno));
    named = true;
}

void SharedMemory::open(const std::string& path_of_creator) {
    file = ::open(path_of_creator.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0)
        fail(
            "cannot open %s, the shared memory of another process of this machine: %s; containers must share "
            "/dev/shm and process ids (docker: --ipc and --pid)",
            path_of_creator.c_str(), strerror(errno));
}

void SharedMemory::unlink() {
    if (named) ::unlink(path.c_str());
    named = false;
}

[[noreturn]] static void fail_to_reserve(int error, size_t size, double available,
                                         const std::string& purpose) {
    const std::string host = host_name();
    if (error != ENOSPC)
        fail("cannot get %s of memory in %s on %s for %s: %s", mib(double(size)).c_str(), folder().c_str(),
             host.c_str(), purpose.c_str(), strerror(error));
    fail(
        "%s on %s has %s left, but %s needs %s: enlarge it (mount -o remount,size=..., docker: --shm-size) "
        "or remove files there",
        folder().c_str(), host.c_str(), mib(available).c_str(), purpose.c_str(), mib(double(size)).c_str());
}

static double available_bytes(int file, double if_unknown) {
    struct statvfs space;
    return fstatvfs(file, &space) == 0 ? double(space.f_bavail) * double(space.f_frsize) : if_unknown;
}

void SharedMemory::resize(size_t size, const std::string& purpose) {
    size = rounded_up(size);
    const double available = available_bytes(file, double(size));
    if (double(size) > available) fail_to_reserve(ENOSPC, size, available, purpose);
    if (ftruncate(file, off_t(size)) != 0) fail_to_reserve(errno, size, available, purpose);
}

// Of /dev/shm, pages lie in the memory of the node on which the process runs that asks for them first.
void SharedMemory::reserve(int process, int num_processes, const std::string& purpose) {
#ifndef __APPLE__
    if (file < 0) return;
    const size_t page = 4096, pages = bytes / page;
    const size_t first = pages * size_t(process) / size_t(num_processes),
                 end = pages * size_t(process + 1) / size_t(num_processes);
    int error = 0;
    do error = end > first ? posix_fallocate(file, off_t(first * page), off_t((end - first) * page)) : 0;
    while (error == EINTR);
    if (error) fail_to_reserve(error, bytes, available_bytes(file, 0), purpose);
#else
    (void)process, (void)num_processes, (void)purpose;
#endif
}

// Maps the file, or private memory without one, to an aligned address.
bool SharedMemory::map_aligned(size_t size) {
    size = rounded_up(size);
    void* room =
        mmap(nullptr, size + ALIGNMENT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return false;
    char* const start = static_cast<char*>(room);
    char* const aligned = start + (ALIGNMENT - uintptr_t(start) % ALIGNMENT) % ALIGNMENT;
    const int flags = MAP_FIXED | (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
    void* mapped = mmap(aligned, size, PROT_READ | PROT_WRITE, flags, file, 0);
    const int error = errno;
    if (aligned > start) munmap(start, size_t(aligned - start));
    munmap(aligned + size, size_t(start + ALIGNMENT - aligned));
    if (mapped == MAP_FAILED) {
        munmap(aligned, size);
        errno = error;
        return false;
    }
    address = aligned;
    bytes = size;
    return true;
}

void SharedMemory::map(size_t size, const std::string& purpose) {
    if (map_aligned(size)) return;
    const std::string reason = strerror(errno), amount = mib(double(size));
    if (file >= 0) fail("cannot map %s of shared memory: %s", amount.c_str(), reason.c_str());
    fail("cannot get %s of memory for %s: %s", amount.c_str(), purpose.c_str(), reason.c_str());
}

void SharedMemory::close_file() {
    if (file >= 0) close(file);
    file = -1;
}
