// Reads a text file as a stream: plain, or compressed by gzip or zstd, which its first bytes tell; "-" is
// standard input. A byte order mark at the start is not part of the text; one of UTF-16 has the text
// converted to UTF-8. Files that are not text, such as archives and pictures, are refused by their
// signatures.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
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
    std::string convert_some();

    enum class Encoding { utf8, utf16_little, utf16_big };

    File file;
    bool file_ended = false;
    uint64_t bytes_left = UINT64_MAX;  // of the file, as long as it was when it was opened
    Encoding encoding = Encoding::utf8;
    std::string units;  // of UTF-16, not yet converted
    std::string start;  // the first bytes of the file, then the text that read() gives first
    std::unique_ptr<Decompressor> decompressor;  // null: plain text
};

// All of a text file. Error if it has more than `limit` bytes.
std::string read_text_file(const std::string& path, size_t limit = 32 << 20);

// Whether it is standard input ("-"), a pipe or a device. Error if the system cannot say.
bool is_read_once(const std::string& path);

// Throws NotText if one of the first 8,000 bytes of a file is 0, as git tells binary files.
void refuse_zeros(const std::string& path, std::string_view start);

// Where at least 4096 bytes in a row are 0, as in a file that a crash or a full disk cut short; npos:
// nowhere.
size_t find_zeros(std::string_view text);

// Tells whether files are the same one, by whatever names.
struct SeenFiles {
    // Returns the name under which it was added before; empty: none.
    std::string add(const std::string& path);
    void add_once(const std::string& path);  // Error if it was added before

   private:
    std::map<std::string, std::string> by_name;
    std::map<std::pair<uint64_t, uint64_t>, std::string> by_number;
};

// Whether the file's name, without its folder, matches one of the patterns, if there are any.
bool is_included(const std::string& path, const std::vector<std::string>& patterns);

// The files that prepare_data reads: a folder stands for all files below it, sorted. `include`: shell
// patterns for the names of files in folders; empty: all. Left out of folders are hidden files and folders,
// links to folders, links to other files of the folder, runs, empty and special files, and files that are not
// text; left_out() gets each of them with the reason. Error if a folder cannot be read or has no text file,
// or if there is no folder for `include`.
std::vector<std::string> files_below(const std::vector<std::string>& paths,
                                     const std::vector<std::string>& include,
                                     const std::function<void(const std::string& why)>& left_out);

// The paths in a file, one per line; "-" is standard input. Error if there is none.
std::vector<std::string> read_file_list(const std::string& path);
