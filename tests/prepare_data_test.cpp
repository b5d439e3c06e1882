// The program prepare_data: it writes the expected shards, blocks and threads do not change the tokens, and
// bad input gives one line and status 1.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>

#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/utf8.h"
#include "llmc/data/token_file.h"
#include "llmc/text/text_reader.h"
#include "llmc/text/tokenizer.h"
#include "tests/compressed.h"
#include "tests/message_of.h"
#include "tests/run_program.h"
#include "tests/token_shard.h"

using Tokens = std::vector<uint16_t>;
static const std::string program = BINARY_DIR "/prepare_data";
static const std::string shared_data = SOURCE_DIR "/../shared/data/";

// Bytes as tokens, with ^ for end-of-text.
static Tokens tokens_of(const std::string& text) {
    Tokens tokens;
    for (char c : text) tokens.push_back(c == '^' ? 256 : uint8_t(c));
    return tokens;
}

struct prepare_data : InFolder {
    ProgramResult prepare(const Words& options) const {
        return run_program(with({program, "--out", folder.path, "--name", "x"}, options));
    }
    Tokens train_tokens() const { return read_shard(folder / "x_train.bin"); }
    // Prepares shards without an error, of which the one for training has these tokens.
    void expect_tokens(const std::string& tokens, const Words& options) const {
        expect_ok(prepare(options));
        EXPECT_EQ(train_tokens(), tokens_of(tokens));
    }
};

TEST_F(prepare_data, shakespeare_gives_llmc_s_counts) {
    if (!file_exists(shared_data + "tinyshakespeare.txt"))
        GTEST_SKIP() << "no ../shared/data/tinyshakespeare.txt";
    ProgramResult result =
        prepare({"--tokenizer", shared_data + "gpt2_tokenizer.bin", "--split-documents", "blank-line",
                 "--val-tokens", "32768", shared_data + "tinyshakespeare.txt"});
    ASSERT_EQ(result.status, 0) << result.err;
    Tokens val = read_shard(folder / "x_val.bin"), train = train_tokens();
    EXPECT_EQ(val.size(), 32768u);
    EXPECT_EQ(train.size(), 305260u);
    EXPECT_EQ(Tokens(val.begin(), val.begin() + 6), (Tokens{50256, 5962, 22307, 25, 198, 8421}));
    EXPECT_TRUE(contains(result.out, "338028 tokens"));
    EXPECT_EQ(result.err, "");
}

TEST_F(prepare_data, documents_and_end_of_text) {
    struct Case {
        const char *text, *whole, *split;
    } cases[] = {
        {"a", "^a", "^a"},
        {"a\n\nb", "^a\n\nb", "^a\n\n^b"},
        {"a\n\n", "^a\n\n", "^a\n\n^"},
        {"a\n\n\nb\n", "^a\n\n\nb\n", "^a\n\n^\nb\n"},
        {"\n\n\n\n", "^\n\n\n\n", "^\n\n^\n\n^"},
        {"a\r\n\r\nb\r\n\r\nc", "^a\r\n\r\nb\r\n\r\nc", "^a\r\n\r\n^b\r\n\r\n^c"},
        {"a\n\r\nb\r\n\nc\rd\r\r\n", "^a\n\r\nb\r\n\nc\rd\r\r\n", "^a\n\r\n^b\r\n\n^c\rd\r\r\n"},
    };
    for (const Case& c : cases) {
        write_whole_file(folder / "text", {c.text});
        expect_tokens(c.whole, {folder / "text"});
        expect_tokens(c.split, {"--split-documents", "blank-line", folder / "text"});
    }
    write_whole_file(folder / "one", {"a\n\n"});
    for (const char* name : {"two", "again"}) write_whole_file(folder / name, {"b"});
    expect_tokens("^a\n\n^b^b",
                  {"--split-documents", "blank-line", folder / "one", folder / "two", folder / "again"});
}

