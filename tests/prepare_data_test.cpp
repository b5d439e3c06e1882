// The program prepare_data: the shards it writes, that streaming in blocks does not change the tokens, and
// that each kind of bad input gives one line and status 1.
#include <gtest/gtest.h>

#include <random>

#include "llmc/file.h"
#include "llmc/token_file.h"
#include "llmc/tokenizer.h"
#include "tests/run_program.h"

using Tokens = std::vector<uint16_t>;
static const std::string program = BINARY_DIR "/prepare_data";
static const std::string shared_data = SOURCE_DIR "/../shared/data/";

static bool exists(const std::string& path) { return std::filesystem::exists(path); }

static Tokens read_shard(const std::string& path) {
    TokenShard shard = open_token_shard(path);
    Tokens tokens(shard.tokens);
    read_tokens(shard, 0, shard.tokens, tokens.data());
    return tokens;
}

static ProgramResult prepare(const TemporaryFolder& folder, std::vector<std::string> options) {
    options.insert(options.begin(), {program, "--out", folder.path, "--name", "x"});
    return run_program(options);
}

// Bytes as tokens, with ^ for end-of-text.
static Tokens tokens_of(const std::string& text) {
    Tokens tokens;
    for (char c : text) tokens.push_back(c == '^' ? 256 : uint8_t(c));
    return tokens;
}

TEST(prepare_data, shakespeare_gives_llmc_s_counts) {
    if (!exists(shared_data + "tinyshakespeare.txt")) GTEST_SKIP() << "no ../shared/data/tinyshakespeare.txt";
    TemporaryFolder folder;
    ProgramResult result =
        prepare(folder, {"--tokenizer", shared_data + "gpt2_tokenizer.bin", "--split-documents", "blank-line",
                         "--val-tokens", "32768", shared_data + "tinyshakespeare.txt"});
    ASSERT_EQ(result.status, 0) << result.err;
    Tokens val = read_shard(folder / "x_val.bin"), train = read_shard(folder / "x_train.bin");
    EXPECT_EQ(val.size(), 32768u);
    EXPECT_EQ(train.size(), 305260u);
    EXPECT_EQ(Tokens(val.begin(), val.begin() + 6), (Tokens{50256, 5962, 22307, 25, 198, 8421}));
    EXPECT_NE(result.out.find("338028 tokens"), std::string::npos) << result.out;
    EXPECT_EQ(result.err, "");
}

TEST(prepare_data, documents_and_end_of_text) {
    TemporaryFolder folder;
    struct Case {
        const char *text, *whole, *split;
    } cases[] = {
        {"a", "^a", "^a"},
        {"a\n\nb", "^a\n\nb", "^a\n\n^b"},
        {"a\n\n", "^a\n\n", "^a\n\n^"},
        {"a\n\n\nb\n", "^a\n\n\nb\n", "^a\n\n^\nb\n"},
        {"\n\n\n\n", "^\n\n\n\n", "^\n\n^\n\n^"},
    };
    for (const Case& c : cases) {
        write_whole_file(folder / "text", {c.text});
        ASSERT_EQ(prepare(folder, {folder / "text"}).status, 0);
        EXPECT_EQ(read_shard(folder / "x_train.bin"), tokens_of(c.whole));
        ASSERT_EQ(prepare(folder, {"--split-documents", "blank-line", folder / "text"}).status, 0);
        EXPECT_EQ(read_shard(folder / "x_train.bin"), tokens_of(c.split));
    }
    write_whole_file(folder / "one", {"a\n\n"});
    write_whole_file(folder / "two", {"b"});
    ASSERT_EQ(
        prepare(folder, {"--split-documents", "blank-line", folder / "one", folder / "two", folder / "two"})
            .status,
        0);
    EXPECT_EQ(read_shard(folder / "x_train.bin"), tokens_of("^a\n\n^b^b"));
}

TEST(prepare_data, shards_are_numbered_where_there_are_several) {
    TemporaryFolder folder;
    std::string text = "0123456789abcdef";
    write_whole_file(folder / "text", {text});
    ASSERT_EQ(prepare(folder, {"--shard-tokens", "5", "--val-tokens", "7", folder / "text"}).status, 0);
    EXPECT_EQ(read_shard(folder / "x_val_000000.bin"), tokens_of("^0123"));
    EXPECT_EQ(read_shard(folder / "x_val_000001.bin"), tokens_of("45"));
    EXPECT_EQ(read_shard(folder / "x_train_000000.bin"), tokens_of("6789a"));
    EXPECT_EQ(read_shard(folder / "x_train_000001.bin"), tokens_of("bcdef"));
    EXPECT_FALSE(exists(folder / "x_train_000002.bin"));
    EXPECT_FALSE(exists(folder / "x_train.bin"));

    // A later run leaves none of the earlier one's shards for a glob to find, and no other file is touched.
    write_whole_file(folder / "x_train_notes.bin", {"mine"});
    ASSERT_EQ(prepare(folder, {folder / "text"}).status, 0);
    EXPECT_EQ(read_shard(folder / "x_train.bin"), tokens_of("^" + text));
    for (const char* stale :
         {"x_val_000000.bin", "x_val_000001.bin", "x_train_000000.bin", "x_train_000001.bin"})
        EXPECT_FALSE(exists(folder / stale)) << stale;
    EXPECT_TRUE(exists(folder / "x_train_notes.bin"));
}

