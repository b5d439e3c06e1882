// Reads and writes files, with errors that name the file. Files are written under a temporary name, flushed
// to disk and renamed, so a reader never sees half a file, even if the writer crashes. All binary formats of
// the project are little-endian and are read into memory without conversion.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

static_assert(std::endian::native == std::endian::little, "the file formats are read as little-endian");

struct FileCloser {
    void operator()(FILE* file) const { fclose(file); }
};
using File = std::unique_ptr<FILE, FileCloser>;

// Opens a file for reading. Error if it is missing, unreadable or a directory.
File open_to_read(const std::string& path);

// Size in bytes of an open regular file. Error for pipes and devices, whose size is unknown.
uint64_t size_of(const File& file, const std::string& path);

// Reads the whole file. Error if it cannot be read or is larger than `limit` bytes.
std::string read_whole_file(const std::string& path, uint64_t limit = uint64_t(1) << 32);

// Writes a file piece by piece to PATH.tmp, which finish() flushes to disk and renames to PATH. Without
// finish(), PATH is unchanged and PATH.tmp is removed. Each function throws Error if writing fails.
struct FileWriter {
    std::string path;
    FILE* file;

    explicit FileWriter(const std::string& path);
    ~FileWriter();
    FileWriter(const FileWriter&) = delete;
    FileWriter& operator=(const FileWriter&) = delete;

    void write(const void* bytes, size_t count);
    void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
    void finish();
};

// Writes the concatenated parts as the file's whole content, with a FileWriter.
void write_whole_file(const std::string& path, std::initializer_list<std::string_view> parts);
