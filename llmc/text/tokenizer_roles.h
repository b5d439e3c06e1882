// What Hugging Face's files say beyond a tokenizer's tokens, and an export must say again: which tokens
// begin, pad or separate texts, the template of a chat, and how the model's text is generated.
#pragma once
#include <cstdint>
#include <set>
#include <string>

#include "llmc/base/json.h"
#include "llmc/text/tokenizer.h"

// What tokenizer_config.json and special_tokens_map.json of these files, which have their names, say together
// in transformers: the map counts unless the configuration lists the added tokens.
nlohmann::json joined_config(const nlohmann::json& files);

// The members of the files (chat_template.jinja is a string) and of their configuration that differ from what
// an export of the tokenizer says by itself: {"config": {...}, "generation": {...}, "tokenizer": {...}}, of
// tokenizer_config.json, generation_config.json and tokenizer.json; without those that are empty.
nlohmann::json roles_of(const nlohmann::json& files, nlohmann::json config, const Tokenizer& tokenizer);

// The template of a chat in a Tokenizer's `roles`; empty: there is none. And roles with another one.
std::string chat_template_of(const std::string& roles);
std::string with_chat_template(const std::string& roles, const std::string& chat_template);

// The tokens with which a model ends a text: end-of-text, and those that generation_config.json names.
std::set<int64_t> ends_of_text(const Tokenizer& tokenizer);

// Sets the members of a part, such as "config", in those of a file. `roles` is a Tokenizer's.
void add_roles(JsonMembers& members, const std::string& roles, const char* part);
