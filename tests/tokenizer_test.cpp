// The tokenizer: known encodings of GPT-2, round trips of arbitrary bytes, comparison with a BPE from the
// published merges and a hand-written splitter, and refusal of damaged files.
#include "llmc/text/tokenizer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

using Tokens = std::vector<uint16_t>;
static const std::string shared_data = SOURCE_DIR "/../shared/data/";

// Skips the test if GPT-2's vocabulary is missing.
#define NEEDS_SHARED_DATA()                                           \
    if (!std::filesystem::exists(shared_data + "gpt2_tokenizer.bin")) \
    GTEST_SKIP() << "no ../shared/data/gpt2_tokenizer.bin to test with"

static Tokens encode(Tokenizer& tokenizer, std::string_view text) {
    Tokens tokens;
    tokenizer.encode(text, tokens);
    return tokens;
}

static std::string decode(const Tokenizer& tokenizer, const Tokens& tokens) {
    std::string text;
    for (uint16_t token : tokens) text += tokenizer.decode(token);
    return text;
}

// The bytes of the tokens separated by |, to show how a text was split.
static std::string shown(Tokenizer& tokenizer, std::string_view text) {
    std::string result;
    for (uint16_t token : encode(tokenizer, text)) result += tokenizer.decode(token) + "|";
    return result;
}

TEST(tokenizer, gpt2_known_encodings) {
    NEEDS_SHARED_DATA();
    Tokenizer gpt2 = open_tokenizer(shared_data + "gpt2_tokenizer.bin");
    EXPECT_EQ(gpt2.vocab_size(), 50257);
    EXPECT_EQ(gpt2.end_of_text, 50256);
    EXPECT_EQ(gpt2.decode(50256), "<|endoftext|>");
    EXPECT_EQ(encode(gpt2, ""), Tokens{});
    EXPECT_EQ(encode(gpt2, "Hello world"), (Tokens{15496, 995}));
    EXPECT_EQ(encode(gpt2, "hello world"), (Tokens{31373, 995}));
    EXPECT_EQ(encode(gpt2, "Hello, I'm a language model,"),
              (Tokens{15496, 11, 314, 1101, 257, 3303, 2746, 11}));
    EXPECT_EQ(encode(gpt2, "\n"), Tokens{198});
    EXPECT_EQ(encode(gpt2, "\n\n"), Tokens{628});
    EXPECT_EQ(encode(gpt2, " "), Tokens{220});
    EXPECT_EQ(encode(gpt2, "!"), Tokens{0});
    EXPECT_EQ(encode(gpt2, "The quick brown fox"), (Tokens{464, 2068, 7586, 21831}));
}

TEST(tokenizer, gpt2_splitting_rule) {
    NEEDS_SHARED_DATA();
    Tokenizer gpt2 = open_tokenizer(shared_data + "gpt2_tokenizer.bin");
    EXPECT_EQ(shown(gpt2, "I'll can't we've"), "I|'ll| can|'t| we|'ve|");
    EXPECT_EQ(shown(gpt2, "I'LL"), "I|'|LL|");
    EXPECT_EQ(shown(gpt2, "a  b"), "a| | b|");
    EXPECT_EQ(shown(gpt2, "a\n b"), "a|\n| b|");
    EXPECT_EQ(shown(gpt2, "a \n"), "a| |\n|");
    EXPECT_EQ(shown(gpt2, "year 2024x"), "year| 2024|x|");
    // Two ideographic spaces: the first is a piece of its own, the second precedes a letter.
    EXPECT_EQ(encode(gpt2, "\u3000\u3000x"), (Tokens{5099, 222, 5099, 222, 87}));
    // U+180E is not white space, U+0085 is: a space joins the former but not the latter.
    EXPECT_EQ(encode(gpt2, " \u180ex")[0], encode(gpt2, " \u180e")[0]);
    EXPECT_EQ(encode(gpt2, "a \u0085b")[1], 220);
}

TEST(tokenizer, end_of_text_in_the_text_is_text) {
    NEEDS_SHARED_DATA();
    for (std::string name : {shared_data + "gpt2_tokenizer.bin", std::string("bytes")}) {
        Tokenizer tokenizer = open_tokenizer(name);
        Tokens tokens = encode(tokenizer, "a<|endoftext|>b");
        for (uint16_t token : tokens) EXPECT_NE(int(token), tokenizer.end_of_text);
        EXPECT_EQ(decode(tokenizer, tokens), "a<|endoftext|>b");
    }
}