// Text where white space of every kind stands before and after everything, longer than several blocks.
static std::string white_text(const std::vector<std::string>& units, size_t size, int seed) {
    std::mt19937 random(seed);
    std::string text;
    while (text.size() < size) text += units[random() % units.size()];
    return text;
}

TEST(prepare_data, reading_in_blocks_does_not_change_the_tokens) {
    if (!exists(shared_data + "gpt2_tokenizer.bin")) GTEST_SKIP() << "no ../shared/data/gpt2_tokenizer.bin";
    TemporaryFolder folder;
    Tokenizer gpt2 = open_tokenizer(shared_data + "gpt2_tokenizer.bin");
    const std::string ideographic_space = "\u3000", full_stop = "\u3002";
    std::vector<std::string> texts = {
        white_text({" ", "  ", "\n", "\n\n", "\t", "a", "I'll", "12", "...", "\u00a0", "\u2003",
                    ideographic_space, full_stop, "\u00e9", "\xff", "\x80", "\u1680", "\u0085"},
                   10 << 20, 1),
        std::string(5 << 20, ' ') + "end",  // white space only: nowhere to cut
        white_text({"\n", "\n\n"}, 5 << 20, 2),
        white_text({full_stop + "\n", "漢"}, 9 << 20, 3),  // cuts after characters beyond ASCII only
    };
    for (const std::string& text : texts) {
        write_whole_file(folder / "text", {text});
        ProgramResult result =
            prepare(folder, {"--tokenizer", shared_data + "gpt2_tokenizer.bin", folder / "text"});
        ASSERT_EQ(result.status, 0) << result.err;
        Tokens expected = {50256};
        gpt2.encode(text, expected);
        EXPECT_TRUE(read_shard(folder / "x_train.bin") == expected);
    }
}

TEST(prepare_data, makes_gpt2_s_tokenizer_file) {
    if (!exists(shared_data + "vocab.bpe")) GTEST_SKIP() << "no ../shared/data/vocab.bpe";
    TemporaryFolder folder;
    ProgramResult result =
        run_program({program, "--make-tokenizer", folder / "t.bin", "--vocab", shared_data + "vocab.bpe",
                     "--encoder", shared_data + "encoder.json"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(read_whole_file(folder / "t.bin") == read_whole_file(shared_data + "gpt2_tokenizer.bin"));
}

TEST(prepare_data, bad_input_gives_one_line_and_status_1) {
    TemporaryFolder folder;
    write_whole_file(folder / "text", {"some text\n"});
    write_whole_file(folder / "empty", {""});
    const std::string out = folder.path, text = folder / "text";
    std::vector<std::vector<std::string>> cases = {
        {},
        {"--out", out, "--name", "x"},
        {"--name", "x", text},
        {"--out", out, text},
        {"--out", out, "--name", "a/b", text},
        {"--out", out, "--name", "x", "--no-such-flag", text},
        {"--out", out, "--name", "x", "--val-tokens", "many", text},
        {"--out", out, "--name", "x", "--val-tokens", "-1", text},
        {"--out", out, "--name", "x", "--val-tokens", "11", text},
        {"--out", out, "--name", "x", "--shard-tokens", "0", text},
        {"--out", out, "--name", "x", "--shard-tokens", "2147483648", text},
        {"--out", out, "--name", "x", "--split-documents", "pages", text},
        {"--out", out, "--name", "x", "--tokenizer", folder / "missing.bin", text},
        {"--out", out, "--name", "x", "--tokenizer", text, text},
        {"--out", out, "--name", "x", folder / "missing"},
        {"--out", out, "--name", "x", text, folder / "missing"},
        {"--out", out, "--name", "x", folder / "empty"},
        {"--out", out, "--name", "x", out},
        {"--out", text, "--name", "x", text},
        {"--make-tokenizer", folder / "t.bin"},
        {"--make-tokenizer", folder / "t.bin", "--vocab", text, "--encoder", text},
        {"--make-tokenizer", folder / "t.bin", "--vocab", text, "--encoder", folder / "missing"},
    };
    for (std::vector<std::string> arguments : cases) {
        std::string shown;
        for (const std::string& argument : arguments) shown += argument + " ";
        arguments.insert(arguments.begin(), program);
        ProgramResult result = run_program(arguments);
        EXPECT_EQ(result.status, 1) << shown;
        EXPECT_EQ(count_lines(result.err), 1) << shown << result.err;
        EXPECT_EQ(result.err.rfind("prepare_data: ", 0), 0u) << shown << result.err;
        EXPECT_FALSE(exists(folder / "x_train.bin")) << shown;
    }
}
