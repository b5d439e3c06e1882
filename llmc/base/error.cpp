#include "llmc/base/error.h"

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <filesystem>
#include <new>
#include <system_error>

#include "llmc/base/os.h"
#include "llmc/base/utf8.h"

static std::string format_list(const char* format, va_list list) {
    va_list again;
    va_copy(again, list);
    int length = vsnprintf(nullptr, 0, format, again);
    va_end(again);
    std::string text(length > 0 ? length : 0, '\0');
    vsnprintf(text.data(), text.size() + 1, format, list);
    return text;
}

void fail(const char* format, ...) {
    va_list list;
    va_start(list, format);
    std::string text = format_list(format, list);
    va_end(list);
    throw Error(printable(text));
}

std::string format_string(const char* format, ...) {
    va_list list;
    va_start(list, format);
    std::string text = format_list(format, list);
    va_end(list);
    return text;
}

void print_line(FILE* to, const char* format, ...) {
    va_list list;
    va_start(list, format);
    const std::string text = format_list(format, list);
    va_end(list);
    fprintf(to, "%s\n", printable(text).c_str());
}

void warn(const char* format, ...) {
    va_list list;
    va_start(list, format);
    const std::string message = format_list(format, list);
    va_end(list);
    fflush(stdout);
    print_line(stderr, "warning: %s", message.c_str());
}

std::string name_of_program;

std::string command_of(const std::string& program) {
    const std::string prefix = "vulkan-gpt2-";
    if (!name_of_program.starts_with(prefix)) return program;
    std::string name = prefix + (program == "train_gpt2" ? "train" : program);
    std::replace(name.begin(), name.end(), '_', '-');
    return name;
}

static bool is_printable(uint32_t code) {
    const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    const bool separator = code == 0x2028 || code == 0x2029;
    const bool changes_order = code == 0x061c || code == 0x200e || code == 0x200f ||
                               (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    return !control && !separator && !changes_order;
}

static std::string escape_controls(std::string_view text, bool keep_lines) {
    std::string result;
    while (!text.empty()) {
        const Character c = first_character(text);
        const size_t bytes = c.bytes ? c.bytes : 1;
        if (c.bytes && (is_printable(c.code) || (keep_lines && (c.code == '\n' || c.code == '\t'))))
            result += text.substr(0, bytes);
        else if (text[0] == '\n')
            result += "\\n";
        else
            for (size_t i = 0; i < bytes; i++) result += format_string("\\x%02x", uint8_t(text[i]));
        text.remove_prefix(bytes);
    }
    return result;
}

std::string printable(std::string_view text) { return escape_controls(text, false); }

std::string printable_lines(std::string_view text) { return escape_controls(text, true); }

std::string message_for(const std::exception& error) {
    if (dynamic_cast<const std::bad_alloc*>(&error) || dynamic_cast<const std::length_error*>(&error))
        return out_of_memory_message;
    const auto* system = dynamic_cast<const std::system_error*>(&error);
    if (system && system->code() == std::errc::resource_unavailable_try_again)
        return "no thread could be started: use fewer threads (OMP_NUM_THREADS), or raise the limits of "
               "memory and processes (ulimit -v, -u)";
    std::string text = error.what();
    if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
        const std::string path = file->path1().generic_string();
        if (file->code() == std::errc::illegal_byte_sequence)  // on Windows
            return "a path is not UTF-8, which cannot be used here: rename it";
        text = (path.empty() ? "cannot find the current folder" : "cannot use " + path) + ": " +
               file->code().message();
    }
    text = printable(text);
    const size_t most = 8192, each = 1000;  // a name of a file can have megabytes: the ends say what is wrong
    if (text.size() <= most) return text;
    size_t end = text.size() - each;
    while ((text[end] & 0xc0) == 0x80) end++;  // within a character
    return first_characters(text, each) + " [...] " + text.substr(end);
}
