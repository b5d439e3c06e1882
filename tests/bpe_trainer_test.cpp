// Training a tokenizer: words are split as GPT-2's pattern does, and merges are those of Hugging Face's
// BpeTrainer, for any number of threads.
#include <gtest/gtest.h>
#include <omp.h>

#include <random>

#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/utf8.h"
#include "llmc/data/preparation.h"
#include "llmc/data/sidecar.h"
#include "llmc/data/token_file.h"
#include "llmc/text/bpe_trainer.h"
#include "llmc/text/pattern.h"
#include "llmc/text/tokenizer_info.h"
#include "llmc/text/word_splitter.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

using Tokens = std::vector<uint16_t>;
using Merges = std::vector<Tokenizer::Merge>;

static Tokenizer train(const std::string& text, const BpeOptions& bpe, const TextOptions& options = {}) {
    TemporaryFolder folder;
    write_whole_file(folder / "text.txt", {text});
    return train_tokenizer({{{folder / "text.txt"}, options}}, bpe);
}

// --- words ---

static std::string random_text(std::mt19937& random, int characters, uint32_t codes = 0x110000) {
    static const std::vector<uint32_t> special = {
        ' ',  ' ',    '\n',   '\t',   '\'',    's',    't',   'r',    'e',    'v',
        'm',  'l',    'd',    'A',    '7',     '-',    0x85,  0xa0,   0x180e, 0x200d,
        0xe9, 0x3000, 0x0660, 0x4e2d, 0x1f600, 0x2160, 0x301, 0x2028, 0xb2,   0x1d7d8};
    std::string text;
    for (int i = 0; i < characters; i++) {
        uint32_t code = special[random() % special.size()];
        if (random() % 8 == 0) code = random() % codes;
        if (code >= 0xd800 && code <= 0xdfff) code = 'x';
        append_character(text, code);
    }
    return text;
}

TEST(WordSplitter, EqualsGpt2sPattern) {
    const std::string white = white_space;
    const Pattern pattern("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" + white + "\\p{L}\\p{N}]+|[" +
                          white + "]+(?![^" + white + "])|[" + white + "]+");
    std::mt19937 random(1);
    WordSplitter splitter;
    for (int repeat = 0; repeat < 3000; repeat++) {
        const std::string text = random_text(random, 1 + int(random() % 40));
        for (size_t at = 0; at < text.size();) {
            const size_t end = splitter.word_end(text, at);
            ASSERT_EQ(end, pattern.match(text, at)) << repeat << " at " << at << " of " << text;
            at = end;
        }
    }
}

// Each character alone, between letters and after a space.
TEST(WordSplitter, KnowsTheClassOfEachCharacter) {
    const Pattern letter("\\p{L}"), number("\\p{N}"), white(std::string("[") + white_space + "]");
    WordSplitter splitter;
    for (uint32_t code = 0; code < 0x110000; code++) {
        if (code == ' ' || (code >= 0xd800 && code <= 0xdfff)) continue;
        std::string text;
        append_character(text, code);
        const size_t bytes = text.size();
        ASSERT_EQ(splitter.word_end(text + "a", 0), bytes + letter.begins(text)) << code;
        ASSERT_EQ(splitter.word_end(text + "7", 0), bytes + number.begins(text)) << code;
        ASSERT_EQ(splitter.word_end(" " + text, 0), 1 + bytes) << code;
        ASSERT_EQ(splitter.word_end("7" + text, 0) == 1, !number.begins(text)) << code;
        ASSERT_EQ(splitter.word_end(text + " a", 0), bytes) << code << white.begins(text);
    }
}

// --- merges ---

// What tokenizers 0.23.3 makes of a text: BpeTrainer(vocab_size, min_frequency, special_tokens,
// initial_alphabet=ByteLevel.alphabet(), max_token_length) with ByteLevel(add_prefix_space=False).
struct Reference {
    std::string text;
    BpeOptions bpe;
    int vocab_size;
    Merges merges;
};

static std::string three_times(const std::string& text) { return text + text + text; }

