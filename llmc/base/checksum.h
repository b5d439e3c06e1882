// The checksum of the project's own files: XXH3, 64 bits.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

// Checksum of bytes that arrive in pieces.
struct Checksum {
    void* state;
    uint64_t bytes = 0;  // number of bytes added

    Checksum();
    ~Checksum();
    Checksum(const Checksum&) = delete;
    Checksum& operator=(const Checksum&) = delete;

    void add(const void* data, size_t count);
    std::string text() const;  // 16 hexadecimal digits
};

std::string checksum_of(std::string_view bytes);
