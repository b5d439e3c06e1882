#include "llmc/text/text_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/utf8.h"

void TextStream::write(std::string_view bytes) {
    waiting += bytes;
    if (const size_t whole = whole_characters(waiting)) print(whole);
}

void TextStream::print(size_t bytes) {
    const std::string start = waiting.substr(0, bytes), text = escape ? printable_lines(start) : start;
    if (fwrite(text.data(), 1, text.size(), to) != text.size() || fflush(to) != 0)
        fail("cannot print the text: %s", strerror(errno));
    waiting.erase(0, bytes);
}

std::string StopTexts::add(std::string_view bytes) {
    waiting += bytes;
    size_t first = std::string::npos, may_begin = waiting.size();
    for (const std::string& stop : stops) {
        first = std::min(first, waiting.find(stop));
        size_t start = waiting.size() - std::min(waiting.size(), stop.size());
        while (start < may_begin && !stop.starts_with(std::string_view(waiting).substr(start))) start++;
        may_begin = std::min(may_begin, start);
    }
    found = first != std::string::npos;
    const size_t certain = found ? first : may_begin;
    const std::string text = waiting.substr(0, certain);
    waiting.erase(0, certain);
    return text;
}

std::string StopTexts::finish() { return found ? "" : std::exchange(waiting, ""); }
