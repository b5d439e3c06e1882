#include "llmc/base/toml.h"

#include <toml++/toml.h>
#include <algorithm>

#include "llmc/base/error.h"
#include "llmc/base/lines.h"
#include "llmc/base/utf8.h"

// Keys with many dots are tables within tables, whose destructors call each other.
static constexpr size_t longest_line = 1 << 13;

static bool is_control(char c) { return uint8_t(c) < 0x20 || c == 0x7f; }

// Names of files may have bytes that are not UTF-8. Each of them is one of the last private characters.
static constexpr uint32_t character_of_byte = 0x10ff00;

static std::string with_characters(std::string_view text) {
    std::string all;
    while (!text.empty()) {
        const auto [code, bytes] = first_character(text);
        const bool is_kept = bytes > 0 && code < character_of_byte;
        is_kept ? all.append(text.substr(0, bytes))
                : (append_character(all, character_of_byte + uint8_t(text[0])), all);
        text.remove_prefix(is_kept ? bytes : 1);
    }
    return all;
}

static std::string with_bytes(std::string_view text) {
    std::string all;
    while (!text.empty()) {
        const auto [code, bytes] = first_character(text);
        code >= character_of_byte ? all += char(code - character_of_byte) : all.append(text.substr(0, bytes));
        text.remove_prefix(bytes);
    }
    return all;
}

std::string toml_text(const std::string& as_it_is) {
    const std::string text = with_characters(as_it_is);
    const bool has_controls = std::any_of(text.begin(), text.end(), is_control);
    if (!has_controls && text.find_first_of("\"\\") == text.npos) return '"' + text + '"';
    if (!has_controls && text.find('\'') == text.npos) return '\'' + text + '\'';
    std::string quoted = "\"";
    for (const char c : text)
        quoted += is_control(c)           ? format_string("\\u%04x", unsigned(c))
                  : c == '"' || c == '\\' ? std::string("\\") + c
                                          : std::string(1, c);
    return quoted + '"';
}

std::string toml_line(const std::string& name, const std::string& text) {
    const std::string quoted = toml_text(text);
    const bool has_escapes = quoted[0] == '"' && quoted.find('\\') != quoted.npos;
    return name + (has_escapes ? " = " : "=") +
           quoted;  // repaired() takes the latter for an earlier version's
}

static size_t first_of_rest(const std::string& line, size_t from) {
    return line.find_first_not_of(" \t\r", from);
}

static bool ends_at(const std::string& line, size_t end) {  // but for a comment
    const size_t rest = first_of_rest(line, end);
    return rest == line.npos || line[rest] == '#';
}

// The line with a value that the parser takes as it is written. A number or word gets quotes, so that the
// options' own checks judge it, as on the command line. Earlier versions wrote NAME="TEXT" without escapes.
static std::string prepared(const std::string& line) {
    const size_t equals = line.find('='),
                 begin = equals == line.npos ? equals : first_of_rest(line, equals + 1);
    if (begin == line.npos || line[first_of_rest(line, 0)] == '#') return line;
    const char quote = line[begin];
    size_t end = line.find_first_of(" \t\r#\"'[]{},", begin);
    if (end != begin) {
        end = std::min(end, line.size());
        return ends_at(line, end) ? line.substr(0, begin) + toml_text(line.substr(begin, end - begin)) : line;
    }
    if (begin != equals + 1 || (quote != '"' && quote != '\'')) return line;
    do end = line.find(quote, end + 1);
    while (end != line.npos && !ends_at(line, end + 1));
    if (end == line.npos) return line;
    const std::string text = line.substr(begin + 1, end - begin - 1);
    const bool is_plain = text.find_first_of(quote == '"' ? "\"\\" : "'") == text.npos;
    return is_plain ? line : toml_line(line.substr(0, equals), text) + line.substr(end + 1);
}

// Refuses what the parser would take for a structure.
static void check_line(const std::string& line) {
    if (line.size() > longest_line) fail("more than %zu characters", longest_line);
    const size_t first = line.find_first_not_of(" \t");
    if (first != line.npos && line[first] == '[')
        fail("a section: options have none, only lines NAME = VALUE");
}

// Behind the quote that closes the one at a position, or behind the line.
static size_t end_of_quoted(const std::string& line, size_t at) {
    const char quote = line[at];
    if (line.compare(at++, 3, std::string(3, quote)) == 0) fail("a text of several lines: options have none");
    while (at < line.size() && line[at] != quote) at += quote == '"' && line[at] == '\\' ? 2 : 1;
    return std::min(at + 1, line.size());
}

// Refuses tables, texts of several lines, and names that are not ASCII. Some versions of the parser do not
// survive "[}", or letters such as those of Russian outside quotes.
static void check_structure(const std::string& line) {
    for (size_t at = 0; at < line.size() && line[at] != '#'; at++)
        if (line[at] == '"' || line[at] == '\'')
            at = end_of_quoted(line, at) - 1;
        else if (line[at] == '{' || line[at] == '}')
            fail("a table: options have none");
        else if (uint8_t(line[at]) >= 0x80)
            fail("a character outside quotes that is not ASCII: no option's name has one");
}

static std::string text_of(const toml::node& node) {
    if (!node.is_string()) fail("a list has only texts, in quotes");
    const std::string text = with_bytes(node.as_string()->get());
    if (text.find('\0') != text.npos) fail("a text has a zero byte: no value does");
    return text;
}

static TomlEntry entry_of(const toml::key& key, const toml::node& node) {
    TomlEntry entry = {.line = int(key.source().begin.line), .name = std::string(key.str()), .values = {}};
    if (const toml::table* table = node.as_table()) {  // NAME.NAME = VALUE
        if (table->empty()) fail("a table: options have none");
        entry.name += "." + std::string(table->begin()->first.str());
        return entry;
    }
    entry.is_list = node.is_array();
    if (!entry.is_list) entry.values = {text_of(node)};
    if (entry.is_list)
        for (const toml::node& element : *node.as_array()) entry.values.push_back(text_of(element));
    return entry;
}

std::vector<TomlEntry> read_toml(std::string_view text, const std::string& path) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // byte order mark
    std::vector<TomlEntry> entries;
    size_t number = 0;
    try {
        std::string all;
        for (const std::string& line : lines_of(text)) {
            number++;
            check_line(line);
            const std::string whole = prepared(line);
            check_structure(whole);
            all += whole + "\n";
        }
        const toml::table table = toml::parse(all);
        for (const auto& [key, node] : table) {
            number = key.source().begin.line;
            entries.push_back(entry_of(key, node));
        }
    } catch (const toml::parse_error& error) {
        fail("%s, line %d: not TOML: %s", path.c_str(), int(error.source().begin.line),
             first_characters(error.description(), 200).c_str());
    } catch (const Error& error) {
        fail("%s, line %zu: %s", path.c_str(), number, error.what());
    }
    std::sort(entries.begin(), entries.end(), [](auto& a, auto& b) { return a.line < b.line; });
    return entries;
}
