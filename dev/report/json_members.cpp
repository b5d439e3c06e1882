// Access to members of JSON objects: see json_members.h.
#include "dev/report/json_members.h"

#include <limits>

#include "llmc/base/error.h"

using nlohmann::json;

const json& member(const json& object, const char* name, json::value_t type, const std::string& where) {
    if (!object.is_object()) fail("%s: %s where an object is expected", where.c_str(), object.type_name());
    const auto found = object.find(name);
    if (found == object.end()) fail("%s: \"%s\" is missing", where.c_str(), name);
    if (found->type() != type)
        fail("%s: \"%s\" is a %s, not a %s", where.c_str(), name, found->type_name(), json(type).type_name());
    return *found;
}

std::string text_member(const json& object, const char* name, const std::string& where) {
    return member(object, name, json::value_t::string, where);
}

std::string text_or(const json& object, const char* name, const std::string& where) {
    return object.contains(name) ? text_member(object, name, where) : "";
}

bool flag_or(const json& object, const char* name, bool otherwise, const std::string& where) {
    return object.contains(name) ? member(object, name, json::value_t::boolean, where).get<bool>()
                                 : otherwise;
}

double number_or(const json& object, const char* name, double otherwise, const std::string& where) {
    if (!object.contains(name)) return otherwise;
    if (!object[name].is_number())
        fail("%s: \"%s\" is a %s, not a number", where.c_str(), name, object[name].type_name());
    return object[name];
}

json cell_to_json(const Cell& cell) {
    if (cell.is_null()) return nullptr;
    if (cell.is_text()) return cell.text();
    return cell.is_integer() ? json(cell.integer()) : json(cell.number());
}

Cell cell_from_json(const json& value) {
    if (value.is_string()) return value.get<std::string>();
    if (!value.is_number()) return nullptr;
    const bool too_large =
        value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max());
    return value.is_number_integer() && !too_large ? Cell(value.get<int64_t>()) : Cell(value.get<double>());
}
