#include "llmc/base/html.h"

#include <cstdint>
#include <cstring>

#include "llmc/base/error.h"

std::string escape_html(const std::string& text) {
    std::string result;
    for (char c : text) {
        const bool control = uint8_t(c) < ' ' && c != '\n' && c != '\t';
        if (c == '<')
            result += "&lt;";
        else if (c == '>')
            result += "&gt;";
        else if (c == '&')
            result += "&amp;";
        else if (c == '"')
            result += "&quot;";
        else if (c == '\'')
            result += "&#39;";
        else if (control)
            result += "\xEF\xBF\xBD";
        else
            result += c;
    }
    return result;
}

std::string escape_markdown(const std::string& text) {
    std::string result;
    for (char c : escape_html(printable(text))) {
        if (strchr("\\`*_~[]|", c)) result += '\\';
        result += c;
    }
    return result;
}
