#include "llmc/base/output.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "llmc/base/error.h"
#include "llmc/base/system_files.h"

bool begins_with(const std::string& path, int magic) {
    const std::string_view bytes(reinterpret_cast<const char*>(&magic), sizeof magic);
    return first_bytes(path, bytes.size()) == bytes;
}

bool begins_around(const std::string& path, std::string_view text) {
    return first_bytes(path, 4096).find(text) != std::string::npos;
}

static bool may_be_replaced(const std::string& path,
                            const std::function<bool(const std::string& path)>& is_ours) {
    try {
        return size_of(open_to_read(path), path) == 0 || is_ours(path);
    } catch (const FileError&) {
        throw;
    } catch (const Error&) {  // not of our format
        return false;
    }
}

// A file at this path would be replaced, or removed if it is the temporary one.
static void check_existing(const std::string& path, const std::vector<std::string>& inputs,
                           const std::function<bool(const std::string& path)>& is_ours) {
    for (const std::string& input : inputs)
        if (is_same_file(path, input == "-" ? "/dev/stdin" : input))
            fail("%s is an input, too, and would be lost: choose another output", path.c_str());
    if (!is_written_in_place(path) && !may_be_replaced(path, is_ours))
        fail("%s is there, and this program has not written it: move it, or choose another output",
             path.c_str());
}

void check_output(const std::string& path, const std::vector<std::string>& inputs,
                  const std::function<bool(const std::string& path)>& is_ours, Target target) {
    if (is_folder(path)) fail("cannot write %s: it is a directory", path.c_str());
    if (target == Target::file && is_written_in_place(path))
        fail("cannot write %s: it is a device or a pipe, not a file", path.c_str());
    for (const std::string& file : {path, temporary_of(path)})
        if (is_regular(file)) check_existing(file, inputs, is_ours);
}

void check_writable(const std::string& path) {
    if (!is_written_in_place(path)) FileWriter(path, Target::named);
}

void check_can_move(const std::string& path) {
    if (!is_regular(path)) return;
    // it is no folder, which Linux says after it has asked whether the path may be removed
    if (!remove_folder(path) && (errno == EPERM || errno == EACCES || errno == EROFS))
        fail("cannot replace %s: %s", path.c_str(), strerror(errno));
    if (is_mount(path)) fail("cannot replace %s: %s", path.c_str(), strerror(EBUSY));
}

FileWriter lock_outputs(const std::string& path) {
    const std::string file = path + std::string(lock_suffix);
    if (file_exists(file)) check_existing(file, {}, [](const std::string&) { return false; });
    return FileWriter(path, Target::lock);
}
