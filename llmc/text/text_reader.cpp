#include "llmc/text/text_reader.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/json.h"
#include "llmc/base/lines.h"
#include "llmc/base/os.h"
#include "llmc/base/utf8.h"
#include "llmc/text/chat_example.h"
#include "llmc/text/chat_template.h"
#include "llmc/text/tokenizer_roles.h"

static const size_t most_bytes = 32 << 20;  // encoding one piece of this size takes about a gigabyte

// The last position where splitting the text does not change its tokens; 0 if there is none. GPT-2's rule
// always splits before white space that follows another character, whatever comes later, and no blank line
// spans that position. A text that begins with a space gets no other one before it.
size_t TextReader::safe_cut(std::string_view text) const {
    const AddedTokenMatcher* added = tokenizer ? tokenizer->matcher(options.found()) : nullptr;
    const bool needs_space = tokenizer && tokenizer->add_prefix_space;
    const auto follows_white = [&](size_t i) {
        return text[i - 1] == ' ' || text[i - 1] == '\n' || white.ends(text.substr(0, i));
    };
    for (size_t i = text.size(); i-- > 1;)
        if ((text[i] == ' ' || (text[i] == '\n' && !needs_space)) && !follows_white(i) &&
            !(added && added->touches(text, i)))
            return i;
    if (text.size() < most_bytes || !tokenizer || !tokenizer->is_bytes()) return 0;
    // bytes may be cut between any two characters; a line end may belong to an end-of-text or a blank line
    const bool keeps_line_ends = added || options.split == DocumentSplit::blank_line;
    const size_t whole = std::max(whole_characters(text), text.size() - 3);  // leads alone are no characters
    for (size_t i = whole; i > 0; i = last_character(text.substr(0, i)))
        if (!(keeps_line_ends && (text[i - 1] == '\n' || text[i - 1] == '\r')) &&
            !(added && added->touches(text, i)))
            return i;
    return 0;
}

// In folders, where nobody named the file, the rest of one that is no text is left out.
bool TextReader::leave_out_rest(TextBlock& block, size_t kept, const char* why) {
    if (!options.of_folders.contains(paths[next_file - 1])) return false;
    if (left_out++ == 0)
        first_left_out = printable(format_string("%s %s from byte %llu on", block.path.c_str(), why,
                                                 (unsigned long long)(block.first_byte + kept)));
    block.text.resize(kept);
    rest_left_out = true;
    return true;
}

// --- JSON that is read as text ---

static std::string_view without_blanks(std::string_view text) {
    return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

// Whether a text is an object of JSON, also one that is refused.
static bool is_whole_object(std::string_view text) {
    return without_blanks(text).starts_with('{') && nlohmann::json::accept(text);
}

// The name of a member of text if the first line is JSON that is an object with one; "text" if it is another
// object of a list, or has one; else empty.
static std::string text_member(std::string_view text) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (!text.starts_with('{') || end > most_bytes) return "";
    try {
        const nlohmann::json object = parse_json_object(text.substr(0, end), "");
        for (const auto& [name, value] : object.items())
            if (value.is_string()) return name;
        for (const auto& value : object)
            if (value.is_array() && !value.empty() && value[0].is_object()) return "text";
        return without_blanks(text.substr(end)).starts_with('{') ? "text" : "";
    } catch (const Error&) {
        if (is_whole_object(text.substr(0, end))) throw;
    }
    return "";
}

// Error if the beginning of a file shows that it is an array of JSON objects.
static void refuse_array(std::string_view text, const std::string& path, const char* otherwise) {
    text = without_blanks(text);
    if (text.starts_with('[') && without_blanks(text.substr(1)).starts_with('{'))
        fail(
            "%s is an array of JSON objects: make it JSONL (jq -c %s) and, unless they are questions and "
            "answers, name the field of the text with --field%s",
            path.c_str(), shell_word(".[]").c_str(), otherwise);
}

