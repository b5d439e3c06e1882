#include "llmc/text/tokenizer.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <queue>

#include "llmc/base/error.h"
#include "llmc/base/json.h"
#include "llmc/base/output.h"
#include "llmc/base/paths.h"
#include "llmc/text/word_splitter.h"

static const uint32_t tokenizer_magic = 20240328;
static const int gpt2_vocab_size = 50257;
static const uint32_t max_vocab_size = 65536;  // tokens are stored as uint16

// A short piece of text and its tokens. It is small, since most of the time goes to loads that miss the CPU's
// caches.
struct CachedPiece {
    uint32_t hash = 0;
    uint8_t length = 0, count = 0;  // of text and tokens; length 0: empty
    char text[14];
    uint16_t tokens[6];
};
// Pieces with the same low bits of their hash.
struct alignas(64) CacheSet {
    CachedPiece pieces[4];
};

static const uint64_t odd_constant = 0x9e3779b97f4a7c15;  // whose multiples are spread evenly

// Finds the merge of a pair of tokens, which most pairs lack. Open addressing takes one load for these, and
// std::unordered_map a division and several loads.
struct MergeTable {
    struct Entry {
        uint32_t pair = 0;          // left << 16 | right
        int rank = 0, merged = -1;  // merged -1: empty
    };
    std::vector<Entry> entries;
    size_t count = 0;

    explicit MergeTable(size_t most) : entries(std::bit_ceil(2 * most + 1)) {}

    // The pair's entry, or the empty one where it belongs.
    Entry& at(int left, int right) {
        const uint32_t pair = uint32_t(left) << 16 | uint32_t(right);
        size_t i = (pair * odd_constant >> 32) % entries.size();
        while (entries[i].merged >= 0 && entries[i].pair != pair) i = (i + 1) % entries.size();
        return entries[i];
    }
    void set(int left, int right, int rank, int merged) {
        Entry& entry = at(left, right);
        count += entry.merged < 0;
        entry = {uint32_t(left) << 16 | uint32_t(right), rank, merged};
    }
};

// Encodes pieces of text. BPE needs to know which pairs of tokens merge into which token, and in which order.
// llm.c's file gives only the order: a token's id is its merge's rank. The pair is found by encoding the
// token's own bytes with the merges of all lower ids. BPE training had exactly these when it made the token,
// so two tokens remain.
struct BpeEncoder {
    std::array<int, 256> byte_tokens;
    MergeTable merges;
    // A piece is in the set of its hash modulo the size.
    std::vector<CacheSet> cache = std::vector<CacheSet>(1 << 15);
    WordSplitter splitter;

    // Buffers of encode_piece(): the piece's tokens as a doubly linked list, and the candidate merges.
    struct Symbol {
        int token;  // -1: merged into its left neighbour
        int previous, next;
    };
    struct Candidate {
        int rank, left, merged, left_token, right_token;  // rank and left decide which one comes first
        auto operator<=>(const Candidate&) const = default;
    };
    std::vector<Symbol> symbols;
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;

    explicit BpeEncoder(const Tokenizer& tokenizer)
        : merges(tokenizer.given_merges ? tokenizer.given_merges->size() : tokenizer.tokens.size()) {
        find_byte_tokens(tokenizer);
        int rank = 0;
        if (!tokenizer.given_merges)
            recover_merges(tokenizer);
        else
            for (const Tokenizer::Merge& m : *tokenizer.given_merges)
                merges.set(m.left, m.right, rank++, m.merged);
    }

    // The bytes' tokens are made by the vocabulary, not added to it: an added token of one byte counts last.
    void find_byte_tokens(const Tokenizer& tokenizer) {
        std::vector<bool> is_added(tokenizer.tokens.size());
        for (const AddedToken& token : tokenizer.added) is_added[token.id] = true;
        byte_tokens.fill(-1);
        for (const bool wanted : {true, false})
            for (int id = tokenizer.vocab_size() - 1; id >= 0; id--) {
                const std::string& bytes = tokenizer.tokens[id];
                if (bytes.size() == 1 && id != tokenizer.end_of_text && is_added[id] == wanted)
                    byte_tokens[uint8_t(bytes[0])] = id;
            }
        for (int byte = 0; byte < 256; byte++)
            if (byte_tokens[byte] < 0)
                fail("%s has no token for byte %d, so it can decode but not encode", tokenizer.name.c_str(),
                     byte);
    }

