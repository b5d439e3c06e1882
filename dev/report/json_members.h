// Typed access to members of JSON objects, with errors that name the file; and cells as JSON. For .cpp files
// only: the JSON library is slow to compile.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "dev/report/tables.h"

// The member, which must have this type; throws Error, naming `where`, if it is missing or of another type.
const nlohmann::json& member(const nlohmann::json& object, const char* name, nlohmann::json::value_t type,
                             const std::string& where);
std::string text_member(const nlohmann::json& object, const char* name, const std::string& where);

// Optional members: the empty text or `otherwise` if the member is missing.
std::string text_or(const nlohmann::json& object, const char* name, const std::string& where);
bool flag_or(const nlohmann::json& object, const char* name, bool otherwise, const std::string& where);
double number_or(const nlohmann::json& object, const char* name, double otherwise, const std::string& where);

nlohmann::json cell_to_json(const Cell& cell);
// Null for anything but numbers and text.
Cell cell_from_json(const nlohmann::json& json);
