#include "llmc/base/json.h"

#include <set>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

std::string json_reason(const nlohmann::json::exception& error) {
    const std::string what = error.what();  // [json.exception.parse_error.101] parse error at line 1, ...
    const size_t prefix = what.find("] ");
    return printable(prefix == what.npos ? what : what.substr(prefix + 2));
}

// What is wrong with a text that is not a JSON object, as the library says it.
static std::string why_not_object(std::string_view text) {
    try {
        return "it is " + describe_json(nlohmann::json::parse(text));
    } catch (const nlohmann::json::exception& error) {
        return json_reason(error);
    }
}

nlohmann::json parse_json_object(std::string_view text, const std::string& where) {
    using Event = nlohmann::json::parse_event_t;
    if (text.size() > max_json_bytes)
        fail("%s has %zu bytes of JSON; at most %zu can be read", where.c_str(), text.size(), max_json_bytes);
    if (text.find('\0') != text.npos)  // where the library takes the text to end
        fail("%s is not a JSON object: it has a zero byte", where.c_str());
    std::vector<std::set<std::string>> names(max_json_depth + 1);  // of the object that is open at each level
    const auto check = [&](int depth, Event event, nlohmann::json& value) {
        const bool begins = event == Event::object_start || event == Event::array_start;
        if (begins && depth >= max_json_depth)
            fail("%s has JSON nested deeper than %d levels, which is refused", where.c_str(), max_json_depth);
        if (begins) names[size_t(depth) + 1].clear();
        if (event == Event::key && !names[size_t(depth)].insert(value.get<std::string>()).second)
            fail("%s has two members '%s' in one JSON object", where.c_str(),
                 printable(value.get<std::string>()).c_str());
        return true;
    };
    nlohmann::json object = nlohmann::json::parse(text, check, false);
    if (!object.is_object()) fail("%s is not a JSON object: %s", where.c_str(), why_not_object(text).c_str());
    return object;
}

nlohmann::json read_json_object(const std::string& path, size_t limit) {
    return parse_json_object(read_whole_file(path, limit), path);
}

std::string json_text(const nlohmann::json& value, int indent) { return value.dump(indent); }

std::string json_text(const JsonMembers& members, int indent) {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    for (const auto& [name, value] : members) object[name] = value;
    return object.dump(indent);
}

std::string describe_json(const nlohmann::json& value) {
    if (value.is_array()) return "an array";
    if (value.is_object()) return "an object";
    const size_t longest = 60;
    const std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    return text.size() <= longest ? text : text.substr(0, longest) + "...";
}
