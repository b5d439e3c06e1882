// Data positions carried over to other batch sizes and other shards: no token is drawn twice in an epoch.
#include "llmc/data/saved_shards.h"

#include <gtest/gtest.h>

#include <set>

#include "llmc/base/error.h"
#include "tests/message_of.h"
#include "tests/run_program.h"
#include "tests/token_shard.h"

// Shards whose tokens are numbered, so a batch shows where it was read.
struct Shards : TemporaryFolder {
    void write(const std::string& name, int first, int count) const {
        std::vector<uint16_t> tokens(static_cast<size_t>(count));
        for (int i = 0; i < count; i++) tokens[size_t(i)] = uint16_t(first + i);
        write_token_shard(*this / name, tokens.data(), tokens.size());
    }
    DataLoader open(int B, int T, bool should_shuffle = true) const {
        return DataLoader(*this / "*.bin", B, T, 65536, should_shuffle);
    }
};

static std::set<int> read(DataLoader& loader, int batches, int tokens) {
    std::set<int> seen;
    std::vector<int> inputs(static_cast<size_t>(tokens)), targets(inputs.size());
    for (int i = 0; i < batches; i++) {
        loader.next_batch(inputs.data(), targets.data());
        seen.insert(inputs.begin(), inputs.end());
    }
    return seen;
}

static std::set<int> both(const std::set<int>& a, const std::set<int>& b) {
    std::set<int> common;
    for (int x : a)
        if (b.count(x)) common.insert(x);
    return common;
}

TEST(SavedShards, OrderedPositionsCountTokens) {
    Shards shards;
    shards.write("a.bin", 0, 1001);
    shards.write("b.bin", 2000, 1001);
    DataLoader first = shards.open(2, 10, false), second = shards.open(3, 10, false);
    read(first, 50 + 30, 20);  // 600 tokens of the second shard
    second.resume(fit_position(first.position(), shards_of(first), second));
    EXPECT_EQ(*read(second, 1, 30).begin(), 2600);
}

TEST(SavedShards, NewShardsFollowAndNothingIsReadTwice) {
    Shards shards;
    for (int i = 0; i < 4; i++) shards.write(format_string("m%d.bin", i), 1000 * i, 101);
    DataLoader first = shards.open(1, 10);
    const std::set<int> before = read(first, 25, 10);  // two and a half shards
    const DataPosition saved = first.position();
    const std::vector<SavedShard> saved_shards = shards_of(first);
    shards.write("a.bin", 10000, 101);  // sorted before the others
    shards.write("z.bin", 20000, 101);
    DataLoader second = shards.open(1, 10);
    second.resume(fit_position(saved, saved_shards, second));
    const std::set<int> after = read(second, 35, 10);  // the rest of the epoch
    EXPECT_TRUE(both(before, after).empty());
    EXPECT_EQ(before.size() + after.size(), 600u);
}

TEST(SavedShards, AShardThatWasReadMayBeRemoved) {
    Shards shards;
    for (int i = 0; i < 3; i++) shards.write(format_string("m%d.bin", i), 1000 * i, 101);
    DataLoader first = shards.open(1, 10);
    read(first, 15, 10);
    const DataPosition saved = first.position();
    const std::vector<SavedShard> saved_shards = shards_of(first);
    auto path_of = [&](int index) {
        return shards / saved_shards[size_t(saved.shard_indices[size_t(index)])].name;
    };
    std::filesystem::remove(path_of(0));
    DataLoader second = shards.open(1, 10);
    second.resume(fit_position(saved, saved_shards, second));
    EXPECT_EQ(second.position().current_shard, 0u);
    EXPECT_EQ(second.position().current_sample, 5u);
    std::filesystem::remove(path_of(1));  // the current shard
    DataLoader third = shards.open(1, 10);
    const std::string message = message_of([&] { fit_position(saved, saved_shards, third); });
    EXPECT_TRUE(contains(message, "stopped in the training shard"));
}

// Content is compared file by file, however a batch joins them.
TEST(SavedShards, OtherContentIsSeen) {
    Shards shards;
    for (int i = 0; i < 3; i++) shards.write(format_string("m%d.bin", i), 1000 * i, 101);
    const std::vector<SavedShard> saved[] = {shards_of(shards.open(1, 10)), shards_of(shards.open(7, 20))};
    ASSERT_NE(saved[0].size(), saved[1].size());
    const auto is_seen = [&] {
        std::string seen;
        for (const int B : {1, 7})
            for (const std::vector<SavedShard>& before : saved)
                seen += have_content(shards.open(B, B == 1 ? 10 : 20), before) ? "=" : "x";
        return seen;
    };
    EXPECT_EQ(is_seen(), "====");
    std::filesystem::rename(shards / "m1.bin", shards / "m1b.bin");
    EXPECT_EQ(is_seen(), "====");
    shards.write("z.bin", 3000, 101);  // one more
    EXPECT_EQ(is_seen(), "xxxx");
    std::filesystem::remove(shards / "z.bin");
    shards.write("m1b.bin", 5000, 101);  // as many tokens
    EXPECT_EQ(is_seen(), "xxxx");
    std::filesystem::remove(shards / "m1b.bin");
    EXPECT_EQ(is_seen(), "xxxx");
}

