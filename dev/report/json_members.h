// Members of JSON objects, read with errors that name the file: what the report's readers have in common.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

// The member of that kind; throws Error, naming `where`, if it is missing or something else.
const nlohmann::json& member(const nlohmann::json& object, const char* name, nlohmann::json::value_t kind,
                             const std::string& where);
std::string text_member(const nlohmann::json& object, const char* name, const std::string& where);

// The same of members that may be left out.
std::string text_or(const nlohmann::json& object, const char* name, const std::string& where);
bool flag_or(const nlohmann::json& object, const char* name, bool otherwise, const std::string& where);
double number_or(const nlohmann::json& object, const char* name, double otherwise, const std::string& where);
