#include "llmc/files/sealed_file.h"

#include "llmc/base/error.h"

void read_header(const File& file, const std::string& path, int32_t* header, int32_t magic,
                 const char* what) {
    if (size_of(file, path) < header_bytes) fail("%s is too short for %s", path.c_str(), what);
    read_exactly(file, path, header, header_bytes);
    if (header[0] != magic)
        fail("%s is not %s: it starts with %d instead of %d", path.c_str(), what, header[0], magic);
}

std::string checksum_of_file(const std::string& path, const BytesRead& progress) {
    const File file = open_to_read(path);
    Checksum sum;
    std::vector<char> piece(1 << 20);
    while (const size_t count = read_some(file, path, piece.data(), piece.size())) {
        sum.add(piece.data(), count);
        if (progress) progress(count);
    }
    return sum.text();
}

ContentCheck::ContentCheck(const File& opened, const std::string& name, const FileSeal* expected)
    : file(opened), path(name), seal(expected) {
    char header[header_bytes];
    seek(file, path, 0);
    read(header, header_bytes);
}

void ContentCheck::read(void* to, size_t bytes) {
    read_exactly(file, path, to, bytes);
    if (seal) sum.add(to, bytes);
}

void ContentCheck::finish() {
    if (!seal) return;
    std::vector<char> piece(1 << 20);
    while (const size_t count = read_some(file, path, piece.data(), piece.size()))
        sum.add(piece.data(), count);
    if (sum.bytes != seal->bytes || sum.text() != seal->checksum)
        fail("%s is damaged: its checksum does not match its content", path.c_str());
}