TEST(tokenizer, bytes) {
    Tokenizer bytes = open_tokenizer("bytes");
    EXPECT_EQ(bytes.vocab_size(), 257);
    EXPECT_EQ(bytes.end_of_text, 256);
    std::string text("a\0\xff\n", 4);
    EXPECT_EQ(encode(bytes, text), (Tokens{97, 0, 255, 10}));
    EXPECT_EQ(decode(bytes, {97, 0, 255, 10}), text);
    EXPECT_THROW(bytes.decode(257), Error);
    EXPECT_THROW(bytes.decode(-1), Error);
}

// Of equal pairs, the leftmost is merged first.
TEST(tokenizer, equal_merges_go_from_left_to_right) {
    Tokenizer tokenizer = open_tokenizer("bytes");
    tokenizer.tokens.push_back("aa");
    EXPECT_EQ(encode(tokenizer, "aaa"), (Tokens{257, 97}));
    EXPECT_EQ(encode(tokenizer, "aaaaa"), (Tokens{257, 257, 97}));
}

TEST(tokenizer, any_bytes_come_back) {
    NEEDS_SHARED_DATA();
    Tokenizer gpt2 = open_tokenizer(shared_data + "gpt2_tokenizer.bin");
    Words texts = {
        std::string("\0", 1),
        std::string("a\0b \0", 5),
        "\xff",
        "a\x80z",
        "cut off \xf0\x9f\x98",
        "overlong \xc0\x80, surrogate \xed\xa0\x80, too large \xf4\x90\x80\x80",
        "smile \U0001F600 family \U0001F468\u200D\U0001F469\u200D\U0001F467 flag \U0001F1E9\U0001F1EA",
        "漢字かな交じり文、한국어, Ελληνικά, русский, العربية, עברית, हिन्दी, ไทย",
        "e\u0301 \u00e9 \u00a0\u2003\u3000 \u200b ½ ² Ⅷ ٣",
        "\r\n\t \v\f \u0085\u2028\u2029 end",
    };
    std::mt19937 random(1);
    for (int i = 0; i < 200; i++) {
        std::string text(random() % 300, '\0');
        for (char& byte : text) byte = char(random() % (i % 2 ? 256 : 128));
        texts.push_back(text);
    }
    for (const std::string& text : texts) EXPECT_EQ(decode(gpt2, encode(gpt2, text)), text);
}

// More words than the cache holds, of all lengths around its limits, so that they replace each other.
TEST(tokenizer, cached_pieces_do_not_change_the_tokens) {
    NEEDS_SHARED_DATA();
    const std::string path = shared_data + "gpt2_tokenizer.bin";
    std::mt19937 random(2);
    Words words;
    for (int i = 0; i < 300000; i++) {
        std::string word(1, ' ');
        for (size_t length = 1 + random() % 16; word.size() < length + 1;) word += char('a' + random() % 26);
        words.push_back(word);
    }
    Tokenizer one = open_tokenizer(path), other = open_tokenizer(path);
    std::vector<Tokens> forward, backward;
    for (const std::string& word : words) forward.push_back(encode(one, word));
    for (size_t i = words.size(); i-- > 0;) backward.push_back(encode(other, words[i]));
    std::reverse(backward.begin(), backward.end());
    EXPECT_TRUE(forward == backward);
    for (size_t i = 0; i < words.size(); i++) ASSERT_EQ(decode(one, forward[i]), words[i]);
}

TEST(tokenizer, text_around_invalid_bytes_is_encoded_separately) {
    NEEDS_SHARED_DATA();
    Tokenizer gpt2 = open_tokenizer(shared_data + "gpt2_tokenizer.bin");
    Tokens expected = encode(gpt2, "two  ");
    for (const char* byte : {"\xff", "\x80"}) {
        Tokens one = encode(gpt2, byte);
        ASSERT_EQ(one.size(), 1u);
        expected.push_back(one[0]);
    }
    for (uint16_t token : encode(gpt2, " words")) expected.push_back(token);
    EXPECT_EQ(encode(gpt2, "two  \xff\x80 words"), expected);
}

TEST(tokenizer, long_pieces_do_not_take_quadratic_time) {
    NEEDS_SHARED_DATA();
    Tokenizer gpt2 = open_tokenizer(shared_data + "gpt2_tokenizer.bin");
    for (const char* unit : {"a", " ", "ab", "!", "\n", "漢", "\xff", "7"}) {
        std::string text = "x";
        while (text.size() < 1000000) text += unit;
        EXPECT_EQ(decode(gpt2, encode(gpt2, text)), text) << unit;
    }
}

// --- independent reference: the published merges, applied as in the paper ---

struct MergesBpe {
    std::map<std::pair<std::string, std::string>, int> ranks;
    std::map<std::string, int> ids;

