#include "llmc/base/html.h"

#include <cctype>
#include <cstring>

#include "llmc/base/error.h"

static std::string replace_markup(const std::string& text) {
    std::string result;
    for (char c : text)
        result += c == '<'    ? "&lt;"
                  : c == '>'  ? "&gt;"
                  : c == '&'  ? "&amp;"
                  : c == '"'  ? "&quot;"
                  : c == '\'' ? "&#39;"
                              : std::string(1, c);
    return result;
}

std::string escape_html(const std::string& text) { return replace_markup(printable_lines(text)); }

std::string escape_markdown(const std::string& text) {
    const std::string html = replace_markup(printable(text));
    const auto is_letter = [&](size_t i) {
        return i < html.size() && isalnum(static_cast<unsigned char>(html[i]));
    };
    std::string result;
    for (size_t i = 0; i < html.size(); i++) {
        const bool within_word = html[i] == '_' && i > 0 && is_letter(i - 1) && is_letter(i + 1);
        if (strchr("\\`*_~[]|", html[i]) && !within_word) result += '\\';
        result += html[i];
    }
    return result;
}