// Error if the beginning of a file shows that it is JSONL, or an array of objects. A JSON document of several
// lines, such as a configuration, is text.
static void refuse_json(std::string_view text, const std::string& path) {
    const char* otherwise = "; --as-text reads it as plain text";
    refuse_array(text, path, otherwise);
    text = without_blanks(text);
    const std::string member = text_member(text);
    if (!member.empty())
        fail(
            "%s has JSON objects on its lines: name the field that holds the text, as in --field %s%s; "
            "questions and answers have %s",
            path.c_str(), shell_word(member).c_str(), otherwise, chat_fields);
}

bool is_named_jsonl(const std::string& file) {
    const bool compressed = file.ends_with(".gz") || file.ends_with(".zst");
    std::string name = compressed ? file.substr(0, file.rfind('.')) : file;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return tolower(c); });
    return name.ends_with(".jsonl") || name.ends_with(".ndjson");
}

static const size_t bytes_looked_at = 1 << 20;

static std::string beginning_of(const std::string& path) {
    TextFile file(path);
    std::string text(bytes_looked_at, '\0');
    text.resize(file.read(text.data(), text.size()));
    return text;
}

static bool has_empty_list(const nlohmann::json& object) {
    for (const char* name : {"messages", "conversations"})
        if (const auto list = object.find(name); list != object.end() && list->is_array() && list->empty())
            return true;
    return false;
}

// The object on the first line of a file that is not blank or, if that has no messages, or bad lines are left
// out, on the first line with an example, or else with any object; none: it is no JSONL, or a pipe, which can
// be read once.
static std::optional<nlohmann::json> first_object(const std::string& path, bool skip_bad_lines) {
    std::optional<nlohmann::json> first;
    if (is_read_once(path)) return first;
    for (const std::string& line : lines_of(beginning_of(path))) try {
            if (without_blanks(line).empty()) continue;
            nlohmann::json object = parse_json_object(line, "");
            if (is_chat_example(object) || !(skip_bad_lines || has_empty_list(object))) return object;
            if (!first) first = std::move(object);
        } catch (const Error&) {
            if (skip_bad_lines) continue;
            if (is_whole_object(line)) throw;
            break;
        }
    return first;
}

void check_first_line(const std::string& file, bool skip_bad_lines) {
    if (is_read_once(file)) return;
    const std::string text = beginning_of(file);
    const std::string_view begun = without_blanks(text), line = begun.substr(0, begun.find('\n'));
    if (begun.empty()) fail("%s is empty: JSONL has a JSON object on each line", file.c_str());
    refuse_array(begun, file, "");
    if (line.size() == begun.size() && text.size() == bytes_looked_at) return;  // it is longer
    const auto before = text.begin() + std::ptrdiff_t(text.size() - begun.size());
    const std::string where = file + ": line " + std::to_string(1 + std::count(text.begin(), before, '\n'));
    try {
        parse_json_object(line, where);
    } catch (const Error& error) {
        fail("%s; %s", error.what(),
             skip_bad_lines ? "no line at its beginning is one" : "--skip-bad-lines leaves such lines out");
    }
}

bool is_without_examples(const std::string& file) {
    if (is_read_once(file)) return false;
    const auto first = first_object(file, false);
    char any;
    return first ? !is_chat_example(*first) : !is_named_jsonl(file) && TextFile(file).read(&any, 1) > 0;
}

// Takes the options off a source of a mixture that are for other sources.
static void fit_to_source(TextOptions& options, const std::string& path,
                          const std::optional<nlohmann::json>& first) {
    const bool is_jsonl = !options.as_text && (first || is_named_jsonl(path));
    const auto is_missing = [&](const std::string& field) {
        return !is_jsonl || (first && !first->contains(field));
    };
    const bool has_none = std::ranges::all_of(options.field, is_missing);
    const bool is_chat = first && has_none && is_chat_example(*first);
    if (is_jsonl && !is_chat && !has_none)
        std::ranges::copy_if(options.field, std::back_inserter(options.unread), is_missing);
    if (!is_jsonl || is_chat || !has_none) std::erase_if(options.field, is_missing);
    if (!is_jsonl) options.skip_bad_lines = false;
    if (!is_chat) options.chat_template = "", options.loss_on_questions = false;
    if (is_chat) options.split = DocumentSplit::automatic;
}

