#include "llmc/data/added_tokens.h"

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
        group.entries.push_back({text, token});
        group.begins[uint8_t(text[0])] = true;
        longest = std::max(longest, text.size());
    }
    for (Group* group : {&raw, &normalized})
        std::sort(group->entries.begin(), group->entries.end(),
                  [](const Entry& a, const Entry& b) { return a.text < b.text; });
}

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
        if (token.single_word && (word.ends(text.substr(0, start)) || word.begins(text.substr(end))))
            continue;
        while (token.lstrip && start > done && white.ends(text.substr(0, start)))
            start = last_character(text.substr(0, start));
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
            for (const Entry& entry : group->entries) {
                const std::string_view rest = text.substr(at, entry.text.size());
                if (entry.text.starts_with(rest) && at + entry.text.size() >= position) return true;
            }
    return false;
}
