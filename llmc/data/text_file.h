// Reads a text file as a stream: plain, or compressed by gzip or zstd, which its first bytes tell; "-" is
// standard input. A byte order mark of UTF-8 at the start is not part of the text. Files that are not text,
// such as UTF-16, archives and pictures, are refused by their signatures.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/file.h"

struct Decompressor;

// A file is not text: a picture, an archive, another encoding.
struct NotText : Error {
    using Error::Error;
};

struct TextFile {
    std::string path;         // "standard input" for "-"
    uint64_t bytes_read = 0;  // from the file, compressed or not
    uint64_t position = 0;    // of the text that read() gives next, in the decompressed file

    // Error if the file cannot be opened, or is not text.
    explicit TextFile(const std::string& path);
    ~TextFile();

    // Fills `to` with up to `size` bytes of the text; fewer only at its end. Error if the file cannot be read
    // or its compressed data is damaged.
    size_t read(char* to, size_t size);

   private:
    size_t read_raw(char* to, size_t size);
    size_t read_text(char* to, size_t size);

    File file;
    std::string start;                           // the first bytes of the file, then of the text
    std::unique_ptr<Decompressor> decompressor;  // null: plain text
};

// What a file that is not text is, by its first bytes, as in "UTF-16 (iconv -f UTF-16 -t UTF-8 converts it)".
// Null: it may be text.
const char* not_text(std::string_view start);

// All of a text file. Error if it has more than `limit` bytes.
std::string read_text_file(const std::string& path, size_t limit = 32 << 20);

// The files that prepare_data reads: a folder stands for all files below it, sorted, without hidden ones
// and those of runs.
// `include`: shell patterns for the names of files in folders; empty: all. Files in folders that are not text
// are left out, and left_out() gets the reason. Error if a path is missing or a folder has no text file.
std::vector<std::string> files_below(const std::vector<std::string>& paths,
                                     const std::vector<std::string>& include,
                                     const std::function<void(const std::string& why)>& left_out);

// The paths in a file, one per line; "-" is standard input. Error if there is none.
std::vector<std::string> read_file_list(const std::string& path);