void find_examples(TextOptions& options, const std::vector<std::string>& files) {
    if (options.as_text && !options.field.empty())
        fail("--as-text reads JSONL as plain text, and --field %s reads a field of it: leave one out",
             options.field[0].c_str());
    for (const std::string& field : options.field)
        if (std::ranges::count(options.field, field) > 1)
            fail("--field %s is given twice: leave it out once", field.c_str());
    options.is_chat = false;
    const bool may_be =
        !files.empty() && !options.as_text && (options.field.empty() || options.is_of_mixture);
    const auto first = may_be ? first_object(files[0], options.skip_bad_lines) : std::nullopt;
    if (options.is_of_mixture) fit_to_source(options, files[0], first);
    options.is_chat = first && options.field.empty() && is_chat_example(*first);
    if (options.is_chat && options.split != DocumentSplit::automatic)
        fail("--split-documents is for plain text and --field: in %s, each line is a document",
             files[0].c_str());
    const char* given = !options.chat_template.empty() ? "--template"
                        : options.loss_on_questions    ? "--loss-on-questions"
                                                       : nullptr;
    if (!options.is_chat && given)
        fail("%s is for JSONL of questions and answers, and %s is none: their objects have %s", given,
             files.empty() ? "the text" : files[0].c_str(), chat_fields);
    if (options.is_chat && is_read_once(options.chat_template))
        fail("--template %s can be read once, and is read several times: save it in a file",
             options.chat_template.c_str());
}

void take_template(const TextOptions& options, Tokenizer& tokenizer) {
    if (!options.is_chat) return;
    std::string found =
        options.own_template.empty() ? chat_template_of(tokenizer.roles) : options.own_template;
    if (!options.chat_template.empty()) {
        found = read_chat_template(options.chat_template);
        tokenizer.template_name = "--template " + options.chat_template;
    } else if (found.empty()) {
        found = builtin_chat_template();
    }
    tokenizer.roles = with_chat_template(tokenizer.roles, found);
    const ChatTemplate check(tokenizer);
}

TextReader::TextReader(const std::vector<std::string>& files, const TextOptions& text_options)
    : paths(files), options(text_options) {
    bool known = true;
    for (const std::string& path : paths) {
        const bool once = is_read_once(path);
        if (!once) TextFile check(path);
        known = known && !once;
        if (known) total_bytes += size_of(open_to_read(path), path);
    }
    if (!known) total_bytes = 0;
}

// Reads until there is a safe cut or the file ends. False: the file ended and no text is left.
bool TextReader::fill(TextBlock& block) {
    std::string& text = block.text;
    text = std::exchange(rest, "");
    const bool is_json = options.is_jsonl();
    for (size_t wanted = std::max(block_bytes, text.size());;
         wanted = std::min(2 * text.size() + block_bytes, most_bytes)) {
        const size_t kept = text.size();
        text.resize(std::max(wanted, kept));
        const size_t count = file->read(&text[kept], text.size() - kept);
        const bool ended = kept + count < text.size();
        text.resize(kept + count);
        bytes_read = bytes_before + file->bytes_read;
        if (const size_t zeros = find_zeros(text); zeros != text.npos) {
            const size_t whole = is_json ? text.substr(0, zeros).rfind('\n') + 1 : zeros;
            if (leave_out_rest(block, whole, "is not text, but zeros,")) return whole > 0;
        }
        if (text.empty()) return false;
        if (ended) return true;
        const size_t cut = is_json ? text.rfind('\n') + 1 : safe_cut(text);
        if (cut == 0 && text.size() >= most_bytes && leave_out_rest(block, 0, "is not text")) return false;
        if (cut == 0 && text.size() >= most_bytes)
            fail("%s has %zu bytes without %s", block.path.c_str(), text.size(),
                 is_json ? "a newline: is it JSONL, an object on each line?"
                 : tokenizer && tokenizer->is_bytes()
                     ? "anything but line ends and marks of end-of-text: is it text?"
                     : "a space after a letter: is it text? --tokenizer bytes makes a model that needs none");
        if (cut == 0) continue;
        rest = text.substr(cut);
        text.resize(cut);
        return true;
    }
}