    Words merge(Words parts) const {
        for (;;) {
            auto best = ranks.end();
            for (size_t i = 0; i + 1 < parts.size(); i++) {
                auto found = ranks.find({parts[i], parts[i + 1]});
                if (found != ranks.end() && (best == ranks.end() || found->second < best->second))
                    best = found;
            }
            if (best == ranks.end()) return parts;
            Words merged;
            for (size_t i = 0; i < parts.size(); i++) {
                bool pair = i + 1 < parts.size() && parts[i] == best->first.first &&
                            parts[i + 1] == best->first.second;
                merged.push_back(pair ? parts[i] + parts[i + 1] : parts[i]);
                i += pair;
            }
            parts = merged;
        }
    }
};

// The byte of each character in vocab.bpe, by GPT-2's bytes_to_unicode.
static std::map<std::string, char> bytes_of_characters() {
    std::map<std::string, char> bytes;
    int extra = 0;
    for (int byte = 0; byte < 256; byte++) {
        bool kept = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        int code = kept ? byte : 256 + extra++;
        std::string utf8 = code < 128 ? std::string{char(code)}
                                      : std::string{char(0xc0 + code / 64), char(0x80 + code % 64)};
        bytes[utf8] = char(byte);
    }
    return bytes;
}

static std::string raw(const std::string& spelled) {
    static const std::map<std::string, char> bytes = bytes_of_characters();
    std::string result;
    for (size_t i = 0; i < spelled.size();) {
        size_t length = (spelled[i] & 0x80) ? 2 : 1;
        result += bytes.at(spelled.substr(i, length));
        i += length;
    }
    return result;
}

static MergesBpe published_merges(const Tokenizer& gpt2) {
    MergesBpe bpe;
    for (int id = 0; id < gpt2.vocab_size() - 1; id++) bpe.ids[gpt2.tokens[id]] = id;
    std::string text = read_whole_file(shared_data + "vocab.bpe");
    size_t position = text.find('\n') + 1;
    for (int rank = 0; position < text.size(); rank++) {
        size_t end = text.find('\n', position), space = text.find(' ', position);
        bpe.ranks[{raw(text.substr(position, space - position)),
                   raw(text.substr(space + 1, end - space - 1))}] = rank;
        position = end + 1;
    }
    return bpe;
}

TEST(tokenizer, merges_recovered_from_bytes_are_the_published_ones) {
    NEEDS_SHARED_DATA();
    Tokenizer gpt2 = open_tokenizer(shared_data + "gpt2_tokenizer.bin");
    MergesBpe bpe = published_merges(gpt2);
    ASSERT_EQ(bpe.ranks.size(), 50000u);
    std::mt19937 random(7);
    std::vector<const std::pair<std::string, std::string>*> pairs(50000);
    for (const auto& [pair, rank] : bpe.ranks) {
        ASSERT_EQ(bpe.ids.at(pair.first + pair.second), 256 + rank);  // ids are in the order of the merges
        pairs[rank] = &pair;
    }
    // Concatenate tokens, so that pairs compete; letters only, so that the splitter does not split them.
    auto is_word = [](const std::string& text) {
        for (char c : text)
            if (!isalpha(uint8_t(c))) return false;
        return true;
    };
    int compared = 0;
    for (int i = 0; i < 60000; i++) {
        std::string text = i < 50000 ? pairs[i]->first + pairs[i]->second : "";
        while (i >= 50000 && text.size() < 12) text += pairs[random() % 50000]->second;
        if (!is_word(text)) continue;
        Words parts;
        for (char c : text) parts.push_back(std::string(1, c));
        Tokens expected;
        for (const std::string& part : bpe.merge(parts)) expected.push_back(uint16_t(bpe.ids.at(part)));
        ASSERT_EQ(encode(gpt2, text), expected) << text;
        compared++;
    }
    EXPECT_GT(compared, 10000);
}

TEST(tokenizer, shakespeare_has_the_known_number_of_tokens) {
    NEEDS_SHARED_DATA();
    Tokenizer gpt2 = open_tokenizer(shared_data + "gpt2_tokenizer.bin");
    const std::string text = read_whole_file(shared_data + "tinyshakespeare.txt");
    const Tokens tokens = encode(gpt2, text);
    EXPECT_EQ(tokens.size(), 338025u);  // of GPT-2's tokenizer on the file as one text
    EXPECT_TRUE(decode(gpt2, tokens) == text);
}