TEST_F(prepare_data, shards_are_numbered_where_there_are_several) {
    std::string text = "0123456789abcdef";
    write_whole_file(folder / "text", {text});
    expect_ok(prepare({"--shard-tokens", "5", "--val-tokens", "7", folder / "text"}));
    EXPECT_EQ(read_shard(folder / "x_val_000000.bin"), tokens_of("^0123"));
    EXPECT_EQ(read_shard(folder / "x_val_000001.bin"), tokens_of("45"));
    EXPECT_EQ(read_shard(folder / "x_train_000000.bin"), tokens_of("6789a"));
    EXPECT_EQ(read_shard(folder / "x_train_000001.bin"), tokens_of("bcdef"));
    EXPECT_FALSE(file_exists(folder / "x_train_000002.bin"));
    EXPECT_FALSE(file_exists(folder / "x_train.bin"));

    // A later run removes the shards of the earlier one, which a glob would find, and no other file.
    write_whole_file(folder / "x_train_notes.bin", {"mine"});
    expect_ok(prepare({folder / "text"}), "x_train_000001.bin: removed, an earlier shard");
    EXPECT_EQ(train_tokens(), tokens_of("^" + text));
    for (const char* stale :
         {"x_val_000000.bin", "x_val_000001.bin", "x_train_000000.bin", "x_train_000001.bin"})
        EXPECT_FALSE(file_exists(folder / stale)) << stale;
    EXPECT_TRUE(file_exists(folder / "x_train_notes.bin"));
}

// Random text made of the units, longer than several blocks.
static std::string white_text(const Words& units, size_t size, int seed) {
    std::mt19937 random(seed);
    std::string text;
    while (text.size() < size) text += units[random() % units.size()];
    return text;
}

TEST_F(prepare_data, reading_in_blocks_does_not_change_the_tokens) {
    if (!file_exists(shared_data + "gpt2_tokenizer.bin"))
        GTEST_SKIP() << "no ../shared/data/gpt2_tokenizer.bin";
    Tokenizer gpt2 = open_tokenizer(shared_data + "gpt2_tokenizer.bin");
    const std::string ideographic_space = "\u3000", full_stop = "\u3002";
    Words texts = {
        white_text({" ", "  ", "\n", "\n\n", "\t", "a", "I'll", "12", "...", "\u00a0", "\u2003",
                    ideographic_space, full_stop, "\u00e9", "\xff", "\x80", "\u1680", "\u0085"},
                   10 << 20, 1),
        std::string(5 << 20, ' ') + "end",  // only white space, so there is no safe cut
        white_text({"\n", "\n\n"}, 5 << 20, 2),
        white_text({full_stop + "\n", "漢"}, 9 << 20, 3),  // safe cuts only after non-ASCII characters
    };
    for (const std::string& text : texts) {
        write_whole_file(folder / "text", {text});
        expect_ok(prepare({"--tokenizer", shared_data + "gpt2_tokenizer.bin", folder / "text"}));
        Tokens expected = {50256};
        gpt2.encode(text, expected);
        EXPECT_TRUE(train_tokens() == expected);
    }
}

// Each thread tokenizes its own blocks; the number of threads must not change the tokens.
TEST_F(prepare_data, threads_and_files_do_not_change_the_tokens) {
    Words files;
    Tokens expected;
    for (int i = 0; i < 7; i++) {
        const std::string text = white_text({"a", "bc ", "\n\n", " d"}, (i % 3 == 0 ? 9 << 20 : 10), i);
        files.push_back(folder / ("text" + std::to_string(i)));
        write_whole_file(files.back(), {text});
        if (expected.empty() || expected.back() != 256) expected.push_back(256);
        for (size_t j = 0; j < text.size(); j++) {
            expected.push_back(uint8_t(text[j]));
            const bool blank_line =
                j > 0 && text[j] == '\n' && text[j - 1] == '\n' && expected[expected.size() - 2] == '\n';
            if (blank_line) expected.push_back(256);
        }
    }
    for (const char* threads : {"1", "3"}) {
        const ProgramResult result =
            prepare(with({"--threads", threads, "--split-documents", "blank-line"}, files));
        EXPECT_EQ(result.err, "");  // no progress bar without a terminal
        EXPECT_TRUE(train_tokens() == expected) << threads << " threads";
    }
}

TEST_F(prepare_data, documents_of_jsonl) {
    write_whole_file(folder / "a.jsonl",
                     {R"({"text": "one\n\ntwo", "id": 1})", "\n\n", R"({"id": 2, "text": "three"})", "\r\n",
                      R"({"text": ""})", "\n", R"({"text": "\u00e9\u0000"})"});
    const std::string a = folder / "a.jsonl", b = folder / "b.jsonl", again = folder / "again.jsonl";
    for (const std::string& file : {b, again}) write_whole_file(file, {R"({"text": "four"})", "\n"});
    const ProgramResult first = prepare({"--field", "text", a, b});
    EXPECT_TRUE(first.status == 0 && contains(first.err, "fields that are not read: id (--field"))
        << first.err;
    Tokens expected = tokens_of("^one\n\ntwo^three^??^four");
    const size_t accent = 16;
    expected[accent] = 0xc3;
    expected[accent + 1] = 0xa9;
    expected.insert(expected.begin() + accent + 2, uint16_t(0));
    EXPECT_EQ(train_tokens(), expected);
    expect_ok(prepare({"--field", "text", "--split-documents", "blank-line", b, a, again}));
    EXPECT_EQ(Tokens(expected.begin() + 1, expected.begin() + 4), tokens_of("one"));
    EXPECT_EQ(train_tokens().size(), expected.size() + 5 + 1);
}