static const std::vector<Reference> references = {
    {three_times("the cat sat on the mat, and the hat of the cat was 1234 years old\nI'll say: don't! we've  "
                 "foobar\n"),
     {.vocab_size = 290},
     290,
     {{65, 84, 257},   {72, 69, 258},   {84, 258, 259}, {221, 79, 260},  {221, 259, 261}, {65, 82, 262},
      {67, 257, 263},  {221, 83, 264},  {221, 87, 265}, {221, 263, 266}, {7, 76, 267},    {7, 84, 268},
      {7, 86, 269},    {17, 18, 270},   {19, 20, 271},  {65, 78, 272},   {65, 83, 273},   {65, 89, 274},
      {66, 262, 275},  {68, 79, 276},   {69, 262, 277}, {70, 79, 278},   {72, 257, 279},  {76, 68, 280},
      {77, 257, 281},  {79, 275, 282},  {89, 277, 283}, {221, 270, 284}, {221, 272, 285}, {221, 276, 286},
      {221, 278, 287}, {221, 279, 288}, {221, 281, 289}}},
    {"привет мир, привет \u6f22\u5b57\u6f22\u5b57\u3002\u65e5\u672c\u8a9e \u65e5\u672c "
     "\u0928\u092e\u0938\u094d\u0924\u0947 \u4f60\u597d\u4f60\u597d \u0645\u0631\u062d\u0628\u0627 "
     "\u0645\u0631\u062d\u0628\u0627\u00a0x\u3000y",
     {.vocab_size = 400},
     296,  // no more pairs occur twice
     {{157, 98, 257},  {141, 117, 258}, {142, 223, 259}, {96, 162, 260},  {99, 122, 261},  {99, 163, 262},
      {102, 149, 263}, {110, 149, 264}, {111, 141, 265}, {114, 142, 266}, {121, 260, 267}, {122, 255, 268},
      {124, 259, 269}, {141, 265, 270}, {141, 269, 271}, {149, 263, 272}, {149, 264, 273}, {150, 228, 274},
      {157, 99, 275},  {160, 223, 276}, {161, 268, 277}, {162, 261, 278}, {163, 246, 279}, {163, 267, 280},
      {221, 274, 281}, {251, 106, 282}, {256, 246, 283}, {256, 272, 284}, {258, 270, 285}, {262, 282, 286},
      {266, 225, 287}, {271, 285, 288}, {273, 284, 289}, {277, 278, 290}, {279, 286, 291}, {280, 283, 292},
      {281, 289, 293}, {288, 287, 294}, {293, 101, 295}}},
    {"aaaaaaaaa aaaa aaa abababab babab bbbbbbb\n\n\n   aab",
     {.vocab_size = 270, .min_frequency = 0},
     270,
     {{65, 65, 257},
      {65, 66, 258},
      {66, 66, 259},
      {257, 257, 260},
      {258, 258, 261},
      {199, 199, 262},
      {221, 257, 263},
      {259, 259, 264},
      {66, 261, 265},
      {199, 221, 266},
      {221, 260, 267},
      {221, 261, 268},
      {221, 264, 269}}},
    {"banana bandana banana cabana bandanas",
     {.vocab_size = 400, .max_token_length = 4},
     260,
     {{65, 78, 257}, {66, 257, 258}, {257, 65, 259}}},
    {"the cat that they thank, the theme: ab abab",  // "ab" is a token already, and keeps its id
     {.vocab_size = 275, .special_tokens = {"the", "<pad>", "ab"}},
     265,
     {{87, 75, 260}, {224, 260, 261}, {68, 69, 3}, {261, 72, 262}, {68, 87, 263}, {224, 3, 264}}},
};

TEST(BpeTrainer, MergesAreThoseOfHuggingFace) {
    const int threads = omp_get_max_threads();
    for (const Reference& reference : references)
        for (const int some : {1, 2, 3, 7}) {
            omp_set_num_threads(some);
            Tokenizer tokenizer = train(reference.text, reference.bpe);
            EXPECT_EQ(tokenizer.vocab_size(), reference.vocab_size) << reference.text;
            EXPECT_EQ(tokenizer.merges(), reference.merges) << reference.text << " " << some;
            EXPECT_EQ(tokenizer.tokens[0], "<|endoftext|>");
            EXPECT_EQ(tokenizer.end_of_text, 0);
        }
    omp_set_num_threads(threads);
}

// Enough text that the queue, its tables and several blocks of text take part.
TEST(BpeTrainer, ThreadsChangeNothing) {
    std::mt19937 random(2);
    std::string text;
    while (text.size() < 1 << 20) {
        for (uint32_t i = 2 + random() % 3; i > 0; i--)
            text += "etaoinshrdlu"[random() % 12 % (1 + random() % 12)];
        if (random() % 3 == 0) text += ' ';
    }
    const int threads = omp_get_max_threads();
    std::string first;
    for (const int some : {1, 2, 5}) {
        omp_set_num_threads(some);
        const std::string checksum = info_of(train(text, {.vocab_size = 700})).checksum;
        if (first.empty()) first = checksum;
        EXPECT_EQ(checksum, first) << some;
    }
    omp_set_num_threads(threads);
}