    void recover_merges(const Tokenizer& tokenizer) {
        std::vector<uint16_t> parts;
        for (int id = 0; id < tokenizer.vocab_size(); id++) {
            if (tokenizer.tokens[id].size() == 1 || id == tokenizer.end_of_text) continue;
            parts.clear();
            encode_piece(tokenizer.tokens[id], parts);
            // Merging cannot reach a token that is not a pair; it is only ever decoded.
            if (parts.size() == 2) merges.set(parts[0], parts[1], id, id);
        }
    }

    void add_candidate(int left) {
        int right = left < 0 ? -1 : symbols[left].next;
        if (right < 0) return;
        const MergeTable::Entry& merge = merges.at(symbols[left].token, symbols[right].token);
        if (merge.merged >= 0)
            candidates.push({merge.rank, left, merge.merged, symbols[left].token, symbols[right].token});
    }

    // Merges the pair of lowest rank, leftmost first, until none is left. The heap makes the cost O(n log n),
    // so a megabyte of one letter is harmless.
    void encode_piece(std::string_view piece, std::vector<uint16_t>& out) {
        int count = int(piece.size());
        symbols.resize(piece.size());
        for (int i = 0; i < count; i++)
            symbols[i] = {byte_tokens[uint8_t(piece[i])], i - 1, i + 1 < count ? i + 1 : -1};
        for (int i = 0; i < count; i++) add_candidate(i);
        while (!candidates.empty()) {
            Candidate best = candidates.top();
            candidates.pop();
            Symbol& left = symbols[best.left];
            if (left.token != best.left_token || left.next < 0)
                continue;  // an earlier merge took one of the two
            Symbol& right = symbols[left.next];
            if (right.token != best.right_token) continue;
            left.token = best.merged;
            left.next = right.next;
            right.token = -1;
            if (left.next >= 0) symbols[left.next].previous = best.left;
            add_candidate(left.previous);
            add_candidate(best.left);
        }
        for (int i = 0; i >= 0; i = symbols[i].next) out.push_back(uint16_t(symbols[i].token));
    }

    // Words repeat, so nearly every piece has been encoded before.
    void encode_cached(std::string_view piece, std::vector<uint16_t>& out) {
        if (piece.size() > sizeof CachedPiece::text) return encode_piece(piece, out);
        const uint64_t hash = XXH3_64bits(piece.data(), piece.size());
        CacheSet& set = cache[hash % cache.size()];
        for (const CachedPiece& cached : set.pieces)
            if (cached.hash == uint32_t(hash >> 32) &&
                std::string_view(cached.text, cached.length) == piece) {
                out.insert(out.end(), cached.tokens, cached.tokens + cached.count);
                return;
            }
        const size_t start = out.size();
        encode_piece(piece, out);
        CachedPiece& replaced = set.pieces[hash >> 30 & 3];
        if (out.size() - start > std::size(replaced.tokens)) return;
        replaced = {.hash = uint32_t(hash >> 32),
                    .length = uint8_t(piece.size()),
                    .count = uint8_t(out.size() - start)};
        memcpy(replaced.text, piece.data(), piece.size());
        std::copy(out.begin() + ptrdiff_t(start), out.end(), replaced.tokens);
    }

    template <class Take>
    void for_each_word(std::string_view text, const Take& take) {
        for (size_t start = 0, end; start < text.size(); start = end) {
            end = splitter.word_end(text, start);
            take(text.substr(start, end - start));
        }
    }
};

const std::string& Tokenizer::decode(int token) const {
    if (token < 0 || token >= vocab_size())
        fail("token %d is outside the vocabulary of %s, which has %d", token, name.c_str(), vocab_size());
    return tokens[token];
}

