#include "llmc/text/added_tokens.h"

#include <algorithm>

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& added,
                                     const std::vector<std::string>& tokens)
    : white(std::string("[") + white_space + "]"),
      word(
          "[\\p{L}\\p{Nl}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"
          "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}]") {
    for (const AddedToken& token : added) {
        Group& group = token.normalized ? normalized : raw;
        const std::string& text = tokens[token.id];
        group.entries[text] = token;
        group.begins[uint8_t(text[0])] = true;
        longest = std::max(longest, text.size());
    }
}

// The longest token that the text begins with; null: none. It is the last token up to the text, in order, if
// the text begins with that; otherwise the text begins with no more than what the two have in common.
const AddedTokenMatcher::Entry* AddedTokenMatcher::Group::longest_at(std::string_view text) const {
    for (auto entry = entries.upper_bound(text); entry != entries.begin();
         entry = entries.upper_bound(text)) {
        const std::string& token = (--entry)->first;
        if (text.starts_with(token)) return &*entry;
        const auto [end, other] = std::mismatch(text.begin(), text.end(), token.begin(), token.end());
        text = text.substr(0, size_t(end - text.begin()));
    }
    return nullptr;
}

// The length of a line end, LF or CRLF, that ends or begins the text; 0: there is none.
static size_t line_end_before(std::string_view text) {
    return text.ends_with("\r\n") ? 2 : text.ends_with('\n') ? 1 : 0;
}
static size_t line_end_after(std::string_view text) {
    return text.starts_with("\r\n") ? 2 : text.starts_with('\n') ? 1 : 0;
}

// Appends the text's parts. A token found and rejected hides the tokens that begin within it.
void AddedTokenMatcher::split_with(const Group& group, std::string_view text,
                                   std::vector<TextPart>& parts) const {
    size_t done = 0;
    for (size_t at = 0; at < text.size(); at++) {
        if (!group.begins[uint8_t(text[at])]) continue;
        const Entry* found = group.longest_at(text.substr(at));
        if (!found) continue;
        const AddedToken& token = found->second;
        size_t start = at, end = at + found->first.size();
        at = end - 1;
        if (token.single_word && (word.ends(text.substr(0, start)) || word.begins(text.substr(end))))
            continue;
        while (token.lstrip && start > done && white.ends(text.substr(0, start)))
            start = last_character(text.substr(0, start));
        if (token.line_ends) {
            start -= line_end_before(text.substr(done, start - done));
            end += line_end_after(text.substr(end));
        }
        if (token.lstrip) start = std::max(done, start);
        while (token.rstrip && white.begins(text.substr(end))) end += character_length(uint8_t(text[end]));
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
            for (const auto& [token, flags] : group->entries) {
                const std::string_view rest = text.substr(at, token.size());
                if (token.starts_with(rest) && at + token.size() >= position) return true;
            }
    return false;
}
