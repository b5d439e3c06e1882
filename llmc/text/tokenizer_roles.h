// What Hugging Face's files say beyond a tokenizer's tokens, and an export must say again: which tokens
// begin, pad or separate texts, the template of a chat, and how the model's text is generated.
#pragma once
#include <string>

#include "llmc/base/json.h"

// The members of these files (by name; chat_template.jinja as a string) that differ from what an export of a
// tokenizer with this end of text says by itself: {"config": {...}, "generation": {...}}, or an empty object.
nlohmann::json roles_of(const nlohmann::json& files, const std::string& end_of_text);

// The template of a chat in a Tokenizer's `roles`; empty: there is none. And roles with another one.
std::string chat_template_of(const std::string& roles);
std::string with_chat_template(const std::string& roles, const std::string& chat_template);

// Sets the members of a part, "config" or "generation", in those of a file. `roles` is a Tokenizer's.
void add_roles(JsonMembers& members, const std::string& roles, const char* part);
