// What the files of a checkpoint have in common: headers, and checksums of what is written.
#pragma once
#include <algorithm>
#include <functional>
#include <string>

#include "llmc/base/checksum.h"
#include "llmc/base/file.h"
#include "llmc/model/ownership.h"

// Error if the file is too short or does not begin with `magic`.
void read_header(const File& file, const std::string& path, int32_t* header, int32_t magic, const char* what);

// Called with the number of bytes that were just read.
using BytesRead = std::function<void(uint64_t bytes)>;

// The checksum of a file's content, as Checksum::text() of it.
std::string checksum_of_file(const std::string& path, const BytesRead& progress = nullptr);

// Length and checksum of a file as written, for the checkpoint's run_%08d.json.
struct FileSeal {
    uint64_t bytes = 0;
    std::string checksum;
};

struct SealedWriter {
    FileWriter file;
    Checksum sum;
    explicit SealedWriter(const std::string& path) : file(path) {}
    void write(const void* data, size_t count) {
        file.write(data, count);
        sum.add(data, count);
    }
    FileSeal finish() {
        file.finish();
        return {sum.bytes, sum.text()};
    }
};

// Reads a file behind its header, and compares all of it with the seal, if there is one.
struct ContentCheck {
    const File& file;
    std::string path;
    const FileSeal* seal;  // null: nothing is compared
    Checksum sum;

    ContentCheck(const File& file, const std::string& path, const FileSeal* seal);
    void read(void* to, size_t bytes);
    void finish();  // reads what is left; Error if the content is another one
};

// Calls visit(tensor, offset, count) for all elements of which the owner has this moment, in the order of its
// table, in chunks of at most tensor_chunk elements.
template <typename Visit>
void for_each_chunk(const ModelConfig& config, const OptimizerShare& share, Moment moment, Visit visit) {
    for (const Shard& s : ownership_of(config, share.kind, share.count).owned_by(share.index))
        for (size_t done = 0; has_moment(share.kind, moment, s.tensor) && done < s.count;
             done += tensor_chunk)
            visit(s.tensor, s.first + done, std::min(tensor_chunk, s.count - done));
}
