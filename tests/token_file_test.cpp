// Token shards: files match llm.c's format byte for byte and are read back; damaged files are refused with
// one line that names the file.
#include "llmc/data/token_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/data/ignored_target.h"
#include "tests/message_of.h"
#include "tests/run_program.h"
#include "tests/token_shard.h"

static std::string error_of(const std::string& path) {
    return message_of([&] { open_token_shard(path); });
}

// A shard built by hand: header fields, then tokens.
static std::string shard_bytes(int32_t magic, int32_t version, int32_t count, std::vector<uint16_t> tokens) {
    std::string bytes(1024 + 2 * tokens.size(), '\0');
    int32_t header[3] = {magic, version, count};
    memcpy(bytes.data(), header, sizeof(header));
    if (!tokens.empty()) memcpy(bytes.data() + 1024, tokens.data(), 2 * tokens.size());
    return bytes;
}

using token_file = InFolder;

TEST_F(token_file, writes_the_exact_format_and_reads_it_back) {
    std::vector<uint16_t> tokens = {0, 1, 255, 256, 50256, 65535, 7};
    write_token_shard(folder / "a.bin", tokens.data(), tokens.size());
    EXPECT_EQ(read_whole_file(folder / "a.bin"), shard_bytes(20240520, 1, 7, tokens));
    EXPECT_FALSE(std::filesystem::exists(temporary_of(folder / "a.bin")));

    TokenShard shard = open_token_shard(folder / "a.bin");
    ASSERT_EQ(shard.tokens, tokens.size());
    for (size_t first = 0; first <= tokens.size(); first++)
        for (size_t count = 0; first + count <= tokens.size(); count++) {
            std::vector<uint16_t> got(count);
            read_tokens(shard, first, count, got.data());
            EXPECT_TRUE(std::equal(got.begin(), got.end(), tokens.begin() + ptrdiff_t(first)));
        }
}

TEST_F(token_file, refuses_ranges_outside_the_shard) {
    uint16_t tokens[4] = {1, 2, 3, 4};
    write_token_shard(folder / "a.bin", tokens, 4);
    TokenShard shard = open_token_shard(folder / "a.bin");
    EXPECT_THROW(read_tokens(shard, 0, 5, tokens), Error);
    EXPECT_THROW(read_tokens(shard, 4, 1, tokens), Error);
    EXPECT_THROW(read_tokens(shard, ~uint64_t(0), 2, tokens), Error);
    EXPECT_THROW(read_tokens(shard, 2, ~uint64_t(0), tokens), Error);
    std::filesystem::resize_file(shard.path, 1024 + 6);  // the file shrinks after it was opened
    EXPECT_THROW(read_tokens(shard, 0, 4, tokens), Error);
}

TEST_F(token_file, positions_past_4_gib_are_read_correctly) {
    const uint64_t count = max_shard_tokens;
    write_whole_file(folder / "big.bin", {shard_bytes(20240520, 1, int32_t(count), {})});
    std::error_code full;
    std::filesystem::resize_file(folder / "big.bin", 1024 + 2 * count, full);  // sparse: takes no disk space
    if (full) GTEST_SKIP() << "no sparse 4 GiB file here: " << full.message();
    uint16_t last = 4711;
    FILE* file = fopen((folder / "big.bin").c_str(), "r+b");
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(fseeko(file, off_t(1024 + 2 * (count - 1)), SEEK_SET), 0);
    EXPECT_EQ(fwrite(&last, 2, 1, file), 1u);
    fclose(file);
    uint16_t got[2] = {1, 1};
    read_tokens(open_token_shard(folder / "big.bin"), count - 2, 2, got);
    EXPECT_EQ(got[0], 0);
    EXPECT_EQ(got[1], 4711);
}

TEST_F(token_file, damaged_files_are_refused_by_name) {
    std::string good = shard_bytes(20240520, 1, 3, {1, 2, 3});
    struct Case {
        const char* expected;
        std::string bytes;
    } cases[] = {
        {"too short", ""},
        {"too short", good.substr(0, 1023)},
        {"not a token shard", shard_bytes(20240521, 1, 3, {1, 2, 3})},
        {"version 2", shard_bytes(20240520, 2, 3, {1, 2, 3})},
        {"-1 tokens", shard_bytes(20240520, 1, -1, {1, 2, 3})},
        {"truncated", good.substr(0, good.size() - 1)},
        {"truncated", shard_bytes(20240520, 1, 2147483647, {1, 2, 3})},
        {"too long", good + "x"},
    };
    for (const Case& c : cases) {
        write_whole_file(folder / "bad.bin", {c.bytes});
        std::string error = error_of(folder / "bad.bin");
        EXPECT_TRUE(contains(error, c.expected));
        EXPECT_TRUE(contains(error, folder / "bad.bin"));
    }
    EXPECT_TRUE(contains(error_of(folder / "missing.bin"), "No such file"));
    EXPECT_TRUE(contains(error_of(folder.path), "directory"));
    EXPECT_TRUE(contains(error_of("/dev/null"), "not a regular file"));
}