void Tokenizer::encode_text(std::string_view text, std::vector<uint16_t>& out) {
    if (built.encoder->merges.count == 0 && !on_word) {  // plain bytes
        for (char byte : text) out.push_back(uint16_t(built.encoder->byte_tokens[uint8_t(byte)]));
        return;
    }
    while (!text.empty()) {
        const size_t valid = std::min(find_not_utf8(text), text.size());
        if (on_word)
            built.encoder->for_each_word(text.substr(0, valid), on_word);
        else
            built.encoder->for_each_word(text.substr(0, valid),
                                         [&](auto word) { built.encoder->encode_cached(word, out); });
        text.remove_prefix(valid);
        if (text.empty()) break;
        out.push_back(uint16_t(built.encoder->byte_tokens[uint8_t(text[0])]));
        text.remove_prefix(1);
    }
}

void Tokenizer::encode(std::string_view text, std::vector<uint16_t>& out, AddedTokens found) {
    const size_t most = 1 << 30;  // positions within a piece are ints
    if (text.size() > most) fail("cannot encode more than %zu bytes at once", most);
    if (!built.encoder) built.encoder = std::make_shared<BpeEncoder>(*this);
    const AddedTokenMatcher* matching = matcher(found);
    for (const TextPart& part : matching ? matching->split(text) : std::vector<TextPart>{{text}})
        if (part.token >= 0)
            out.push_back(uint16_t(part.token));
        else if (add_prefix_space && !part.text.starts_with(' ') && !part.text.empty())
            encode_text(std::string(1, ' ').append(part.text), out);
        else
            encode_text(part.text, out);
}

bool Tokenizer::is_special(int token) const {
    const auto is_it = [&](const AddedToken& a) { return a.id == token && a.special; };
    return token == end_of_text || std::ranges::any_of(added, is_it);
}

const AddedTokenMatcher* Tokenizer::matcher(AddedTokens found) {
    if (found == AddedTokens::none) return nullptr;
    std::unique_ptr<AddedTokenMatcher>& matching = built.matchers[int(found)];
    if (matching) return matching.get();
    const bool all = found == AddedTokens::all || found == AddedTokens::all_and_separator;
    const bool separates = found == AddedTokens::separator || found == AddedTokens::all_and_separator;
    std::vector<AddedToken> searched = {{.id = end_of_text, .special = true}};
    if (all && !added.empty()) searched = added;
    for (AddedToken& token : searched) token.line_ends = separates && token.id == end_of_text;
    matching = std::make_unique<AddedTokenMatcher>(searched, tokens);
    return matching.get();
}

std::vector<Tokenizer::Merge> Tokenizer::merges() {
    if (given_merges) return *given_merges;
    if (!built.encoder) built.encoder = std::make_shared<BpeEncoder>(*this);
    std::vector<Merge> found;
    for (const MergeTable::Entry& entry : built.encoder->merges.entries)
        if (entry.merged >= 0)
            found.push_back({int(entry.pair >> 16), int(entry.pair & 0xffff), entry.merged});
    std::sort(found.begin(), found.end(), [](const Merge& a, const Merge& b) { return a.merged < b.merged; });
    return found;
}

bool fits_tokenizer_file(const Tokenizer& tokenizer) {
    const std::vector<AddedToken> end = {{.id = tokenizer.end_of_text, .special = true}};
    const bool is_short =
        std::ranges::all_of(tokenizer.tokens, [](const std::string& token) { return token.size() <= 255; });
    return (tokenizer.added.empty() || tokenizer.added == end) && !tokenizer.given_merges &&
           !tokenizer.add_prefix_space && is_short;
}

static Tokenizer bytes_tokenizer() {
    Tokenizer tokenizer;
    tokenizer.name = "bytes";
    for (int byte = 0; byte < 256; byte++) tokenizer.tokens.push_back(std::string(1, char(byte)));
    tokenizer.tokens.push_back("<|endoftext|>");
    tokenizer.end_of_text = 256;
    return tokenizer;
}