TEST_F(prepare_data, several_fields_and_lists) {
    write_whole_file(folder / "a.jsonl", {R"({"q": "one", "a": "two"})", "\n", R"({"q": "three"})", "\n"});
    write_whole_file(folder / "b.jsonl", {R"({"a": "four", "q": ""})"});
    for (const char* name : {"a", "b"}) {
        const std::string file = folder / name;
        write_whole_file(file + ".list", {file + ".jsonl\n"});
    }
    const Words lists = {"--files-from", folder / "b.list", "--files-from", folder / "a.list"},
                fields = {"--field", "q", "--field", "a"};
    EXPECT_TRUE(contains(prepare(with(fields, lists)).err, "a.jsonl: line 2 has no string in a field 'a'"));
    expect_tokens("^\nfour^one\ntwo", with(with(fields, lists), {"--skip-bad-lines"}));
}

TEST_F(prepare_data, jsonl_of_many_blocks) {
    std::string lines;
    Tokens expected;
    for (int i = 0; lines.size() < (13u << 20); i++) {
        const std::string text = white_text({"x", "y ", "z\n"}, size_t(i % 100000), i);
        lines += nlohmann::json{{"content", text}}.dump() + "\n";
        if (expected.empty() || expected.back() != 256) expected.push_back(256);
        for (char c : text) expected.push_back(uint8_t(c));
    }
    write_whole_file(folder / "a.jsonl", {lines});
    expect_ok(prepare({"--field", "content", folder / "a.jsonl"}));
    EXPECT_TRUE(train_tokens() == expected);
    write_whole_file(folder / "a.jsonl", {lines, "{}\n"});
    const auto number = std::count(lines.begin(), lines.end(), '\n') + 1;
    expect_refusal(prepare({"--field", "content", folder / "a.jsonl"}),
                   "line " + std::to_string(number) + " ");
}

