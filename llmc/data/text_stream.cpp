#include "llmc/data/text_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/utf8.h"

size_t whole_characters(std::string_view text) {
    for (size_t back = 1; back <= std::min<size_t>(3, text.size()); back++) {
        const uint8_t byte = uint8_t(text[text.size() - back]);
        if ((byte & 0xc0) == 0x80) continue;  // not the first byte of a character
        return character_length(byte) > back ? text.size() - back : text.size();
    }
    return text.size();
}

static void print(FILE* to, std::string_view bytes) {
    if (fwrite(bytes.data(), 1, bytes.size(), to) != bytes.size() || fflush(to) != 0)
        fail("cannot print the text: %s", strerror(errno));
}

void TextStream::write(std::string_view bytes) {
    waiting += bytes;
    const size_t whole = whole_characters(waiting);
    if (whole == 0) return;
    const std::string text = waiting.substr(0, whole);
    print(to, escape ? printable_lines(text) : text);
    waiting.erase(0, whole);
}

void TextStream::finish() {
    print(to, escape ? printable_lines(waiting) : waiting);
    waiting.clear();
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
