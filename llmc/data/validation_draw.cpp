#include "llmc/data/validation_draw.h"

#include <algorithm>

#include "llmc/base/checksum.h"

static const std::string_view white = " \t\r\n";

ValidationDraw::ValidationDraw(const Tokenizer& tokenizer, const DrawOptions& how, Take take_tokens)
    : options(how),
      take(std::move(take_tokens)),
      end_of_text(uint16_t(tokenizer.end_of_text)),
      random(how.seed) {
    threshold = random.uniform_double();
    for (const std::string& text : tokenizer.tokens)
        texts.push_back({.ends_line = text.ends_with('\n'),
                         .begins_white = white.find(text[0]) != white.npos,
                         .is_white = text.find_first_not_of(white) == text.npos,
                         .begins_character = (uint8_t(text[0]) & 0xC0) != 0x80});
}

void ValidationDraw::add(std::span<const uint16_t> tokens) {
    for (const uint16_t token : tokens) {
        if (token == end_of_text) take_part(document.size());
        document.push_back(token);
        if (document.size() > 4 * block_tokens()) take_part(block_end());
    }
}

size_t ValidationDraw::block_tokens() const {
    if (options.block_tokens > 0) return options.block_tokens;
    const double tokens = options.text_tokens > 0 ? options.text_tokens : double(seen) / 4;
    return size_t(std::clamp(options.fraction * tokens / 16, 64.0, 8192.0));
}

// Where the first block of a long document ends: after a line, else before white space, else between two
// characters; as late as possible.
size_t ValidationDraw::block_end() const {
    const size_t most = block_tokens();
    size_t best = most;
    int best_rank = 0;
    for (size_t i = most; i > most / 2; i--) {
        const TokenText &before = texts[document[i - 1]], &after = texts[document[i]];
        const int rank = before.ends_line ? 3 : after.begins_white ? 2 : after.begins_character ? 1 : 0;
        if (rank > best_rank) best = i;
        best_rank = std::max(best_rank, rank);
    }
    return best;
}

// A number that tells parts apart, whatever white space ends them. 0: there is no text.
uint64_t ValidationDraw::content_of(std::span<const uint16_t> part) const {
    if (!part.empty() && part[0] == end_of_text) part = part.subspan(1);
    while (!part.empty() && texts[part.back()].is_white) part = part.first(part.size() - 1);
    if (part.empty()) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(part.data()), part.size_bytes());
    return std::stoull(checksum_of(bytes), nullptr, 16) | 1;
}

// Whether a part may be drawn depends on its content alone, so only a few contents need to be remembered: no
// more than eight times as many as are drawn.
static bool may_be_drawn(uint64_t content, const DrawOptions& options) {
    const uint64_t mixed = (content ^ (options.seed * 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9;
    return double(mixed >> 11) * 0x1p-53 < 8 * options.fraction;
}

// A part is drawn when enough tokens are owed, whatever its own length, so that long and short ones have the
// same chance. One that is far shorter than the average, such as "* * *" between chapters, is not drawn:
// its repeats would be missing in training.
ValidationDraw::Side ValidationDraw::choose(std::span<const uint16_t> part) {
    const uint64_t content = content_of(part);
    if (content == 0) return Side::training;
    const double average = parts ? double(seen) / double(parts) : 0;
    const double length = double(part.size());
    parts++;
    seen += part.size();
    const bool may_be = may_be_drawn(content, options);
    if (const auto earlier = sides.find(content); may_be && earlier != sides.end())
        return earlier->second == Side::validation ? Side::nowhere : Side::training;
    const bool is_drawn = may_be && owed > threshold * average && 4 * length >= average;
    owed += options.fraction * length - (is_drawn ? length : 0);
    if (is_drawn) threshold = random.uniform_double();
    const Side side = is_drawn ? Side::validation : Side::training;
    if (may_be) sides[content] = side;
    return side;
}

void ValidationDraw::take_part(size_t count) {
    if (count == 0) return;
    const std::span<const uint16_t> part(document.data(), count);
    const Side side = choose(part);
    drawn += side == Side::validation;
    repeats += side == Side::nowhere;
    // a block whose text before is elsewhere begins like a document
    const bool needs_end = part[0] != end_of_text && side != last;
    if (side != Side::nowhere && needs_end) take(side == Side::validation, {&end_of_text, 1});
    if (side != Side::nowhere) take(side == Side::validation, part);
    last = side;
    document.erase(document.begin(), document.begin() + std::ptrdiff_t(count));
}