TEST_F(prepare_data, notes_text_that_is_not_utf8) {
    const std::string good =
        "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80 \xed\x9f\xbf \xef\xbf\xbd \xf4\x8f\xbf\xbf\n";
    for (const char* name : {"good", "again"}) write_whole_file(folder / name, {good});
    write_whole_file(folder / "latin",
                     {std::string(5 << 20, ' '), "x gr\xfc\xdf\n"});  // after the first block
    write_whole_file(folder / "zero", {std::string("a NUL is UTF-8: \0", 17)});
    const ProgramResult result =
        prepare({folder / "good", folder / "latin", folder / "again", folder / "zero"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(count_lines(result.err), 1) << result.err;
    EXPECT_TRUE(contains(result.err, "note: " + folder / "latin" + " is not UTF-8 at byte 5242884; "));
    EXPECT_EQ(find_not_utf8(good), std::string::npos);
    EXPECT_EQ(find_not_utf8(""), std::string::npos);
    for (const char* bad :
         {"\x80", "\xc0\xaf", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x9f\xbf", "\xe2\x82", "\xe2\x82(",
          "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf0\x9f\x98", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"})
        EXPECT_EQ(find_not_utf8(good + bad), good.size()) << bad;
    EXPECT_EQ(find_not_utf8(std::string("ab\0c", 4)), std::string::npos);
}

TEST_F(prepare_data, a_byte_order_mark_is_not_text) {
    write_whole_file(folder / "one", {"\xef\xbb\xbfone"});
    write_whole_file(folder / "two", {"\xef\xbb\xbftwo \xff"});
    const ProgramResult result = prepare({folder / "one", folder / "two"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(train_tokens(), tokens_of("^one^two \xff"));
    EXPECT_TRUE(contains(result.err, "not UTF-8 at byte 7;"));
    write_whole_file(folder / "a.jsonl", {"\xef\xbb\xbf{\"text\": \"a\"}"});
    expect_tokens("^a", {"--field", "text", folder / "a.jsonl"});
}

// Each compressor's output, also of several files one after the other, gives the plain text's tokens.
TEST_F(prepare_data, reads_compressed_text) {
    const std::string text = white_text({"some ", "text\n\n", "\xc3\xa9"}, 5 << 20, 3);
    write_whole_file(folder / "text", {text});
    expect_ok(prepare({folder / "text"}));
    const Tokens expected = train_tokens();
    for (const auto compress : {gzip, zstd}) {
        const std::string packed = folder / "packed";
        write_whole_file(packed, {compress(text.substr(0, 1000000)), compress(text.substr(1000000))});
        const std::string compressor = compress == gzip ? "gzip" : "zstd";
        expect_ok(prepare({packed}));
        EXPECT_TRUE(train_tokens() == expected) << compressor;

        const std::string whole = read_whole_file(packed);
        write_whole_file(packed, {whole.substr(0, whole.size() - 9)});
        expect_refusal(prepare({packed}), packed + ": its compressed data ends too early");
        std::string damaged = whole;
        for (size_t i = 0; i < 64; i++) damaged[damaged.size() / 2 + i] ^= 0x55;
        write_whole_file(packed, {damaged});
        const ProgramResult broken = prepare({packed});  // it may note what the damaged text is, too
        EXPECT_EQ(broken.status, 1) << compressor;
        EXPECT_TRUE(contains(broken.err, "compressed data"));
    }
    write_whole_file(folder / "padded", {gzip("some text\n"), std::string(600000, '\0')});
    expect_tokens("^some text\n", {folder / "padded"});
}

// A frame that declares the largest window of zstd --long=31, with one block that is not compressed.
TEST_F(prepare_data, reads_zstd_with_a_window_of_2_gib) {
    const std::string packed = folder / "packed", text = "some text\n",
                      frame = std::string("\x28\xb5\x2f\xfd\0\xa8", 6),
                      block = {char(text.size() << 3 | 1), 0, 0};
    write_whole_file(packed, {frame, block, text});
    expect_tokens("^" + text, {packed});
#if !defined(SANITIZED)  // the sanitizer reserves more addresses than any limit
    const std::string command =
        "ulimit -v 1000000; exec " + program + " --name x --out " + folder.path + " " + packed;
    expect_refusal(run_program({"sh", "-c", command}),
                   packed + ": out of memory for its zstd window of up to",
                   "2 GiB: compress it again without --long");
#endif
}

TEST_F(prepare_data, refuses_files_that_are_not_text) {
    const std::string zeros(300, '\0');
    const std::pair<std::string, const char*> cases[] = {
        {std::string("\xff\xfe\0\0t\0\0\0", 8), "UTF-32"},
        {std::string("\0\0\xfe\xff\0\0\0t", 8), "UTF-32"},
        {std::string("w\0i\0t\0h\0o\0u\0t\0 \0a\0 \0m\0a\0r\0k\0", 28), "UTF-16 without a byte order mark"},
        {"%PDF-1.7 and so on", "PDF"},
        {"\177ELF and so on", "a program"},
        {"PK\3\4 and so on", "a zip archive"},
        {"name" + zeros.substr(0, 253) + "ustar" + zeros, "a tar archive"},
        {"BZh91AY and so on", "bzip2"},
    };
    for (const auto& [bytes, name] : cases) {
        write_whole_file(folder / "file", {bytes});
        write_whole_file(folder / "file.gz", {gzip(bytes)});
        for (const char* file : {"file", "file.gz"})
            expect_refusal(prepare({folder / file}), folder / file + " is not text: it is ", name);
    }
    for (const auto compress : {gzip, zstd}) {
        write_whole_file(folder / "twice", {compress(compress("some text\n"))});
        expect_refusal(prepare({folder / "twice"}), "compressed twice");
    }
}

// Text in UTF-16, as editors on Windows write it, has the tokens of the same text in UTF-8.
TEST_F(prepare_data, reads_utf16) {
    const std::u16string text = u"A line, \u00e9, \u20ac and \U0001f600\r\n";
    const std::string in_utf8 = "A line, \u00e9, \u20ac and \U0001f600\r\n";
    std::string expected;
    std::u16string many = u"\ufeff";
    for (int i = 0; i < 20000; i++, expected += in_utf8) many += text;
    const auto bytes_of = [](const std::u16string& units, bool big_endian) {
        std::string bytes;
        for (const char16_t unit : units)
            for (const int shift : {big_endian ? 8 : 0, big_endian ? 0 : 8}) bytes += char(unit >> shift);
        return bytes;
    };
    write_whole_file(folder / "utf8", {expected});
    expect_ok(prepare({folder / "utf8"}));
    const std::vector<uint16_t> tokens = train_tokens();
    for (const bool big_endian : {false, true}) {
        write_whole_file(folder / "utf16", {bytes_of(many, big_endian)});
        const ProgramResult result = prepare({folder / "utf16"});
        EXPECT_EQ(result.err, "");
        EXPECT_EQ(train_tokens(), tokens) << big_endian;
        write_whole_file(folder / "utf16.gz", {gzip(bytes_of(many, big_endian))});
        expect_ok(prepare({folder / "utf16.gz"}));
        EXPECT_EQ(train_tokens(), tokens) << big_endian;
        const std::string whole = bytes_of(many, big_endian);
        for (const std::string& damaged :
             {bytes_of(many + u'\xd83d', big_endian), bytes_of(many + u'\xde00', big_endian),
              bytes_of(u"\ufeff\xd83d one", big_endian), whole.substr(0, whole.size() - 1)}) {
            write_whole_file(folder / "utf16", {damaged});
            EXPECT_TRUE(contains(prepare({folder / "utf16"}).err, "its UTF-16 is damaged near byte"));
        }
    }
    write_whole_file(folder / "wide.jsonl", {bytes_of(u"\ufeff{\"text\": \"one\"}\n", false)});
    expect_tokens("^one", {"--field", "text", folder / "wide.jsonl"});
    write_whole_file(folder / "list", {bytes_of(u"\ufeff", true), bytes_of(std::u16string(), true)});
    EXPECT_TRUE(contains(prepare({"--files-from", folder / "list"}).err, "names no file"));
}

TEST_F(prepare_data, standard_input_folders_and_lists) {
    TemporaryFolder texts;
    std::filesystem::create_directories(texts / "b/.hidden");
    write_whole_file(texts / "c", {"three"});
    write_whole_file(texts / "a", {"one"});
    write_whole_file(texts / "b/x", {"two"});
    write_whole_file(texts / "b/.hidden/x", {"hidden"});
    write_whole_file(texts / ".hidden", {"hidden"});
    expect_tokens("^one^two^three", {texts.path});

    write_whole_file(folder / "list", {texts / "c", "\r\n\n", texts / "a"});
    expect_tokens("^two^three^one", {"--files-from", folder / "list", texts / "b"});

    write_whole_file(folder / "list", {texts / "c", std::string(1, '\0'), texts / "a", std::string(1, '\0')});
    expect_refusal(prepare({"--files-from", folder / "list"}), "/list has a zero byte");  // find -print0

    const Words reads = {program, "--out", folder.path, "--name", "x", "-"};
    expect_ok(run_with_input(with(reads, {texts / "a"}), "four\n"));
    EXPECT_EQ(train_tokens(), tokens_of("^four\n^one"));
    expect_ok(run_with_input(reads, gzip("three")));
    EXPECT_EQ(train_tokens(), tokens_of("^three"));
    const Words lists = {program, "--out", folder.path, "--name", "x", "--files-from", "-"};
    expect_ok(run_with_input(lists, texts / "a" + "\n" + texts / "c" + "\n"));
    EXPECT_EQ(train_tokens(), tokens_of("^one^three"));
}

// Of folders, pictures and other binaries are left out and counted; a file that is named is refused.
TEST_F(prepare_data, folders_may_hold_files_that_are_not_text) {
    TemporaryFolder texts;
    std::filesystem::create_directories(texts / "b");
    write_whole_file(texts / "a.md", {"one"});
    write_whole_file(texts / "b/c.txt", {"two"});
    write_whole_file(texts / "b/picture.png", {"\x89PNG\r\n\x1a\n"});
    write_whole_file(texts / "b/sound", {std::string("ID3") + '\0' + std::string(9000, 'x')});
    const auto left_out = [](const std::string& what) {
        return "note: " + what.substr(0, what.find(':')) +
               " left out of folders; the first: " + what.substr(what.find(':') + 1) + "\n";
    };
    const ProgramResult all = prepare({texts.path});
    EXPECT_EQ(train_tokens(), tokens_of("^one^two"));
    EXPECT_EQ(all.err,
              left_out("2 entries were:" + texts / "b/picture.png" + " is not text: it is a picture"));
    std::filesystem::create_directories(texts / "b/.git");
    std::filesystem::create_directory_symlink(texts / "b", texts / "again");
    std::filesystem::create_symlink(texts / "nowhere", texts / "broken");
    mkfifo((texts / "pipe").c_str(), 0600);
    EXPECT_EQ(prepare({texts.path}).err,
              left_out("6 entries were:" + texts / "b/picture.png" + " is not text: it is a picture"));
    for (const char* name : {"b/picture.png", "b/sound", "broken", "pipe", "again"})
        std::filesystem::remove(texts / name);
    EXPECT_EQ(prepare({texts.path}).err, left_out("1 entry was:" + texts / "b/.git is hidden"));
    std::filesystem::remove(texts / "b/.git");
    const ProgramResult some = prepare({"--include", "*.md", "--include", "*.tex", texts.path});
    EXPECT_EQ(train_tokens(), tokens_of("^one"));
    EXPECT_EQ(some.err, "note: --include '*.tex': no text file of a folder has such a name\n");
    for (const Words& none : std::vector<Words>{{texts / "b/none.png"}, {"--include", "*.tex", texts.path}})
        EXPECT_EQ(prepare(none).status, 1);
    EXPECT_TRUE(
        contains(prepare({"--include", "*.md", texts / "a.md"}).err, "and " + texts / "a.md is none"));
}

TEST_F(prepare_data, skips_bad_lines_and_counts_them) {
    write_whole_file(folder / "a.jsonl", {R"({"text": "one"})", "\nnot JSON\n", R"({"text": 5})", "\n{}\n",
                                          R"({"text": "two"})", "\n"});
    EXPECT_EQ(prepare({"--field", "text", folder / "a.jsonl"}).status, 1);
    const ProgramResult result = prepare({"--skip-bad-lines", "--field", "text", folder / "a.jsonl"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(train_tokens(), tokens_of("^one^two"));
    EXPECT_EQ(count_lines(result.err), 1) << result.err;
    EXPECT_TRUE(contains(result.err,
                         "note: 3 bad lines were left out; the first: " + folder / "a.jsonl" + ": line 2 "));
}

// The documents of a shard in which each begins with end-of-text.
static Words documents_of(const Tokens& tokens) {
    Words documents;
    for (uint16_t token : tokens)
        if (token == 256)
            documents.emplace_back();
        else
            documents.back() += char(token);
    return documents;
}

// validation_draw_test has what is drawn.
TEST_F(prepare_data, validation_documents_follow_the_seed) {
    const std::string text = numbered(1000, "document ", "\n\n");
    write_whole_file(folder / "text", {text});
    auto draw = [&](const std::string& seed) {
        expect_ok(prepare(
            {"--split-documents", "blank-line", "--val-fraction", "0.05", "--seed", seed, folder / "text"}));
        return documents_of(read_shard(folder / "x_val.bin"));
    };
    const Words drawn = draw("1");
    Words all = documents_of(train_tokens());
    EXPECT_NEAR(double(drawn.size()), 50, 1);
    all.insert(all.end(), drawn.begin(), drawn.end());
    std::sort(all.begin(), all.end());
    EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
    EXPECT_EQ(all.size(), 1001u);  // with the end-of-text after the last blank line
    EXPECT_EQ(draw("1"), drawn);
    EXPECT_NE(draw("2"), drawn);
}

TEST_F(prepare_data, marks_of_end_of_text_end_documents) {
    write_whole_file(folder / "marked",
                     {"<|endoftext|>one\n<|endoftext|><|endoftext|>two<|endoftext|>\nthree"});
    const ProgramResult as_text = prepare({folder / "marked"});
    EXPECT_TRUE(contains(as_text.err, "4 marks such as <|endoftext|>"));
    EXPECT_TRUE(contains(as_text.err, "--split-documents endoftext"));
    for (const Words& options : {Words{"--split-documents", "endoftext"}, {"--special-tokens"}}) {
        const ProgramResult result = prepare(with(options, {folder / "marked"}));
        ASSERT_EQ(result.status, 0) << result.err;
        EXPECT_FALSE(contains(result.err, "note"));
        const bool ends_documents = options.size() > 1;  // not a token like another
        EXPECT_TRUE(train_tokens() == tokens_of(ends_documents ? "^one^two^three" : "^one\n^two^\nthree"));
    }
    write_whole_file(folder / "marked.jsonl", {R"({"text": "one<|endoftext|>two"})", "\n"});
    expect_tokens("^one^two", {"--field", "text", "--split-documents", "endoftext", folder / "marked.jsonl"});
}

// As people have them: each mark on a line of its own, with or without blank lines. Blocks do not matter.
TEST_F(prepare_data, a_newline_next_to_a_mark_belongs_to_it) {
    for (const std::string line : {"\n", "\r\n"}) {
        std::string text, expected;
        for (int i = 0; i < 3000; i++) {
            const std::string word = "a text," + line + line + "number " + std::to_string(i * i);
            text += word + line + "<|endoftext|>" + line;
            expected += "^" + word;
        }
        text += line + "  indented" + line + line + "<|endoftext|>" + line + line + "last" + line;
        expected += "^" + line + "  indented" + line + "^" + line + "last" + line;
        TextOptions options = {.split = DocumentSplit::end_of_text};
        write_whole_file(folder / "text", {text});
        for (const size_t block_bytes : {1u, 40u, 1u << 20}) {
            Tokenizer tokenizer = open_tokenizer("bytes");
            TextReader reader({folder / "text"}, options);
            reader.block_bytes = block_bytes;
            reader.tokenizer = &tokenizer;
            Tokens tokens = {256};
            for (TextBlock block; reader.next(block); block = {}) {
                const EncodedBlock encoded = encode_block(block, options, tokenizer);
                const bool repeats =
                    !encoded.tokens.empty() && encoded.tokens[0] == 256 && tokens.back() == 256;
                tokens.insert(tokens.end(), encoded.tokens.begin() + repeats, encoded.tokens.end());
            }
            EXPECT_TRUE(tokens == tokens_of(expected)) << block_bytes;
        }
    }
}

// Blocks do not end within a mark or after one that takes the white space behind it.
TEST_F(prepare_data, marks_do_not_depend_on_blocks) {
    Tokenizer tokenizer = open_tokenizer("bytes");
    tokenizer.tokens.push_back("<a mark>");
    tokenizer.tokens.push_back("end");
    tokenizer.added = {
        {.id = 256, .special = true}, {.id = 257, .lstrip = true}, {.id = 258, .rstrip = true}};
    std::string text;
    for (int i = 0; i < 3000; i++) text += std::string(i % 3, ' ') + (i % 2 ? "<a mark>" : "end") + " w";
    write_whole_file(folder / "text", {text});
    Tokens whole, blocks;
    tokenizer.encode(text, whole, AddedTokens::all);
    TextReader reader({folder / "text"}, {.special_tokens = true});
    reader.tokenizer = &tokenizer;
    reader.block_bytes = 7;
    size_t count = 0;
    for (TextBlock block; reader.next(block); count++)
        for (uint16_t token : encode_block(block, reader.options, tokenizer).tokens) blocks.push_back(token);
    EXPECT_GT(count, 500u);
    EXPECT_TRUE(blocks == whole);
}

TEST_F(prepare_data, jsonl_is_not_taken_for_text) {
    const std::string line = "{\"id\": 1, \"story\": \"once\"}\n";
    for (const char* name : {"a.ndjson", "a.JSONL", "a.json", "a.txt", "a"}) {
        write_whole_file(folder / name, {line, line});
        expect_refusal(prepare({folder / name}), "--field");
        expect_ok(prepare({"--as-text", folder / name}));
        expect_ok(prepare({"--field", "story", folder / name}));
    }
    expect_refusal(run_with_input({program, "--name", "x", "--out", folder.path, "-"},
                                  read_whole_file(folder / "a.txt")),
                   "standard input has JSON objects on its lines: name the field that holds the text, as in "
                   "--field story");
    write_whole_file(folder / "a.txt", {R"({"prompt": "a", "prompt": "b", "completion": "c"})", "\n"});
    expect_refusal(prepare({folder / "a.txt"}), "two members 'prompt'");
    write_whole_file(folder / "array.json", {"[\n {\"a\": 1}]"});
    for (const Words& options : {Words{}, {"--field", "a"}})
        expect_refusal(prepare(with(options, {folder / "array.json"})), "jq -c");
    write_whole_file(folder / "settings.json", {"{\n  \"a\": 1\n}\n"});
    expect_ok(prepare({folder / "settings.json"}));  // a document
    write_whole_file(folder / "bad.jsonl", {"{\"text\": \"a\"\n"});
    expect_refusal(prepare({"--field", "text", folder / "bad.jsonl"}),
                   "line 1 is not a JSON object: parse error");
}

// A small file that unpacks to gigabytes: raw blocks of zstd that repeat one byte.
TEST_F(prepare_data, an_endless_document_is_one_line) {
    std::string packed("\x28\xb5\x2f\xfd\0\x58", 6);   // a window of 2 MiB
    const uint32_t block = 1 << 1 | (128 << 10) << 3;  // 128 KiB of one byte
    for (int i = 0; i < 16384; i++)
        packed += std::string({char(block), char(block >> 8), char(block >> 16), 'a'});
    write_whole_file(folder / "packed", {packed});
    expect_refusal(prepare({"--field", "text", folder / "packed"}), "33554432 bytes without");
    TextReader reader({folder / "packed"}, {});  // not for bytes, which may be cut anywhere
    TextBlock text;
    expect_error("--tokenizer bytes", [&] { reader.next(text); });
    expect_error("more than 33554432 bytes", [&] { read_text_file(folder / "packed"); });
}

// White space of any length is text for bytes, but where a cut would divide a blank line.
TEST_F(prepare_data, bytes_may_be_any_white_space) {
    const size_t most = 32 << 20;
    for (const char white : {' ', '\n'})
        for (const DocumentSplit split : {DocumentSplit::automatic, DocumentSplit::blank_line}) {
            const std::string path = folder / "white";
            write_whole_file(path, {std::string(most + 4, white), "text"});
            Tokenizer bytes = open_tokenizer("bytes");
            TextReader reader({path}, {.split = split});
            reader.block_bytes = most;
            reader.tokenizer = &bytes;
            TextBlock block;
            if (white == '\n' && split == DocumentSplit::blank_line) {
                expect_error("33554432 bytes without anything but line ends", [&] { reader.next(block); });
                continue;
            }
            EXPECT_TRUE(reader.next(block) && block.text.size() == most);
            EXPECT_TRUE(reader.next(block) && block.text == std::string(4, white) + "text");
        }
}

TEST_F(prepare_data, pointers_and_small_stacks_are_refused) {
    write_whole_file(folder / "text", {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"});
    expect_refusal(prepare({folder / "text"}), "git lfs pull");
    expect_refusal(run_program({"env", "OMP_STACKSIZE=16k", program, "--name", "x", folder.path}),
                   "OMP_STACKSIZE=16k: the stacks of threads need at least 1M; leave it out");
}

TEST_F(prepare_data, bad_input_gives_one_line_and_status_1) {
    write_whole_file(folder / "text", {"some text\n"});
    write_whole_file(folder / "empty", {""});
    std::filesystem::create_directory(folder / "none");
    write_whole_file(folder / "deep.jsonl", {R"({"text": "a", "more": )", std::string(100000, '['),
                                             std::string(100000, ']'), "}\n"});
    const std::string out = folder.path, text = folder / "text";
    expect_refusals(program, {{},
                              {"--name", "x", text},
                              {"--out", out, text},
                              {"--out", out, "--name", "a/b", text},
                              {"hellaswag", "--out", folder / "h.bin"},
                              {"hellaswag", "--out", folder / "h.bin", text},
                              {"hellaswag", text},
                              {"hellaswag", "--out", folder / "h.bin", folder / "deep.jsonl"},
                              {"hellaswag", "--out", folder / "h.bin", folder / "empty"},
                              {"--out", text, "--name", "x", text}});
    for (const Words& options : std::vector<Words>{{},
                                                   {"--val-tokens", "11", text},
                                                   {"--shard-tokens", "0", text},
                                                   {"--shard-tokens", "2147483648", text},
                                                   {"--tokenizer", folder / "missing.bin", text},
                                                   {"--tokenizer", text, text},
                                                   {folder / "missing"},
                                                   {text, folder / "missing"},
                                                   {folder / "empty"},
                                                   {folder / "none"},
                                                   {"-", "-"},
                                                   {"--files-from", folder / "empty"},
                                                   {"--val-fraction", "0.1", text},  // draws nothing
                                                   {"--val-fraction", "0.6", text},
                                                   {"--val-fraction", "0.1", "--val-tokens", "3", text},
                                                   {"--skip-bad-lines", text},
                                                   {"--field", "text", text},
                                                   {folder / "some.jsonl"},
                                                   {"--field", "text", folder / "deep.jsonl"}})
        expect_refusals(program, {with({"--out", out, "--name", "x"}, options)});
    EXPECT_FALSE(file_exists(folder / "x_train.bin"));
}