TEST(BpeTrainer, AFileOfTheTokenizerEncodesTheSame) {
    for (const Reference& reference : references) {
        TemporaryFolder folder;
        Tokenizer trained = train(reference.text, reference.bpe);
        write_whole_file(folder / "tokenizer.json", {text_of_tokenizer_json(trained)});
        Tokenizer read = open_tokenizer(folder / "tokenizer.json");
        const TokenizerInfo kept = keep_tokenizer(trained, folder / "kept");
        Tokenizer copy = open_tokenizer(folder / "kept");
        EXPECT_EQ(info_of(read).checksum, kept.checksum) << reference.text;
        EXPECT_EQ(info_of(copy).checksum, kept.checksum) << reference.text;
        Tokens tokens, again, of_copy;
        trained.encode(reference.text, tokens, AddedTokens::all);
        read.encode(reference.text, again, AddedTokens::all);
        copy.encode(reference.text, of_copy, AddedTokens::all);
        EXPECT_EQ(tokens, again);
        EXPECT_EQ(tokens, of_copy);
        std::string text;
        for (const uint16_t token : tokens) text += trained.decode(token);
        EXPECT_EQ(text, reference.text);
    }
}

TEST(BpeTrainer, TokensMayBeLongerThanAFileOfLlmcHolds) {
    TemporaryFolder folder;
    Tokenizer tokenizer = train(std::string(5000, 'a') + " " + std::string(5000, 'a'), {.vocab_size = 300});
    EXPECT_FALSE(fits_tokenizer_file(tokenizer));
    const TokenizerInfo kept = keep_tokenizer(tokenizer, folder / "kept");
    Tokenizer copy = open_tokenizer(folder / "kept");
    EXPECT_EQ(info_of(copy).checksum, kept.checksum);
    EXPECT_GT(copy.tokens.back().size(), 255u);
}

TEST(BpeTrainer, ReadsAnyBytes) {
    const std::string bytes("ab\xff\xfe ab\0ab \xe4\xb8 ab ab\x80", 20);
    Tokenizer tokenizer = train(bytes, {.vocab_size = 300});
    EXPECT_EQ(tokenizer.merges(), (Merges{{65, 66, 257}, {221, 257, 258}}));
    EXPECT_EQ(train("", {.vocab_size = 300}).vocab_size(), 257);
    EXPECT_EQ(train("a", {.vocab_size = 300}).vocab_size(), 257);
}

// Documents that end at a blank line have no words across it, and marks are not words.
TEST(BpeTrainer, WordsAreThoseThatAreEncoded) {
    const std::string text = three_times("x<|endoftext|>\n\n");
    EXPECT_EQ(train(text, {.vocab_size = 300}, {.split = DocumentSplit::end_of_text}).vocab_size(), 257);
    EXPECT_GT(train(text, {.vocab_size = 300}).vocab_size(), 257);
    EXPECT_EQ(train("zz\n", {.vocab_size = 300, .min_frequency = 1}).vocab_size(), 258);
    EXPECT_EQ(train("{\"text\": \"zz\"}\n", {.vocab_size = 300, .min_frequency = 1}, {.field = {"text"}})
                  .vocab_size(),
              258);
    const std::string message =
        message_of([] { train("{\"a\": 1}\n", {.vocab_size = 300}, {.field = {"text"}}); });
    EXPECT_TRUE(contains(message, "line 1 has no string in a field 'text'"));
}

// A word counts wherever its document stands, also if the text exists only while it is read.
TEST(BpeTrainer, JsonlGivesTheTokenizerOfItsText) {
    std::mt19937 random(4);
    std::string plain, jsonl;
    for (int i = 0; i < 400; i++) {
        std::string document;
        for (uint32_t words = 3 + random() % 40; words > 0; words--)
            document += " word" + std::to_string(random() % 60 * (random() % 60));
        plain += document + "<|endoftext|>";
        jsonl += "{\"text\": \"" + document + "\"}\n";
    }
    const std::string of_plain =
        info_of(train(plain, {.vocab_size = 500}, {.split = DocumentSplit::end_of_text})).checksum;
    EXPECT_EQ(info_of(train(jsonl, {.vocab_size = 500}, {.field = {"text"}})).checksum, of_plain);
}

TEST(BpeTrainer, WrongOptionsAreRefused) {
    EXPECT_FALSE(parse_bpe("bytes"));
    EXPECT_EQ(parse_bpe("bpe:65536")->vocab_size, 65536);
    for (const char* name : {"bpe:", "bpe:256", "bpe:65537", "bpe:4k", "bpe:-300", "bpe:99999999999"}) {
        const std::string message = message_of([&] { parse_bpe(name); });
        EXPECT_TRUE(contains(message, "257 to 65536")) << name;
    }
    const std::vector<Words> wrong = {
        {""}, {"x"}, {"<a>", "<a>"}, {"\xc4\xa0the"}, {"\xff\xff"}, {std::string(256, 'x')}};
    for (const auto& tokens : wrong) {
        const std::string message =
            message_of([&] { train("text", {.vocab_size = 300, .special_tokens = tokens}); });
        EXPECT_TRUE(message.starts_with("--special-token")) << message;
    }
    expect_error("258", [] { train("x", {.vocab_size = 257, .special_tokens = {"<pad>"}}); });
    expect_error("standard input", [] { train_tokenizer({{{"-"}}}, {.vocab_size = 300}); });
    expect_error("is trained on a text", [] { open_tokenizer("bpe:300"); });
}

