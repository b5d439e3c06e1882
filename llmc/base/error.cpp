// Formatting of messages: see error.h.
#include "llmc/base/error.h"

#include <cstdarg>
#include <cstdio>

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
    throw Error(text);
}

std::string format_string(const char* format, ...) {
    va_list list;
    va_start(list, format);
    std::string text = format_list(format, list);
    va_end(list);
    return text;
}