TEST_F(token_file, a_failed_write_leaves_no_file) {
    uint16_t token = 1;
    EXPECT_THROW(write_token_shard(folder / "no/such/folder.bin", &token, 1), Error);
    EXPECT_THROW(write_token_shard(folder / "a.bin", &token, max_shard_tokens + 1), Error);
    std::filesystem::create_directory(folder / "b.bin");
    EXPECT_THROW(write_token_shard(folder / "b.bin", &token, 1), Error);
    EXPECT_FALSE(std::filesystem::exists(temporary_of(folder / "b.bin")));
}

TEST_F(token_file, tokens_outside_the_vocabulary_are_named) {
    const TokenShard shard = {"some.bin", 10, ""};
    const uint16_t tokens[] = {0, 66, 67, 68};
    check_tokens(shard, 5, std::span(tokens, 2), 67);
    EXPECT_EQ(
        message_of([&] { check_tokens(shard, 5, tokens, 67); }),
        "some.bin: token 7 is 67, but the model's vocabulary has 67; is the shard for another tokenizer?");
}

// The whole of a small file, the ends of a large one.
TEST_F(token_file, the_checksum_tells_shards_apart) {
    for (size_t count : {size_t(0), size_t(1), size_t(1000), size_t(3) << 20}) {
        std::vector<uint16_t> tokens(count, 5);
        auto checksum = [&] {
            write_token_shard(folder / "a.bin", tokens.data(), count);
            return open_token_shard(folder / "a.bin").checksum;
        };
        const std::string before = checksum();
        EXPECT_EQ(checksum(), before);
        for (size_t at : {size_t(0), count / 2, count - 1}) {
            if (at >= count || (count > 1000 && at == count / 2)) continue;
            tokens[at] = 6;
            EXPECT_NE(checksum(), before) << at << " of " << count;
            tokens[at] = 5;
        }
    }
}

// A run reads its shards by name, again and again.
TEST_F(token_file, a_shard_that_changes_while_it_is_read_is_refused) {
    const std::string path = folder / "a.bin";
    std::vector<uint16_t> tokens(100, 5);
    write_token_shard(path, tokens.data(), 100);
    const TokenShard shard = open_token_shard(path);
    uint16_t token = 0;
    std::filesystem::last_write_time(path, std::filesystem::file_time_type());  // a copy of the same content
    read_tokens(shard, 7, 1, &token);
    EXPECT_EQ(token, 5);
    for (const size_t count : {size_t(100), size_t(200), size_t(50)}) {
        tokens.assign(count, 6);
        write_token_shard(path, tokens.data(), count);
        expect_error(path, [&] { read_tokens(shard, 7, 1, &token); });
        EXPECT_EQ(token, 5) << count;
    }
}

static void write_masked(const std::string& path, int first_target) {
    const std::vector<uint16_t> tokens(77, 5);
    std::vector<bool> targets(77, true);
    for (int i = 0; i < first_target; i++) targets[i] = false;
    TokenShardWriter writer(path);
    writer.add(tokens.data(), tokens.size(), targets);
    writer.finish();
}

// The shard is as without a mask, and the mask a part of what identifies it.
TEST(TokenFile, Masks) {
    TemporaryFolder folder;
    const std::string shard = folder / "my_train.bin", mask = folder / "my_train.mask";
    EXPECT_EQ(mask_of(shard), mask);
    EXPECT_EQ(mask_of(shard + std::string(staged_suffix)), mask + std::string(staged_suffix));
    EXPECT_EQ(mask_of("bin"), "");
    std::set<std::string> checksums;
    write_token_shard(shard, std::vector<uint16_t>(77, 5).data(), 77);
    const std::string plain = read_whole_file(shard);
    checksums.insert(open_token_shard(shard).checksum);
    for (const int first : {3, 76}) {
        write_masked(shard, first);
        EXPECT_TRUE(read_whole_file(shard) == plain);
        const TokenShard opened = open_token_shard(shard);
        checksums.insert(opened.checksum);
        std::vector<int> targets(70, 5);
        ignore_targets(opened, 7, targets);
        EXPECT_EQ(
            targets, first == 3 ? std::vector<int>(70, 5) : [] {
                std::vector<int> last(70, ignored_target);
                last.back() = 5;
                return last;
            }());
    }
    EXPECT_EQ(checksums.size(), 3u);
    EXPECT_TRUE(is_mask(mask) && !is_mask(shard));
    const std::string whole = read_whole_file(mask);
    std::string packed = whole;  // the header says into which sequences
    packed[12] = 24;
    write_whole_file(mask, {packed});
    EXPECT_FALSE(open_token_shard(shard).cuts_examples(24) || open_token_shard(shard).cuts_examples(48));
    EXPECT_TRUE(open_token_shard(shard).cuts_examples(12) && open_token_shard(shard).cuts_examples(32));
    packed[15] = char(0x80);
    write_whole_file(mask, {packed});
    expect_error("is not the mask", [&] { open_token_shard(shard); });
    write_whole_file(mask, {whole});
    EXPECT_FALSE(open_token_shard(shard).cuts_examples(32));  // unknown
    for (const std::string& wrong : {whole.substr(0, whole.size() - 1), whole + "x", plain, std::string()}) {
        write_whole_file(mask, {wrong});
        EXPECT_EQ(message_of([&] { open_token_shard(shard); }),
                  mask + " is not the mask of the 77 tokens of " + shard +
                      ": prepare the data again, or remove it");
    }
}
