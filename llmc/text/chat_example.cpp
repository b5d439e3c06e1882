#include "llmc/text/chat_example.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/utf8.h"
#include "llmc/text/jinja_functions.h"

using nlohmann::json;

bool is_empty(const json& value) {
    return value.is_null() || value == "" || value == "[]" || (value.is_structured() && value.empty());
}

// --- texts ---

static bool has_text(const json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string();
}

// Whether an element of a list is a text, as {"type": "text", "text": TEXT}.
static bool is_text_part(const json& part) {
    return part.is_object() && has_text(part, "text") && part.value("type", json("text")) == "text";
}

// What a message says: a text, or a list of them; null: something else.
static json said_in(const json& message, const char* name) {
    const json said = message.value(name, json());
    if (said.is_string() || !said.is_array() || said.empty()) return said.is_string() ? said : json();
    std::string all;
    for (const json& part : said) {
        if (!is_text_part(part)) return json();
        all += (&part == &said[0] ? "" : "\n") + part["text"].get<std::string>();
    }
    return all;
}

// A text that may be missing.
static std::string optional_text(const json& object, const char* name, const std::string& where) {
    const json value = object.value(name, json()), said = said_in(object, name);
    if (said.is_null() && !value.is_null() && !value.empty())
        fail("%s: %s is %s, not a text", where.c_str(), name, describe_json(value).c_str());
    return said.is_null() ? "" : said.get<std::string>();
}

// --- the forms ---

json chat_message(const char* role, const json& content) { return {{"role", role}, {"content", content}}; }

// A member that is a list of messages, else null.
static json list_of(const json& object, const char* name) {
    const json list = object.value(name, json());
    const bool is_list = list.is_array() && !list.empty() && list[0].is_object();
    return is_list && (list[0].contains("role") || list[0].contains("from")) ? list : json();
}

// The messages of an example, and the fields that they were read from.
struct Form {
    json messages = {};  // null: it has none
    std::set<std::string> fields = {};
};

static Form listed_messages(const json& object) {
    for (const char* name : {"messages", "conversations", "conversation"})
        if (const json list = list_of(object, name); !list.is_null()) return {list, {name}};
    json prompt = list_of(object, "prompt");
    const json completion = list_of(object, "completion");
    if (prompt.is_null() || completion.is_null()) return {};
    prompt.insert(prompt.end(), completion.begin(), completion.end());
    return {prompt, {"prompt", "completion"}};
}

static bool has_instruction(const json& object) {
    return has_text(object, "instruction") && has_text(object, "output");
}

bool is_chat_example(const json& object) {
    return !listed_messages(object).messages.is_null() || has_instruction(object) ||
           (has_text(object, "prompt") && has_text(object, "completion"));
}

static Form form_of(const json& object, const std::string& where) {
    if (const Form listed = listed_messages(object); !listed.messages.is_null()) return listed;
    if (has_instruction(object)) {
        std::string question = object["instruction"];
        if (const std::string input = optional_text(object, "input", where); !input.empty())
            question += "\n\n" + input;
        return {json::array({chat_message("user", question), chat_message("assistant", object["output"])}),
                {"instruction", "input", "output"}};
    }
    if (!is_chat_example(object))
        fail(
            "%s has neither messages nor conversations nor prompt and completion nor instruction and output, "
            "as texts",
            where.c_str());
    return {json::array(
                {chat_message("user", object["prompt"]), chat_message("assistant", object["completion"])}),
            {"prompt", "completion"}};
}

// --- what is not read ---

// Labels may be classes and losses numbers, which do not say whether to learn an example.
static bool is_about_learning(const std::string& name, const json& value) {
    if (name != "label" && name != "loss") return true;
    return value.is_boolean() || value == 0 || value == 1 || is_empty(value);
}

// Error if an answer is not to be learnt like all others.
static void refuse_weights(const json& object, const std::string& where) {
    using Values = std::vector<json>;
    static const std::map<std::string, Values> usual = {
        {"weight", {1}},          {"train", {true, 1, ""}},   {"loss", {true, 1, ""}},
        {"label", {true, 1, ""}}, {"kto_tag", {true, 1, ""}}, {"masked", {false, 0}}};
    for (const auto& [name, values] : usual) {
        const json value = object.value(name, json());
        if (value.is_null() || std::ranges::count(values, value) || !is_about_learning(name, value)) continue;
        fail("%s has %s %s: all answers count alike", where.c_str(), name.c_str(),
             describe_json(value).c_str());
    }
}

