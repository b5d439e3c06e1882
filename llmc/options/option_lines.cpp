#include "llmc/options/option_lines.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "llmc/base/error.h"
#include "llmc/base/lines.h"

static constexpr std::string_view blanks = " \t\r";
static constexpr size_t longest_line = 1 << 14;

static std::string_view trimmed(std::string_view text) {
    const size_t first = text.find_first_not_of(blanks);
    return first == std::string_view::npos ? ""
                                           : text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

// Takes a value and the blanks after it off the text. The value ends before one of `ends`, or with the text.
// Throws what is wrong as an Error.
static std::string take_value(std::string_view& text, std::string_view ends) {
    const char quote = text.empty() ? 0 : text[0];
    const bool is_quoted = quote == '"' || quote == '\'';
    for (size_t at = is_quoted; at <= text.size(); at++) {
        if (is_quoted && (at == text.size() || text[at] != quote)) continue;
        const std::string_view rest = is_quoted ? trimmed(text.substr(at + 1)) : text.substr(at);
        if (!rest.empty() && ends.find(rest[0]) == std::string_view::npos)
            continue;  // a quote within the text
        const std::string_view value = is_quoted ? text.substr(1, at - 1) : trimmed(text.substr(0, at));
        text = rest;
        if (value.empty() && !is_quoted) break;
        return std::string(value);
    }
    if (is_quoted) fail("the text has no end (%c)", quote);
    fail("a value is missing");
}

static std::vector<std::string> parse_values(std::string_view text) {
    std::vector<std::string> values;
    const bool is_list = text.starts_with('[');
    do {
        if (is_list) text = trimmed(text.substr(1));  // after [ or a comma
        values.push_back(take_value(text, is_list ? ",]" : "#"));
    } while (is_list && text.starts_with(','));
    if (is_list && !text.starts_with(']')) fail("the list has no end (]) on its line");
    if (is_list) text = trimmed(text.substr(1));
    if (!text.empty() && text[0] != '#') fail("there is something after the list");
    return values;
}

static OptionLine parse_line(std::string_view line, int number) {
    if (line.size() > longest_line) fail("more than %zu characters", longest_line);
    if (line.find('\0') != std::string_view::npos) fail("a byte 0, which no option has");
    if (line[0] == '[') fail("a section: options have none, only lines NAME = VALUE");
    const size_t equals = line.find('=');
    const std::string name(trimmed(line.substr(0, equals)));
    // others write names with underscores, capitals or dots: those are unknown options, with a suggestion
    const bool is_name = std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return isalnum(c) || c == '-' || c == '_' || c == '.';
    });
    if (equals == std::string_view::npos || name.empty() || !is_name)
        fail("'%s' is not NAME = VALUE", std::string(line.substr(0, 60)).c_str());
    return {number, name, parse_values(trimmed(line.substr(equals + 1)))};
}

std::vector<OptionLine> parse_option_lines(std::string_view text, const std::string& path) {
    std::vector<OptionLine> lines;
    std::set<std::string> names;
    int number = 0;
    for (const std::string& whole : lines_of(text)) {
        number++;
        const std::string_view line = trimmed(whole);
        if (line.empty() || line[0] == '#') continue;
        try {
            lines.push_back(parse_line(line, number));
            if (!names.insert(lines.back().name).second) fail("%s is set again", lines.back().name.c_str());
        } catch (const Error& error) {
            fail("%s, line %d: %s", path.c_str(), number, error.what());
        }
    }
    return lines;
}