void TextReader::close_file() {
    bytes_before += file->bytes_read;
    file.reset();
}

bool TextReader::next(TextBlock& block) {
    for (;;) {
        if (std::exchange(rest_left_out, false)) close_file();
        if (!file) {
            if (next_file == paths.size()) return false;
            file = std::make_unique<TextFile>(paths[next_file++]);
            at_start = true;
            next_line = 1;
        }
        block.path = file->path;
        block.first_byte = file->position - rest.size();
        if (fill(block)) break;
        rest_left_out = false;
        close_file();
    }
    if (at_start && options.is_jsonl())
        refuse_array(block.text, block.path, "");
    else if (at_start && !options.as_text)
        refuse_json(block.text, block.path);
    block.begins_file = at_start;
    block.first_line = next_line;
    at_start = false;
    if (options.is_jsonl()) next_line += uint64_t(std::count(block.text.begin(), block.text.end(), '\n'));
    return true;
}

// Position after the first blank line, the second of two line ends; npos: there is none.
static size_t after_blank_line(std::string_view text) {
    for (size_t i = text.find('\n'); i < text.size(); i = text.find('\n', i + 1)) {
        const size_t next = i + 1 < text.size() && text[i + 1] == '\r' ? i + 2 : i + 1;
        if (next < text.size() && text[next] == '\n') return next + 1;
    }
    return std::string_view::npos;
}

// Counts the added tokens in a text that are not found, as ordinary text.
static void count_marks(std::string_view text, const TextOptions& options, Tokenizer& tokenizer,
                        EncodedBlock& to) {
    if (options.special_tokens) return;
    for (const TextPart& part : tokenizer.matcher(AddedTokens::all)->split(text)) {
        if (part.token < 0) continue;
        if (options.found() == AddedTokens::separator && part.token == tokenizer.end_of_text) continue;
        if (to.unused_marks++ == 0) to.first_mark = part.token;
    }
}

static void encode_text(std::string_view text, const TextOptions& options, Tokenizer& tokenizer,
                        EncodedBlock& to) {
    to.text_bytes += text.size();
    count_marks(text, options, tokenizer, to);
    while (options.split == DocumentSplit::blank_line) {
        const size_t end = after_blank_line(text);
        if (end == std::string_view::npos) break;
        tokenizer.encode(text.substr(0, end), to.tokens, options.found());
        to.tokens.push_back(uint16_t(tokenizer.end_of_text));
        text.remove_prefix(end);
    }
    tokenizer.encode(text, to.tokens, options.found());
}

// The text of a document on a line of JSONL: the fields, with a line end between them. Error if one is
// missing.
static std::string text_of_line(std::string_view line, const TextOptions& options, const std::string& where,
                                std::set<std::string>& unread_fields) {
    nlohmann::json object = parse_json_object(line, where);
    std::string all;
    for (const std::string& field : options.unread)
        if (object.contains(field) && object[field].is_string())
            fail(
                "%s has a text in the field '%s', which the source's first line has not: give lines of one "
                "kind a file of their own",
                where.c_str(), field.c_str());
    for (const std::string& field : options.field) {
        const auto text = object.find(field);
        if (text == object.end() || !text->is_string())
            fail("%s has no string in a field '%s': name the right field with --field", where.c_str(),
                 field.c_str());
        all += (&field == &options.field[0] ? "" : "\n") + text->get_ref<std::string&>();
    }
    for (const auto& [name, value] : object.items())
        if (!is_empty(value) && !std::ranges::count(options.field, name)) unread_fields.insert(name);
    return all;
}