// What the model would see besides the texts, in an object or a message, and the fields of all forms.
static bool is_for_the_model(const std::string& name) {
    static const std::set<std::string> names = {
        "history",       "tools",        "functions",     "tool_calls", "function_call",
        "images",        "image",        "videos",        "audios",     "audio",
        "context",       "documents",    "system_prompt", "suffix",     "reasoning_content",
        "reasoning",     "thinking",     "thought",       "refusal",    "messages",
        "conversations", "conversation", "prompt",        "completion", "instruction",
        "input",         "output",       "system",        "content",    "value"};
    return names.contains(name);
}

// Notes the fields that are not among those read. Error if one is for the model, and is not what it sees.
static void note_unread(const json& object, std::set<std::string> read, const json& messages,
                        const std::string& where, std::set<std::string>& unread) {
    for (const std::string name : {"weight", "train", "loss", "label", "kto_tag", "masked"})
        if (is_about_learning(name, object.value(name, json()))) read.insert(name);
    const auto is_seen = [&](const json& value) {
        return std::ranges::any_of(messages, [&](const json& m) { return m["content"] == value; }) ||
               std::ranges::any_of(read,
                                   [&](const std::string& r) { return object.value(r, json()) == value; });
    };
    for (const auto& [name, value] : object.items()) {
        if (read.contains(name) || is_empty(value)) continue;
        if (is_for_the_model(name) && (value.is_string() || value.is_structured()) && !is_seen(value))
            fail("%s has a field '%s', which is not read: remove it if the texts alone are meant",
                 where.c_str(), name.c_str());
        unread.insert(name);
    }
}

// --- an example ---

// The role that a template knows, of ShareGPT's names, too.
static std::string plain_role(const std::string& role) {
    return role == "human" ? "user" : role == "gpt" ? "assistant" : role;
}

// Appends a message, which begins the example if it is the first one, in its plain form.
static void add_message(const json& m, const std::string& where, ChatExample& to) {
    const bool is_share = m.is_object() && m.contains("from") && !m.contains("role");
    const char *of = is_share ? "from" : "role", *said = is_share ? "value" : "content";
    const json content = m.is_object() && has_text(m, of) ? said_in(m, said) : json();
    if (content.is_null()) fail("%s is not {\"%s\": TEXT, \"%s\": TEXT}", where.c_str(), of, said);
    const std::string role = plain_role(m[of]);
    if (role != "system" && role != "user" && role != "assistant")
        fail("%s: the role '%s' is none of system, user (human) and assistant (gpt)", where.c_str(),
             printable(role).c_str());
    const json parts = m[said].is_array() ? m[said] : json::array();
    to.messages.push_back(chat_message(role.c_str(), content));
    note_unread(m, {of, said}, to.messages, where, to.unread_fields);
    for (const json& part : parts) note_unread(part, {"type", "text"}, to.messages, where, to.unread_fields);
    if (role != "assistant") return;
    refuse_weights(m, where);
    for (const json& part : parts) refuse_weights(part, where);
    if (trimmed(content.get<std::string>()).empty()) fail("%s: an answer is empty", where.c_str());
}

ChatExample read_chat_example(const json& object, const std::string& where) {
    ChatExample example;
    Form form = form_of(object, where);
    size_t number = 0;
    for (const json& m : form.messages)
        add_message(m, where + ": message " + std::to_string(++number), example);
    json& messages = example.messages;
    const std::string system = optional_text(object, "system", where);
    const bool has_system = messages[0]["role"] == "system";
    if (has_system && !system.empty() && messages[0]["content"] != system)
        fail("%s has a field 'system' and a system message with another text", where.c_str());
    if (!has_system && !system.empty()) messages.insert(messages.begin(), chat_message("system", system));
    form.fields.insert("system");
    refuse_weights(object, where);
    note_unread(object, form.fields, messages, where, example.unread_fields);
    size_t end = messages.size();
    while (end > 0 && messages[end - 1]["role"] != "assistant") end--;
    if (end == 0) fail("%s has no answer: no message of the role assistant (or gpt)", where.c_str());
    example.is_unanswered = end < messages.size();
    messages.erase(messages.begin() + long(end), messages.end());
    return example;
}
