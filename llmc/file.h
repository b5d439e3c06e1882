// Whole files in and out, with errors that name the file. Files are written under a temporary name, flushed
// to disk and renamed, so that a reader never sees half a file, whatever happens to the writer. All binary
// formats of the project are little-endian and are read into memory as they lie.
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

// fopen for reading ("rb"); throws Error when the file is missing, unreadable or a directory.
File open_to_read(const std::string& path);

// Size in bytes of an open regular file; throws Error for pipes and devices, whose size is not known.
uint64_t size_of(const File& file, const std::string& path);

// The file's bytes; throws Error when it cannot be read or is larger than limit bytes.
std::string read_whole_file(const std::string& path, uint64_t limit = uint64_t(1) << 32);

// Writes a file in pieces: to "PATH.tmp", which finish() flushes to disk and renames to PATH. All of them
// throw Error when the disk refuses; without finish() PATH stays as it was and nothing is left behind.
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

// Writes the parts one after the other as the file's whole content, by a FileWriter.
void write_whole_file(const std::string& path, std::initializer_list<std::string_view> parts);