// The example on a line. Error if there is none, or if it has texts of tokens with which it could end an
// answer or begin another one.
static void encode_chat(std::string_view line, const std::string& where, const TextOptions& options,
                        const ChatTemplate& chat, Tokenizer& tokenizer, EncodedBlock& to) {
    const ChatExample read = read_chat_example(parse_json_object(line, where), where);
    const nlohmann::json& messages = read.messages;
    for (const nlohmann::json& message : messages)
        for (const TextPart& part :
             tokenizer.matcher(AddedTokens::all)->split(message["content"].get_ref<const std::string&>()))
            if (part.token >= 0 && !options.special_tokens && chat.is_mark(tokenizer, part.token))
                fail("%s has the text %s, which is a token: --special-tokens takes it as one", where.c_str(),
                     printable(std::string(part.text)).c_str());
    EncodedExample example;
    try {
        example = encode_example(messages, chat, tokenizer);
    } catch (const Error& error) {
        fail("%s: %s", where.c_str(), error.what());
    }
    if (const std::string mark = chat.mark_in(messages); !mark.empty() && to.with_marks++ == 0)
        to.first_with_mark = format_string("%s, in %s", printable(mark).c_str(), where.c_str());
    if (options.loss_on_questions) example.targets.assign(example.targets.size(), true);
    to.text_bytes += example.bytes;
    to.unanswered += read.is_unanswered;
    to.unread_fields.insert(read.unread_fields.begin(), read.unread_fields.end());
    to.examples.push_back(std::move(example));
}

static void encode_lines(const TextBlock& block, const TextOptions& options, Tokenizer& tokenizer,
                         EncodedBlock& to) {
    uint64_t number = block.first_line;
    const std::string_view all = block.text;
    std::optional<ChatTemplate> chat;
    if (options.is_chat) chat.emplace(tokenizer);
    const auto has_objects = [&] {  // else it is text
        return without_blanks(all).starts_with('{') || all.find("\n{") != all.npos;
    };
    for (size_t start = 0, end; start < all.size(); start = end + 1, number++) {
        end = std::min(all.find('\n', start), all.size());
        const std::string_view line = all.substr(start, end - start);
        if (line.find_first_not_of(" \t\r") == line.npos) continue;
        const std::string where = block.path + ": line " + std::to_string(number);
        std::string text;
        try {
            if (number == 1 && !without_blanks(line).starts_with('{'))
                fail(
                    "%s is not a JSON object: plain text is read alone (--include chooses files of a "
                    "folder), or mixed with JSONL by weights, as in %s --text a.txt:0.5 --text b.jsonl:0.5",
                    where.c_str(), command_of("train_gpt2").c_str());
            if (chat)
                encode_chat(line, where, options, *chat, tokenizer, to);
            else
                text = text_of_line(line, options, where, to.unread_fields);
        } catch (const Error& error) {
            if (!options.skip_bad_lines)
                fail("%s%s", error.what(), has_objects() ? "; --skip-bad-lines leaves such lines out" : "");
            if (to.skipped_lines++ == 0) to.first_skipped = error.what();
            continue;
        }
        if (chat) continue;
        if (to.tokens.empty())
            to.begins_document = true;
        else if (to.tokens.back() != tokenizer.end_of_text)
            to.tokens.push_back(uint16_t(tokenizer.end_of_text));
        encode_text(text, options, tokenizer, to);
    }
}

EncodedBlock encode_block(const TextBlock& block, const TextOptions& options, Tokenizer& tokenizer) {
    EncodedBlock encoded;
    encoded.begins_document = block.begins_file && !options.is_jsonl();
    if (!options.is_jsonl()) {
        encode_text(block.text, options, tokenizer, encoded);
        encoded.not_utf8 = find_not_utf8(block.text);
    } else
        encode_lines(block, options, tokenizer, encoded);
    const auto is_repeated_end = [&](uint16_t a, uint16_t b) { return a == b && a == tokenizer.end_of_text; };
    encoded.tokens.erase(std::unique(encoded.tokens.begin(), encoded.tokens.end(), is_repeated_end),
                         encoded.tokens.end());
    return encoded;
}

size_t longest_example(const TextOptions& options, const std::vector<std::string>& files,
                       Tokenizer& tokenizer) {
    size_t longest = 0;
    for (const std::string& file : files) {
        TextBlock first;
        TextReader({file}, options).next(first);
        for (const EncodedExample& example : encode_block(first, options, tokenizer).examples)
            longest = std::max(longest, 1 + example.tokens.size());
    }
    return longest;
}
