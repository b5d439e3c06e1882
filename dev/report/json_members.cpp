// Reading members of JSON objects: see json_members.h.
#include "dev/report/json_members.h"

#include "llmc/error.h"

using nlohmann::json;

const json& member(const json& object, const char* name, json::value_t kind, const std::string& where) {
    if (!object.is_object()) fail("%s: %s where an object is expected", where.c_str(), object.type_name());
    const auto found = object.find(name);
    if (found == object.end()) fail("%s: \"%s\" is missing", where.c_str(), name);
    if (found->type() != kind)
        fail("%s: \"%s\" is a %s, not a %s", where.c_str(), name, found->type_name(), json(kind).type_name());
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