TEST(tokenizer, file_made_from_the_published_vocabulary_equals_llmc_s) {
    NEEDS_SHARED_DATA();
    TemporaryFolder folder;
    write_tokenizer(open_tokenizer(shared_data + "encoder.json"), folder / "made.bin");
    EXPECT_TRUE(read_whole_file(folder / "made.bin") == read_whole_file(shared_data + "gpt2_tokenizer.bin"));
    // Version 1 has no end-of-text field.
    std::string bytes = read_whole_file(folder / "made.bin");
    bytes[4] = 1;
    memset(&bytes[12], 0, 4);
    write_whole_file(folder / "version1.bin", {bytes});
    Tokenizer version1 = open_tokenizer(folder / "version1.bin");
    EXPECT_EQ(version1.end_of_text, 50256);
    EXPECT_EQ(encode(version1, "Hello world"), (Tokens{15496, 995}));
}

TEST(tokenizer, mismatched_vocabulary_files_are_refused) {
    NEEDS_SHARED_DATA();
    TemporaryFolder folder;
    std::string merges = read_whole_file(shared_data + "vocab.bpe"),
                ids = read_whole_file(shared_data + "encoder.json");
    auto refused = [&](const std::string& some_merges, const std::string& some_ids) {
        write_whole_file(folder / "vocab.bpe", {some_merges});
        write_whole_file(folder / "encoder.json", {some_ids});
        const std::string message = message_of([&] { open_tokenizer(folder / "encoder.json"); });
        return count_lines(message) == 1;
    };
    EXPECT_TRUE(refused("", ids));
    EXPECT_TRUE(refused(merges.substr(0, merges.size() / 2), ids));
    EXPECT_TRUE(refused("#version: 0.2\nnospace\n", ids));
    EXPECT_TRUE(refused(merges, "{"));
    EXPECT_TRUE(refused(merges, "[1]"));
    EXPECT_TRUE(refused(merges, "{\"a\": 1}"));
    EXPECT_TRUE(refused(merges, "{\"a\": 0, \"b\": 0}"));
    EXPECT_TRUE(refused(merges, "{\"a\": -1, \"b\": 0}"));
    EXPECT_TRUE(refused(merges, "{\"漢\": 0}"));
    EXPECT_TRUE(refused(merges, "{\"a\": 0}"));
}

// --- small hand-made files ---

static std::string tokenizer_bytes(uint32_t magic, uint32_t version, uint32_t size, uint32_t eot,
                                   std::string table) {
    std::string bytes(1024, '\0');
    uint32_t header[4] = {magic, version, size, eot};
    memcpy(bytes.data(), header, sizeof(header));
    return bytes + table;
}

TEST(tokenizer, damaged_files_are_refused_by_name) {
    TemporaryFolder folder;
    const std::string table("\1a\2b\0\3xyz", 9);
    struct Case {
        const char* expected;
        std::string bytes;
    } cases[] = {
        {"too short", ""},
        {"too short", tokenizer_bytes(20240328, 2, 3, 2, "").substr(0, 1023)},
        {"not a tokenizer file", tokenizer_bytes(20240520, 2, 3, 2, table)},
        {"version 3", tokenizer_bytes(20240328, 3, 3, 2, table)},
        {"version 1", tokenizer_bytes(20240328, 1, 3, 2, table)},
        {"vocabulary of 0", tokenizer_bytes(20240328, 2, 0, 0, "")},
        {"vocabulary of 4294967295", tokenizer_bytes(20240328, 2, 0xffffffffu, 2, table)},
        {"end-of-text is token 3", tokenizer_bytes(20240328, 2, 3, 3, table)},
        {"has no bytes", tokenizer_bytes(20240328, 2, 3, 2, std::string("\1a\0\1b", 5))},
        {"truncated", tokenizer_bytes(20240328, 2, 3, 2, table.substr(0, 8))},
        {"truncated", tokenizer_bytes(20240328, 2, 4, 2, table)},
        {"too long", tokenizer_bytes(20240328, 2, 3, 2, table + "x")},
    };
    for (const Case& c : cases) {
        write_whole_file(folder / "bad.bin", {c.bytes});
        const std::string error = message_of([&] { open_tokenizer(folder / "bad.bin"); });
        EXPECT_TRUE(contains(error, c.expected));
        EXPECT_TRUE(contains(error, folder / "bad.bin"));
    }
    EXPECT_THROW(open_tokenizer(folder / "missing.bin"), Error);
    EXPECT_THROW(open_tokenizer(folder.path), Error);

    write_whole_file(folder / "good.bin", {tokenizer_bytes(20240328, 2, 3, 2, table)});
    Tokenizer good = open_tokenizer(folder / "good.bin");
    EXPECT_EQ(good.decode(1), std::string("b\0", 2));
    Tokens tokens;
    EXPECT_THROW(good.encode("a", tokens), Error);  // most bytes have no token
    write_tokenizer(good, folder / "again.bin");
    EXPECT_EQ(read_whole_file(folder / "again.bin"), read_whole_file(folder / "good.bin"));
}