// A position among the leftover tokens of the old shards: under other shards, the current shard is done. Also
// at the very first leftover token, and inside a sample.
TEST(SavedShards, LeftoversOfOtherShardsAreSkipped) {
    Shards shards;
    shards.write("a.bin", 0, 106);  // ten samples of 10, 5 tokens left over
    shards.write("b.bin", 2000, 106);
    for (int batches : {20, 21}) {
        DataLoader first = shards.open(1, 10, false);
        read(first, batches, 10);
        DataPosition saved = first.position();
        ASSERT_EQ(saved.current_sample, batches == 20 ? 10u : 11u);
        saved.token_in_sample = 3;
        const std::vector<SavedShard> saved_shards = shards_of(first);
        shards.write("c.bin", 4000, 101);
        DataLoader second = shards.open(1, 10, false);
        const DataPosition at = fit_position(saved, saved_shards, second);
        EXPECT_EQ(at.current_shard, 1u);
        EXPECT_EQ(at.current_sample, 10u);
        EXPECT_EQ(at.token_in_sample, 0u);
        second.resume(at);
        EXPECT_EQ(*read(second, 1, 10).begin(), 4000);
        std::filesystem::remove(shards / "c.bin");
    }
}

// A checkpoint names the content of its shards.
TEST(SavedShards, AChangedShardIsRefused) {
    Shards shards;
    shards.write("a.bin", 0, 1001);
    shards.write("b.bin", 2000, 801);
    DataLoader first = shards.open(2, 10);
    read(first, 5, 20);
    std::vector<SavedShard> saved = shards_of(first);
    for (const char* name : {"a.bin", "b.bin"}) {  // the current shard, and one to come
        shards.write(name, 7000, name[0] == 'a' ? 1001 : 801);
        DataLoader second = shards.open(2, 10);
        const std::string message = message_of([&] { fit_position(first.position(), saved, second); });
        EXPECT_TRUE(contains(message, std::string("shard ") + name + " has other tokens"));
        shards.write(name, name[0] == 'a' ? 0 : 2000, name[0] == 'a' ? 1001 : 801);
    }
}

// Shards of several folders, with the same names and lengths.
TEST(SavedShards, ShardsOfTheSameNameAreToldApart) {
    Shards shards;
    for (const char* folder : {"da", "de", "en"}) create_folders(shards / folder);
    shards.write("de/my.bin", 0, 1001);
    shards.write("en/my.bin", 2000, 1001);
    const auto open = [&] { return DataLoader(shards / "*/my.bin", 2, 10, 65536, true); };
    DataLoader first = open(), second = open();
    const std::set<int> before = read(first, 60, 20);  // one, and a part of the other
    second.resume(fit_position(first.position(), shards_of(first), second));
    EXPECT_TRUE(both(before, read(second, 40, 20)).empty());
    shards.write("da/my.bin", 4000, 1001);  // comes first
    DataLoader third = open();
    third.resume(fit_position(first.position(), shards_of(first), third));
    const std::set<int> rest = read(third, 90, 20);
    EXPECT_TRUE(both(before, rest).empty());
    EXPECT_EQ(before.size() + rest.size(), 3000u);
}

TEST(SavedShards, DamagedOnesAreRefused) {
    Shards shards;
    shards.write("a.bin", 0, 1001);
    DataLoader loader = shards.open(1, 10);
    const std::vector<SavedShard> other = {{"b.bin", 5}};
    auto refused = [&](auto change, const std::vector<SavedShard>& saved_shards) {
        DataPosition at = loader.position();
        change(at);
        return !message_of([&] { loader.resume(fit_position(at, saved_shards, loader)); }).empty();
    };
    const std::vector<SavedShard> same = shards_of(loader);
    EXPECT_FALSE(refused([](DataPosition&) {}, same));
    EXPECT_TRUE(refused([](DataPosition& at) { at.shard_indices[0] = -1; }, other));
    EXPECT_TRUE(refused([](DataPosition& at) { at.shard_indices[0] = 7; }, same));
    EXPECT_TRUE(refused([](DataPosition& at) { at.shard_indices.clear(); }, same));
    EXPECT_TRUE(refused([](DataPosition& at) { at.current_shard = 9; }, same));
    EXPECT_TRUE(refused([](DataPosition& at) { at.current_shard = 9; }, other));
    EXPECT_TRUE(refused([](DataPosition& at) { at.intra_shard_indices[3] = 1 << 30; }, same));
    EXPECT_TRUE(refused([](DataPosition& at) { at.intra_shard_indices[3] = -5; }, same));
}
