#include "llmc/text/chat_template.h"

#include <algorithm>
#include <regex>

#include "llmc/base/error.h"
#include "llmc/base/lines.h"
#include "llmc/base/utf8.h"
#include "llmc/text/chat_example.h"
#include "llmc/text/jinja.h"
#include "llmc/text/jinja_functions.h"
#include "llmc/text/text_file.h"
#include "llmc/text/tokenizer_roles.h"

using nlohmann::json;

// --- templates from examples ---

// As a literal of Jinja.
static std::string jinja_literal(std::string_view text) {
    std::string literal = "'";
    for (const char c : text)
        if (c == '\n')
            literal += "\\n";
        else
            literal += (c == '\'' || c == '\\') ? std::string("\\") + c : std::string(1, c);
    return literal + "'";
}

static std::string without_spaces_at_end(std::string text) {
    text.resize(text.find_last_not_of(' ') + 1);
    return text;
}

// What is between two messages is divided behind its last blank line, else behind its last line.
static std::pair<std::string, std::string> divide(const std::string& between) {
    size_t at = between.rfind("\n\n");
    at = at != between.npos ? at + 2 : between.rfind('\n') + 1;
    return {between.substr(0, at), between.substr(at)};
}

// The Jinja of a text with {user}, {assistant} and possibly {system}; empty if it is none.
static std::string jinja_of_example(const std::string& text) {
    const std::string user = "{user}", assistant = "{assistant}", system = "{system}";
    const size_t of_system = text.find(system), of_user = text.find(user), of_answer = text.find(assistant);
    if (of_user == text.npos || of_answer == text.npos || of_answer < of_user) return "";
    if (of_system != text.npos && of_system > of_user) return "";
    for (const std::string& place : {system, user, assistant})
        if (text.find(place) != text.rfind(place)) return "";
    std::string before_system, after_system, before_user = text.substr(0, of_user);
    if (of_system != text.npos) {
        before_system = text.substr(0, of_system);
        const size_t end = of_system + system.size();
        std::tie(after_system, before_user) = divide(text.substr(end, of_user - end));
    }
    const size_t end = of_user + user.size();
    const auto [after_user, before_answer] = divide(text.substr(end, of_answer - end));
    std::string after_answer = text.substr(of_answer + assistant.size());
    if (after_answer.ends_with('\n')) after_answer.pop_back();
    const auto around = [](const std::string& before, const std::string& after) {
        return (before.empty() ? "" : jinja_literal(before) + " + ") + "message['content'] | trim" +
               (after.empty() ? "" : " + " + jinja_literal(after));
    };
    const std::string for_system = of_system != text.npos
                                       ? around(before_system, after_system)
                                       : "raise_exception('the template has no place for a system message')";
    return "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{ " +
           for_system + " }}{% elif message['role'] == 'user' %}{{ " + around(before_user, after_user) +
           " }}{% else %}{{ " + around(before_answer, after_answer) +
           " + eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ " +
           jinja_literal(without_spaces_at_end(before_answer)) + " }}{% endif %}";
}

std::string builtin_chat_template() {
    return jinja_of_example("{system}\n\n### Question\n{user}\n\n### Answer\n{assistant}");
}

// As Jinja reads a template.
static std::string with_plain_line_ends(std::string text) {
    for (size_t end = 0; (end = text.find("\r\n", end)) != text.npos;) text.erase(end, 1);
    return text;
}

std::string read_chat_template(const std::string& path) {
    const std::string text = with_plain_line_ends(read_text_file(path, 1 << 20));
    if (find_not_utf8(text) != text.npos) fail("--template %s is not UTF-8", path.c_str());
    if (text.find("{{") != text.npos || text.find("{%") != text.npos) return text;
    static const std::regex place("\\{(?!(user|assistant|system)\\})[A-Za-z_][A-Za-z_ ]{0,31}\\}");
    std::smatch other;
    const std::string jinja = std::regex_search(text, other, place) ? "" : jinja_of_example(text);
    if (jinja.empty())
        fail(
            "--template %s: %sa template has {user}, then {assistant}, and may begin with {system}, once "
            "each, where the texts are; or it is Jinja",
            path.c_str(), other.empty() ? "" : (other.str() + " is no place for a text: ").c_str());
    return jinja;
}

// --- text and tokens ---

