// JSON, mostly from files that the program did not write. This is the only header that includes
// <nlohmann/json.hpp>. Parsing and printing take seconds to compile: json.cpp does both once, for all files.
#pragma once
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

constexpr int max_json_depth = 64;
constexpr size_t max_json_bytes = size_t(64) << 20;

// Parses a JSON object. Error, beginning with `where`, if the text is anything else, is longer than
// max_json_bytes, has two members of one name in an object, of which libraries take one, or nests arrays and
// objects deeper than max_json_depth. Copying, comparing and printing a value recurse as deep as it nests, so
// deeper input could overflow the stack.
nlohmann::json parse_json_object(std::string_view text, const std::string& where);

// The same from a file. Error if it cannot be read or has more than `limit` bytes.
nlohmann::json read_json_object(const std::string& path, size_t limit = max_json_bytes);

// Prints the value: on one line if indent is negative, else one member or element per line. Invalid UTF-8 in
// a string is an exception of the library; values that were parsed have none.
std::string json_text(const nlohmann::json& value, int indent = -1);

// Prints an object whose members keep this order; nlohmann::json sorts them by name.
using JsonMembers = std::vector<std::pair<std::string, nlohmann::json>>;
std::string json_text(const JsonMembers& members, int indent);

// What the library says is wrong, without its own name in front.
std::string json_reason(const nlohmann::json::exception& error);

// A value for an error message: short, ASCII, on one line. Arrays and objects are named, not printed.
std::string describe_json(const nlohmann::json& value);
