// What a program checks before it writes to an output that its command line names.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/file.h"

// Whether files have this name only until they are complete, or to lock others.
inline bool is_temporary_name(std::string_view name) { return name.find(".vulkan-gpt2.") != name.npos; }

// Whether the file begins with this number, as the files of llm.c do.
bool begins_with(const std::string& path, int magic);

// Whether the text is in the first 4 KiB of the file.
bool begins_around(const std::string& path, std::string_view text);

// Error if a FileWriter of `path`, which also replaces its temporary file, would destroy an input, under
// whatever name, or a file that this program has not written: is_ours(path) returns false or throws Error.
// Empty files may be written, and, if somebody named the path, what is_written_in_place(). "-" among the
// inputs is standard input.
void check_output(const std::string& path, const std::vector<std::string>& inputs,
                  const std::function<bool(const std::string& path)>& is_ours, Target target = Target::named);

// Error if a FileWriter cannot write to an output that somebody named. For programs that write after long
// work.
void check_writable(const std::string& path);

// Error if a file that will be replaced or removed cannot be, as Linux says: a mount (from 5.8 on), an
// immutable or append-only file, another user's in a shared folder. For programs that replace several files.
void check_can_move(const std::string& path);

// The lock on outputs that a program writes one after the other, to hold until all are there: a writer of
// PATH, which may be a folder, that is never finished. Error if another program holds it, or if the file with
// lock_suffix is somebody else's.
FileWriter lock_outputs(const std::string& path);
