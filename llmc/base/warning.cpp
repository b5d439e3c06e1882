#include "llmc/base/warning.h"

#include <cstdarg>

#include "llmc/base/error.h"

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
