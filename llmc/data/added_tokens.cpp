// Finding added tokens in a text: see added_tokens.h.
#include "llmc/data/added_tokens.h"

#include <pcre2.h>

#include <algorithm>
#include <cstdint>

#include "llmc/base/error.h"

// --- characters ---

// Length of Unicode's white space that the text begins with; 0: another character.
static size_t white_space_at(std::string_view text) {
    const auto byte = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : uint8_t(0); };
    if (byte(0) == ' ' || (byte(0) >= '\t' && byte(0) <= '\r')) return 1;
    if (byte(0) == 0xc2) return byte(1) == 0x85 || byte(1) == 0xa0 ? 2 : 0;  // U+0085, U+00A0
    const int last = byte(2);
    const bool is_white =
        (byte(0) == 0xe1 && byte(1) == 0x9a && last == 0x80) ||  // U+1680
        (byte(0) == 0xe2 && byte(1) == 0x80 &&                   // U+2000 to U+200A, U+2028, U+2029, U+202F
         ((last >= 0x80 && last <= 0x8a) || last == 0xa8 || last == 0xa9 || last == 0xaf)) ||
        (byte(0) == 0xe2 && byte(1) == 0x81 && last == 0x9f) ||  // U+205F
        (byte(0) == 0xe3 && byte(1) == 0x80 && last == 0x80);    // U+3000
    return is_white ? 3 : 0;
}

// Where the last character of the text begins.
static size_t last_character(std::string_view text) {
    size_t start = text.size() - 1;
    while (start > 0 && text.size() - start < 4 && (text[start] & 0xc0) == 0x80) start--;
    return start;
}

// Where the white space at the end of the text begins.
static size_t trailing_white_space(std::string_view text) {
    while (!text.empty()) {
        const size_t start = last_character(text);
        if (white_space_at(text.substr(start)) != text.size() - start) break;
        text = text.substr(0, start);
    }
    return text.size();
}

static size_t leading_white_space(std::string_view text) {
    size_t end = 0;
    while (const size_t length = white_space_at(text.substr(end))) end += length;
    return end;
}

// Recognizes the characters of words: Unicode's letters, marks, digits and connectors, such as the
// underscore.
struct WordCharacter {
    pcre2_code* code;
    pcre2_match_data* match;

    WordCharacter() {
        const std::string_view pattern =
            "[\\p{L}\\p{Nl}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"
            "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}]";
        int error = 0;
        size_t where = 0;
        code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &where, nullptr);
        match = code ? pcre2_match_data_create(1, nullptr) : nullptr;
        if (!match)
            fail("PCRE2 rejects the pattern of words (error %d): it was built without Unicode", error);
    }
    ~WordCharacter() {
        pcre2_match_data_free(match);
        pcre2_code_free(code);
    }
    WordCharacter(const WordCharacter&) = delete;
    WordCharacter& operator=(const WordCharacter&) = delete;

    bool begins(std::string_view text) const {
        if (text.empty()) return false;
        const uint8_t first = uint8_t(text[0]);
        const size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
        const std::string_view character = text.substr(0, length);
        return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(character.data()), character.size(), 0, 0,
                           match, nullptr) > 0;
    }
};

// --- matching ---

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& added,
                                     const std::vector<std::string>& tokens) {
    for (const AddedToken& token : added) {
        Group& group = token.normalized ? normalized : raw;
        const std::string& text = tokens[token.id];
        group.entries.push_back({text, token});
        group.begins[uint8_t(text[0])] = true;
        longest = std::max(longest, text.size());
        if (token.single_word && !word) word = std::make_unique<WordCharacter>();
    }
    for (Group* group : {&raw, &normalized})
        std::sort(group->entries.begin(), group->entries.end(),
                  [](const Entry& a, const Entry& b) { return a.text < b.text; });
}

AddedTokenMatcher::~AddedTokenMatcher() = default;
AddedTokenMatcher::AddedTokenMatcher(AddedTokenMatcher&&) noexcept = default;

// The longest token that the text begins with; null: none. Narrows the range of entries byte by byte.
const AddedTokenMatcher::Entry* AddedTokenMatcher::Group::longest_at(std::string_view text) const {
    const Entry* found = nullptr;
    auto first = entries.begin(), last = entries.end();
    for (size_t depth = 0; depth < text.size() && first != last; depth++) {
        const uint8_t byte = uint8_t(text[depth]);
        const auto byte_of = [depth](const Entry& entry) { return uint8_t(entry.text[depth]); };
        first = std::partition_point(first, last, [&](const Entry& e) { return byte_of(e) < byte; });
        last = std::partition_point(first, last, [&](const Entry& e) { return byte_of(e) == byte; });
        if (first != last && first->text.size() == depth + 1) found = &*first++;
    }
    return found;
}

bool AddedTokenMatcher::is_single_word(std::string_view text, size_t start, size_t end) const {
    const std::string_view before = text.substr(0, start);
    const bool follows_word = start > 0 && word->begins(before.substr(last_character(before)));
    return !follows_word && !word->begins(text.substr(end));
}

// Appends the text's parts. A token found and rejected hides the tokens that begin within it.
void AddedTokenMatcher::split_with(const Group& group, std::string_view text,
                                   std::vector<TextPart>& parts) const {
    size_t done = 0;
    for (size_t at = 0; at < text.size(); at++) {
        if (!group.begins[uint8_t(text[at])]) continue;
        const Entry* found = group.longest_at(text.substr(at));
        if (!found) continue;
        size_t start = at, end = at + found->text.size();
        at = end - 1;
        const AddedToken& token = found->token;
        if (token.single_word && !is_single_word(text, start, end)) continue;
        if (token.lstrip) start = std::max(done, trailing_white_space(text.substr(0, start)));
        if (token.rstrip) end += leading_white_space(text.substr(end));
        if (start >= end) continue;  // white space that the last token took
        if (done < start) parts.push_back({text.substr(done, start - done)});
        parts.push_back({text.substr(start, end - start), token.id});
        done = end;
    }
    if (done < text.size()) parts.push_back({text.substr(done)});
}

std::vector<TextPart> AddedTokenMatcher::split(std::string_view text) const {
    std::vector<TextPart> first, parts;
    split_with(raw, text, first);
    if (normalized.entries.empty()) return first;
    for (const TextPart& part : first)
        if (part.token >= 0)
            parts.push_back(part);
        else
            split_with(normalized, part.text, parts);
    return parts;
}

// A token that the text's end cuts off may continue, so it counts.
bool AddedTokenMatcher::touches(std::string_view text, size_t position) const {
    for (size_t at = position - std::min(position, longest); at < position; at++)
        for (const Group* group : {&raw, &normalized})
            for (const Entry& entry : group->entries) {
                const std::string_view rest = text.substr(at, entry.text.size());
                if (entry.text.starts_with(rest) && at + entry.text.size() >= position) return true;
            }
    return false;
}

size_t AddedTokenMatcher::count(std::string_view text) const {
    size_t tokens = 0;
    for (const TextPart& part : split(text)) tokens += part.token >= 0;
    return tokens;
}
