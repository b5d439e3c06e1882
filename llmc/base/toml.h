// Files of options: TOML without sections and tables, read by toml++, which only toml.cpp includes, since it
// takes long to compile.
#pragma once
#include <string>
#include <string_view>
#include <vector>

// NAME = VALUE, or a list of texts. A text is without quotes and escapes; a number or word is as it is
// written.
struct TomlEntry {
    int line;  // from 1
    std::string name;
    std::vector<std::string> values;
    bool is_list = false;
};

// In the order of the lines. Throws Error, which names the file and the line, if the text is anything else.
// Besides TOML, words need no quotes, and NAME="TEXT" without a space has no escapes, as earlier versions
// wrote it.
std::vector<TomlEntry> read_toml(std::string_view text, const std::string& path);

// A text with the quotes and escapes that it needs, in UTF-8; read_toml() gives it back, whatever its bytes
// but zeros, which it refuses.
std::string toml_text(const std::string& text);
// The line NAME=VALUE for a text, without the newline.
std::string toml_line(const std::string& name, const std::string& text);