// --- preparation ---

TEST(BpeTrainer, PreparationWritesTheTokenizerBesideTheShards) {
    TemporaryFolder folder;
    write_whole_file(folder / "text.txt", {references[0].text});
    PreparationOptions options;
    options.files = {folder / "text.txt"};
    options.tokenizer = "bpe:290";
    options.out = folder.path;
    options.name = "x";
    prepare_tokens(options);
    Tokenizer tokenizer = open_tokenizer(folder / "x_tokenizer.json");
    EXPECT_EQ(tokenizer.merges(), references[0].merges);
    EXPECT_EQ(open_tokenizer(folder / "x_tokenizer.bin").merges(), references[0].merges);
    const std::optional<TokenizerInfo> info = tokenizer_of_shards({folder / "x_train.bin"});
    ASSERT_TRUE(info);
    EXPECT_EQ(info->name, "bpe:290");
    EXPECT_EQ(info->checksum, info_of(tokenizer).checksum);
    Tokens expected = {0}, tokens(open_token_shard(folder / "x_train.bin").tokens);
    tokenizer.encode(references[0].text, expected);
    read_tokens(open_token_shard(folder / "x_train.bin"), 0, tokens.size(), tokens.data());
    EXPECT_EQ(tokens, expected);

    // another tokenizer's files do not stay, unless it is read
    options.tokenizer = folder / "x_tokenizer.json";
    prepare_tokens(options);
    EXPECT_EQ(open_tokenizer(options.tokenizer).merges(), references[0].merges);
    options.tokenizer = "bpe:290";
    prepare_tokens(options);
    options.tokenizer = "bytes";
    prepare_tokens(options);
    for (const char* type : {"json", "bin"})
        EXPECT_FALSE(file_exists(folder / (std::string("x_tokenizer.") + type)));
    write_whole_file(folder / "x_tokenizer.json", {"somebody's"});  // not written with these shards
    prepare_tokens(options);
    EXPECT_EQ(read_whole_file(folder / "x_tokenizer.json"), "somebody's");

    options.bpe.min_frequency = 3;
    expect_error("are for --tokenizer bpe:N", [&] { prepare_tokens(options); });
}

// --- Hugging Face's library, if it is there ---

static const char* library_program = R"(
import json, sys
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
text = open(sys.argv[1], "rb").read().decode()
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.train_from_iterator([text], trainers.BpeTrainer(
    vocab_size=int(sys.argv[2]), min_frequency=int(sys.argv[3]), special_tokens=["<|endoftext|>"],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
ours = Tokenizer.from_file(sys.argv[4])
same = json.loads(tokenizer.to_str())["model"], json.loads(ours.to_str())["model"]
assert same[0]["vocab"] == same[1]["vocab"] and same[0]["merges"] == same[1]["merges"]
json.dump(ours.encode(text).ids, sys.stdout)
)";

TEST(BpeTrainer, RandomTextsEqualTheLibrary) {
    const char* named = getenv("LLMC_TEST_PYTHON");
    const std::string python = named ? named : "python3";
    if (!program_succeeds({python, "-c", "import tokenizers"}))
        GTEST_SKIP() << python << " has no tokenizers library; LLMC_TEST_PYTHON names another Python";
    TemporaryFolder folder;
    std::mt19937 random(3);
    for (int i = 0; i < 20; i++) {
        const std::string text = random_text(random, 2000, 0x250);  // Unicode's versions agree on these
        const BpeOptions bpe = {.vocab_size = 270 + int(random() % 400), .min_frequency = random() % 4};
        Tokenizer tokenizer = train(text, bpe);
        write_whole_file(folder / "text", {text});
        write_whole_file(folder / "tokenizer.json", {text_of_tokenizer_json(tokenizer)});
        const std::string result = output_of(
            run_program({python, "-c", library_program, folder / "text", std::to_string(bpe.vocab_size),
                         std::to_string(bpe.min_frequency), folder / "tokenizer.json"}));
        Tokens tokens;
        tokenizer.encode(text, tokens);
        EXPECT_EQ(nlohmann::json(tokens), nlohmann::json::parse(result)) << i;
    }
}
