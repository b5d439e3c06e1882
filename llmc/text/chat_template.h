// Questions and answers as the model sees them: a template turns the messages of a conversation into text.
// Templates are Jinja, as Hugging Face's files and GGUF hold them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/text/tokenizer.h"

// ### Question, ### Answer.
std::string builtin_chat_template();

// The Jinja of a template's file, which is Jinja already, or an example with {user}, {assistant} and possibly
// {system} in the places of their texts. Error, which names the file, if it is neither.
std::string read_chat_template(const std::string& path);

// --- as text and as tokens; messages are those of chat_example.h ---

struct ChatPart {
    std::string text;
    bool is_answer;
};

struct ChatTemplate {
    std::string source;       // Jinja
    std::string end_of_text;  // the text of this token
    std::string bos, eos;     // as the template names them
    std::string name;         // for messages
    // What it puts around messages, such as ### Answer; a line end before it: at the beginning of a line.
    std::vector<std::string> marks = {};

    // The template that the tokenizer has, else the built-in one. Error if it is not understood.
    explicit ChatTemplate(const Tokenizer& tokenizer);
    // The text of a conversation; with an answer to come, up to its beginning.
    std::string prompt(const nlohmann::json& messages) const;
    std::vector<ChatPart> parts(const nlohmann::json& messages) const;
    // What the template puts behind an answer, without white space and end-of-text; generation ends there.
    std::string stop() const;
    // One of the marks that a message has as its text, which a model takes for another turn; empty: none.
    std::string mark_in(const nlohmann::json& messages) const;
    // Whether an added token is a mark of conversations, and no word.
    bool is_mark(const Tokenizer& tokenizer, int token) const;
    // A message in which the texts of such tokens stay text: as they are only after encode_prompt().
    std::string as_text(const std::string& said, Tokenizer& tokenizer) const;

   private:
    std::vector<std::string> find_marks() const;
    std::string render(const nlohmann::json& messages, bool asks) const;
};

struct EncodedExample {
    std::vector<uint16_t> tokens;  // without end-of-text at either end
    std::vector<bool> targets;     // those of answers
    size_t question = 0;           // tokens before the first answer
    uint64_t bytes = 0;
};
// Appends the tokens of a prompt whose messages are as_text().
void encode_prompt(std::string_view prompt, Tokenizer& tokenizer, std::vector<uint16_t>& out);
EncodedExample encode_example(const nlohmann::json& messages, const ChatTemplate& chat, Tokenizer& tokenizer);
