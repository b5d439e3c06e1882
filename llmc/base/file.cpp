// Reading and writing files: see file.h.
#include "llmc/base/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "llmc/base/error.h"

static struct stat status_of(const File& file, const std::string& path) {
    struct stat status;
    if (fstat(fileno(file.get()), &status) != 0) fail("cannot read %s: %s", path.c_str(), strerror(errno));
    return status;
}

File open_to_read(const std::string& path) {
    File file(fopen(path.c_str(), "rb"));
    if (!file) fail("cannot open %s: %s", path.c_str(), strerror(errno));
    if (S_ISDIR(status_of(file, path).st_mode)) fail("cannot read %s: it is a directory", path.c_str());
    return file;
}

uint64_t size_of(const File& file, const std::string& path) {
    struct stat status = status_of(file, path);
    if (!S_ISREG(status.st_mode)) fail("cannot read %s: it is not a regular file", path.c_str());
    return uint64_t(status.st_size);
}

std::string read_whole_file(const std::string& path, uint64_t limit) {
    File file = open_to_read(path);
    uint64_t size = size_of(file, path);
    if (size > limit)
        fail("%s has %llu bytes, but such a file can have at most %llu", path.c_str(),
             (unsigned long long)size, (unsigned long long)limit);
    std::string bytes(size, '\0');
    if (fread(bytes.data(), 1, size, file.get()) != size) fail("cannot read %s to its end", path.c_str());
    return bytes;
}

static std::string temporary(const std::string& path) { return path + ".tmp"; }

FileWriter::FileWriter(const std::string& to) : path(to), file(fopen(temporary(to).c_str(), "wb")) {
    if (!file) fail("cannot write %s: %s", temporary(path).c_str(), strerror(errno));
}

FileWriter::~FileWriter() {
    if (!file) return;
    fclose(file);
    remove(temporary(path).c_str());
}

void FileWriter::write(const void* bytes, size_t count) {
    if (count > 0 && fwrite(bytes, 1, count, file) != count)
        fail("cannot write %s: %s", path.c_str(), strerror(errno));
}

void FileWriter::finish() {
    bool written =
        fflush(file) == 0 && fsync(fileno(file)) == 0 && rename(temporary(path).c_str(), path.c_str()) == 0;
    if (!written) fail("cannot write %s: %s", path.c_str(), strerror(errno));
    fclose(file);
    file = nullptr;
}

void write_whole_file(const std::string& path, std::initializer_list<std::string_view> parts) {
    FileWriter writer(path);
    for (std::string_view part : parts) writer.write(part);
    writer.finish();
}
