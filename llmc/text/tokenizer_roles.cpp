#include "llmc/text/tokenizer_roles.h"

#include <algorithm>
#include <set>

using nlohmann::json;

static json config_roles(const json& files, const std::string& end_of_text) {
    static const std::set<std::string> others = {"additional_special_tokens", "extra_special_tokens",
                                                 "chat_template", "padding_side", "truncation_side"};
    json names = files.value("tokenizer_config.json", json::object()), roles = json::object();
    const json map = files.value("special_tokens_map.json", json::object());
    for (const auto& [key, value] : map.items())
        if (!names.contains(key)) names[key] = value;
    for (const auto& [key, value] : names.items()) {
        // a token is its text, or an object that also has flags, which the added tokens say
        const json text = value.is_object() && value.contains("content") ? value["content"] : value;
        const bool is_token = key.ends_with("_token") && text.is_string();
        const bool is_usual =
            text == end_of_text && (key == "bos_token" || key == "eos_token" || key == "unk_token");
        if (is_token && !is_usual) roles[key] = text;
        if (others.contains(key) && !value.is_null() && !value.empty()) roles[key] = value;
    }
    if (files.contains("chat_template.jinja")) roles["chat_template"] = files["chat_template.jinja"];
    return roles;
}

json roles_of(const json& files, const std::string& end_of_text) {
    json config = config_roles(files, end_of_text), generation = json::object();
    const json said = files.value("generation_config.json", json::object());
    for (const auto& [key, value] : said.items())
        if (key != "_from_model_config" && key != "transformers_version") generation[key] = value;
    // GPT-2's own has these alone
    const bool has_ids_alone = std::ranges::all_of(generation.items(), [](const auto& member) {
        return member.key() == "bos_token_id" || member.key() == "eos_token_id";
    });
    if (has_ids_alone && config.empty()) generation = json::object();
    json roles = json::object();
    if (!config.empty()) roles["config"] = config;
    if (!generation.empty()) roles["generation"] = generation;
    return roles;
}

// A list of templates has names: the one called default.
static std::string text_of_template(const json& value) {
    if (value.is_string()) return value;
    for (const json& named : value.is_array() ? value : json::array())
        if (named.is_object() && named.value("name", json()) == "default")
            return text_of_template(named.value("template", json()));
    return "";
}

std::string chat_template_of(const std::string& roles) {
    if (roles.empty()) return "";
    const json all = parse_json_object(roles, "the tokenizer's roles");
    return text_of_template(all.value("config", json::object()).value("chat_template", json()));
}

std::string with_chat_template(const std::string& roles, const std::string& chat_template) {
    json all = roles.empty() ? json::object() : parse_json_object(roles, "the tokenizer's roles");
    all["config"]["chat_template"] = chat_template;
    return json_text(all);
}

void add_roles(JsonMembers& members, const std::string& roles, const char* part) {
    if (roles.empty()) return;
    const json all = parse_json_object(roles, "the tokenizer's roles");
    const json of_part = all.value(part, json::object());
    for (const auto& [key, value] : of_part.items()) {
        const auto known = std::find_if(members.begin(), members.end(),
                                        [&name = key](const auto& member) { return member.first == name; });
        if (known == members.end())
            members.push_back({key, value});
        else
            known->second = value;
    }
}
