#include "llmc/text/tokenizer_roles.h"

#include <algorithm>

using nlohmann::json;

json joined_config(const json& files) {
    json names = files.value("tokenizer_config.json", json::object());
    const json map = files.value("special_tokens_map.json", json::object());
    if (names.contains("added_tokens_decoder")) return names;
    for (const auto& [key, value] : map.items()) {
        json& joined = names[key];
        if (!value.is_array() || !joined.is_array())
            joined = value;
        else
            for (const json& token : value)
                if (std::ranges::find(joined, token) == joined.end()) joined.push_back(token);
    }
    return names;
}

// Whether the export says it anyway, or nothing is said.
static bool is_said_anyway(const std::string& key, const json& value, const std::string& end_of_text) {
    if (key == "bos_token" || key == "unk_token") return value == end_of_text;  // null: there is none
    if (key == "eos_token" && value == end_of_text) return true;
    if (key == "clean_up_tokenization_spaces" && value == false) return true;
    return value.is_null() || value.empty();
}

static json config_roles(const json& config, const std::string& end_of_text) {
    // said by the export, by its tokenizer.json, or of the place of the files
    static const std::set<std::string> others = {
        "tokenizer_class", "add_prefix_space", "model_max_length", "added_tokens_decoder",
        "name_or_path",    "backend",          "is_local",         "local_files_only"};
    json roles = json::object();
    for (const auto& [key, value] : config.items()) {
        // a token is its text, or an object that also has flags, which the added tokens say
        const bool has_flags = key.ends_with("_token") && value.is_object() && value.contains("content");
        const json said = has_flags ? value["content"] : value;
        const bool is_other = others.contains(key) || key.ends_with("_file");
        if (!is_other && !is_said_anyway(key, said, end_of_text)) roles[key] = said;
    }
    return roles;
}

// A member that is a text, else an empty text, which no token has.
static std::string text_in(const json& config, const char* name) {
    const json text = config.value(name, json());
    return text.is_string() ? text.get<std::string>() : "";
}

json roles_of(const json& files, json config, const Tokenizer& tokenizer) {
    json generation = json::object(), pipeline = json::object();
    if (files.contains("chat_template.jinja")) config["chat_template"] = files["chat_template.jinja"];
    config = config_roles(config, tokenizer.tokens[size_t(tokenizer.end_of_text)]);
    const json said = files.value("generation_config.json", json::object());
    for (const auto& [key, value] : said.items()) {
        const bool is_id = key == "bos_token_id" || key == "eos_token_id" || key == "pad_token_id";
        const bool is_end = is_id && value == tokenizer.end_of_text;
        if (!is_end && key != "_from_model_config" && key != "transformers_version") generation[key] = value;
    }
    for (const char* role : {"bos_token", "pad_token"}) {
        const auto token = std::ranges::find(tokenizer.tokens, text_in(config, role));
        const std::string id = std::string(role) + "_id";
        if (token != tokenizer.tokens.end() && !said.contains(id))
            generation[id] = token - tokenizer.tokens.begin();
    }
    const json whole = files.value("tokenizer.json", json::object());
    for (const char* key : {"truncation", "padding"})
        if (const json value = whole.value(key, json()); !value.is_null()) pipeline[key] = value;
    json roles = json::object();
    if (!config.empty()) roles["config"] = config;
    if (!generation.empty()) roles["generation"] = generation;
    if (!pipeline.empty()) roles["tokenizer"] = pipeline;
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

std::set<int64_t> ends_of_text(const Tokenizer& tokenizer) {
    JsonMembers generation = {{"eos_token_id", {}}};
    add_roles(generation, tokenizer.roles, "generation");
    const json said = generation[0].second;
    std::set<int64_t> ends = {tokenizer.end_of_text};
    for (const json& id : said.is_array() ? said : json::array({said}))
        if (id.is_number_integer()) ends.insert(id.get<int64_t>());
    return ends;
}