ChatTemplate::ChatTemplate(const Tokenizer& tokenizer)
    : source(with_plain_line_ends(chat_template_of(tokenizer.roles))),
      end_of_text(tokenizer.tokens[size_t(tokenizer.end_of_text)]),
      name(tokenizer.template_name.empty() ? "the chat template of " + tokenizer.name
                                           : tokenizer.template_name) {
    if (source.empty()) source = builtin_chat_template();
    json config = json::object();
    if (!tokenizer.roles.empty())
        config = parse_json_object(tokenizer.roles, "the tokenizer's roles").value("config", config);
    const auto text_of = [&](const char* role) {  // null: it has none, and templates write nothing
        const json text = config.value(role, json(end_of_text));
        return text.is_string() ? text.get<std::string>() : "";
    };
    bos = text_of("bos_token");
    eos = text_of("eos_token");
    stop();
    marks = find_marks();
}

std::string ChatTemplate::render(const json& messages, bool asks) const {
    try {
        return render_jinja(source, {{"messages", messages},
                                     {"add_generation_prompt", asks},
                                     {"bos_token", bos},
                                     {"eos_token", eos}});
    } catch (const FileError&) {
        throw;
    } catch (const Error& error) {
        fail("%s: %s; name a simple one with --template", printable(name).c_str(), error.what());
    }
}

std::string ChatTemplate::prompt(const json& messages) const {
    return without_spaces_at_end(render(messages, true));
}

std::vector<ChatPart> ChatTemplate::parts(const json& messages) const {
    std::vector<ChatPart> parts;
    std::string done;
    json before = json::array();
    for (const json& m : messages) {
        const bool is_answer = m["role"] == "assistant";
        const std::string asked = is_answer ? prompt(before) : "";
        before.push_back(m);
        if (!is_answer) continue;
        const std::string all = render(before, false);
        if (!asked.starts_with(done) || !all.starts_with(asked))
            fail(
                "%s does not begin the text of a conversation as that of its first messages; name another "
                "with --template",
                printable(name).c_str());
        parts.push_back({asked.substr(done.size()), false});
        parts.push_back({all.substr(asked.size()), true});
        done = all;
    }
    return parts;
}

std::string ChatTemplate::stop() const {
    const std::string answer = "An answer.";
    const std::string text =
        parts({chat_message("user", "A question?"), chat_message("assistant", answer)}).back().text;
    const size_t at = text.find(answer);
    if (at == text.npos) fail("%s leaves out the answer", printable(name).c_str());
    std::string after = trimmed(text.substr(at + answer.size()));
    if (after.ends_with(end_of_text)) after.resize(after.size() - end_of_text.size());
    return trimmed(after);
}

// --- marks in messages ---

static void replace_all(std::string& text, const std::string& part, const std::string& by) {
    for (size_t at = 0; !part.empty() && (at = text.find(part, at)) != text.npos; at += by.size())
        text.replace(at, part.size(), by);
}

std::vector<std::string> ChatTemplate::find_marks() const {
    static const std::regex in_brackets(
        R"(<[^<>\s]{1,100}>|\[[^\[\]\s]{1,100}\])");  // as tokens of other tokenizers
    const std::string said = "A text.";
    json messages = {chat_message("user", said), chat_message("assistant", said)};
    std::string text = render(messages, false);
    try {
        messages.push_back(chat_message("user", said));
        text = render(messages, false);
    } catch (const Error&) {  // it is for one question
    }
    const size_t first = text.find(said), last = text.rfind(said);
    if (first == last) return {};
    text = text.substr(first + said.size(), last - first - said.size());
    for (const std::string& token : {eos, bos, end_of_text}) replace_all(text, token, "\n");
    replace_all(text, said, "\r\n");  // the mark behind it need not begin a line
    std::vector<std::string> found;
    bool begins_line = false;
    for (const std::string& line : lines_of(text)) {
        const std::string mark = trimmed(line);
        const std::sregex_iterator first_token(line.begin(), line.end(), in_brackets), end;
        for (auto token = first_token; token != end; ++token) found.push_back(token->str());
        if (first_token == end && mark.size() > 1) found.push_back((begins_line ? "\n" : "") + mark);
        begins_line = !line.ends_with('\r');
    }
    return found;
}