static void check_header(const uint32_t* header, const char* path) {
    if (header[0] != tokenizer_magic)
        fail("%s is not a tokenizer file: it starts with %u instead of %u", path, header[0], tokenizer_magic);
    if (header[1] != 1 && header[1] != 2)
        fail("%s is a tokenizer file of version %u; only versions 1 and 2 can be read", path, header[1]);
    if (header[2] < 1 || header[2] > max_vocab_size)
        fail("%s: its vocabulary of %u tokens is not in 1 to %u", path, header[2], max_vocab_size);
    if (header[1] == 1 && header[2] != gpt2_vocab_size)
        fail("%s: version 1 is only for GPT-2's %d tokens, but it has %u", path, gpt2_vocab_size, header[2]);
    if (header[1] == 2 && header[3] >= header[2])
        fail("%s: end-of-text is token %u of a vocabulary of %u", path, header[3], header[2]);
}

Tokenizer open_tokenizer(const std::string& name_or_path) {
    if (name_or_path == "bytes") return bytes_tokenizer();
    const char* path = name_or_path.c_str();
    if (!std::filesystem::exists(name_or_path) && name_or_path.starts_with("bpe:"))
        fail(
            "the tokenizer %s is trained on a text, by %s or %s --text: name the file of one that has been "
            "trained",
            path, command_of("prepare_data").c_str(), command_of("train_gpt2").c_str());
    if (!std::filesystem::exists(name_or_path) && name_or_path == "bpe")
        fail("the tokenizer bpe needs a number of tokens, such as bpe:4096");
    if (!std::filesystem::exists(name_or_path))
        fail(
            "no tokenizer file %s: 'data/download.sh starter' downloads GPT-2's into "
            "data/starter/gpt2_tokenizer.bin",
            path);
    if (name_or_path.ends_with(".json") || std::filesystem::is_directory(name_or_path))
        return read_hugging_face_tokenizer(name_or_path);
    uint32_t header[header_ints];
    std::string bytes = read_whole_file(name_or_path, max_json_bytes);
    if (bytes.starts_with('{')) return read_hugging_face_tokenizer(name_or_path);
    if (bytes.size() < sizeof(header))
        fail("%s is too short for a tokenizer file: %zu bytes; the header alone has %zu", path, bytes.size(),
             sizeof(header));
    memcpy(header, bytes.data(), sizeof(header));
    check_header(header, path);
    Tokenizer tokenizer;
    tokenizer.name = name_or_path;
    tokenizer.end_of_text = header[1] == 1 ? gpt2_vocab_size - 1 : int(header[3]);
    size_t position = sizeof(header);
    for (uint32_t id = 0; id < header[2]; id++) {
        size_t length = position < bytes.size() ? uint8_t(bytes[position]) : 1;
        if (length == 0) fail("%s: token %u has no bytes", path, id);
        if (position + 1 + length > bytes.size())
            fail("%s is truncated: it ends in token %u of %u", path, id, header[2]);
        tokenizer.tokens.push_back(bytes.substr(position + 1, length));
        position += 1 + length;
    }
    if (position != bytes.size())
        fail("%s is too long: %zu bytes follow its %u tokens", path, bytes.size() - position, header[2]);
    return tokenizer;
}

std::string usual_tokenizer(const std::vector<std::string>& folders) {
    std::vector<std::string> all = {"."};
    all.insert(all.end(), folders.begin(), folders.end());
    all.push_back("data/starter");
    for (const std::string& folder : all) {
        const std::string path =
            generic_text(normal_path(std::filesystem::path(folder) / "gpt2_tokenizer.bin"));
        if (std::filesystem::exists(path)) return path;
    }
    return "";
}

void write_tokenizer(const Tokenizer& tokenizer, const std::string& path) {
    uint32_t header[header_ints] = {tokenizer_magic, 2, uint32_t(tokenizer.vocab_size()),
                                    uint32_t(tokenizer.end_of_text)};
    std::string table;
    for (const std::string& bytes : tokenizer.tokens) {
        if (bytes.empty() || bytes.size() > 255)
            fail("cannot write %s: a token has %zu bytes; the format holds 1 to 255", path.c_str(),
                 bytes.size());
        table += char(bytes.size());
        table += bytes;
    }
    write_whole_file(path, {{reinterpret_cast<const char*>(header), sizeof(header)}, table});
}

bool is_tokenizer_file(const std::string& path) { return begins_with(path, int(tokenizer_magic)); }
