// Questions and answers as a line of JSONL holds them, in one of several forms.
#pragma once
#include <set>
#include <string>

#include "llmc/base/json.h"

// Which fields an example has.
inline constexpr const char* chat_fields =
    "messages (role, content), conversations (from, value), prompt and completion, or instruction, possibly "
    "input, and output";
bool is_chat_example(const nlohmann::json& object);

nlohmann::json chat_message(const char* role, const nlohmann::json& content);

struct ChatExample {
    nlohmann::json messages = nlohmann::json::array();  // as {"role": "user", "content": "..."}
    bool is_unanswered = false;                         // others follow the last answer, and are left out
    std::set<std::string> unread_fields = {};           // names of those that hold something
};

// Reads the messages up to the last answer. Error, which begins with `where`, if there is no answer, a role
// is none that is known, a text is none, an answer is not to be learnt as others are, or a field that is not
// read holds what the model would see: such as calls of tools, images, or an example of another form.
ChatExample read_chat_example(const nlohmann::json& object, const std::string& where);

// Whether there is nothing in it, such as null, or an empty list, which some files hold as a text.
bool is_empty(const nlohmann::json& value);
