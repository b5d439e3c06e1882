// Shared by the fuzz programs. Each defines LLVMFuzzerTestOneInput(), which passes the bytes to a reader as a
// file. Most inputs are invalid, so an Error is expected. Crashes, sanitizer reports, other exceptions and
// large allocations are findings.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "llmc/base/error.h"

// A file in memory.
struct InputFile {
    int descriptor = memfd_create("input", MFD_CLOEXEC);
    std::string path = "/proc/self/fd/" + std::to_string(descriptor);

    explicit InputFile(std::string_view bytes) {
        if (descriptor < 0 || write(descriptor, bytes.data(), bytes.size()) != ssize_t(bytes.size())) abort();
    }
    ~InputFile() { close(descriptor); }
    InputFile(const InputFile&) = delete;
};

inline std::string_view text_of(const uint8_t* data, size_t size) {
    return {reinterpret_cast<const char*>(data), size};
}

// Runs the reader and ignores Errors.
template <class Reader>
void expect_no_crash(Reader reader) {
    try {
        reader();
    } catch (const Error&) {
    }
}

// Aborts unless the condition holds.
inline void require(bool holds) {
    if (!holds) abort();
}