std::string ChatTemplate::mark_in(const json& messages) const {
    for (const json& m : messages) {
        const std::string text = "\n" + m["content"].get_ref<const std::string&>();
        for (const std::string& mark : marks)
            if (text.find(mark) != text.npos) return trimmed(mark);
    }
    return "";
}

bool ChatTemplate::is_mark(const Tokenizer& tokenizer, int token) const {
    const std::string& text = tokenizer.decode(token);
    return tokenizer.is_special(token) || (!trimmed(text).empty() && source.find(text) != source.npos);
}

// Two of the characters U+FDD0 to U+FDDF, which no text has, hide a byte that is not to become part of a
// token. Each is three bytes long. -1: the text does not begin with such a character, or two of them.
static int hidden_half(std::string_view text) {
    return text.size() > 2 && text.starts_with("\xef\xb7") && (text[2] & 0xf0) == 0x90 ? text[2] & 15 : -1;
}
static int hidden_byte(std::string_view text) {
    const int high = hidden_half(text), low = high < 0 ? -1 : hidden_half(text.substr(3));
    return low < 0 ? -1 : high << 4 | low;
}

std::string ChatTemplate::as_text(const std::string& said, Tokenizer& tokenizer) const {
    std::string text;
    for (const TextPart& part : tokenizer.matcher(AddedTokens::all)->split(said)) {
        const bool hides = part.token >= 0 && is_mark(tokenizer, part.token);
        for (size_t i = 0, hidden = 0; i < part.text.size(); i++) {
            if (hidden_half(part.text.substr(i)) >= 0) hidden = 3;
            const auto byte = uint8_t(part.text[i]);
            if (hides || hidden > 0)
                for (const int half : {byte >> 4, byte & 15}) text += {'\xef', '\xb7', char(0x90 | half)};
            else
                text += part.text[i];
            hidden -= hidden > 0;
        }
    }
    return text;
}

void encode_prompt(std::string_view prompt, Tokenizer& tokenizer, std::vector<uint16_t>& out) {
    for (const TextPart& part : tokenizer.matcher(AddedTokens::all)->split(prompt)) {
        if (part.token >= 0) {
            out.push_back(uint16_t(part.token));
            continue;
        }
        std::string text;
        for (size_t i = 0; i < part.text.size();) {
            const int hidden = hidden_byte(part.text.substr(i));
            text += hidden < 0 ? part.text[i] : char(hidden);
            i += hidden < 0 ? 1 : 6;
        }
        tokenizer.encode(text, out);
    }
}

// Tokens of the parts, encoded together, as other programs do it; a token that begins in a question and ends
// in an answer counts as the answer's. None if the tokenizer changes white space.
static bool encode_together(const std::vector<ChatPart>& parts, Tokenizer& tokenizer, EncodedExample& to) {
    std::string text;
    std::vector<size_t> ends;
    for (const ChatPart& part : parts) ends.push_back((text += part.text).size());
    tokenizer.encode(text, to.tokens, AddedTokens::all);
    if (tokenizer.on_word) return true;
    size_t at = 0, part = 0;
    for (const uint16_t token : to.tokens) {
        at += tokenizer.decode(token).size();
        while (part + 1 < parts.size() && at > ends[part]) part++;
        to.targets.push_back(parts[part].is_answer);
    }
    return at == text.size();
}

EncodedExample encode_example(const json& messages, const ChatTemplate& chat, Tokenizer& tokenizer) {
    const std::vector<ChatPart> parts = chat.parts(messages);
    EncodedExample e;
    if (!encode_together(parts, tokenizer, e)) {
        e = {};
        for (const ChatPart& part : parts) {
            tokenizer.encode(part.text, e.tokens, AddedTokens::all);
            e.targets.resize(e.tokens.size(), part.is_answer);
        }
    }
    for (const json& m : messages) e.bytes += m["content"].get_ref<const std::string&>().size();
    // which packing puts between examples
    while (!e.tokens.empty() && e.tokens.back() == tokenizer.end_of_text)
        e.tokens.pop_back(), e.targets.pop_back();
    if (!e.tokens.empty() && e.tokens[0] == tokenizer.end_of_text) {
        e.tokens.erase(e.tokens.begin());
        e.targets.erase(e.targets.begin());
    }
    e.question = size_t(std::find(e.targets.begin(), e.targets.end(), true) - e.targets.begin());
    return e;
}
