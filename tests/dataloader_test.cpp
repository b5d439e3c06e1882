// The data loader: order, epochs, shards of all sizes, exact resume, and bad data.
#include "llmc/dataloader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "llmc/error.h"
#include "llmc/file.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

// Writes a shard of the tokens first, first + 1, ...
static void write_counting(const std::string& path, uint64_t count, uint16_t first = 0) {
    std::vector<uint16_t> tokens(count + 1);  // never empty, so that data() is no null pointer
    std::iota(tokens.begin(), tokens.end(), first);
    write_token_shard(path, tokens.data(), count);
}

// The first input of the next batch; all inputs must count up from it, and targets be one further.
static int next_first(DataLoader& loader, int batch_tokens) {
    std::vector<int> inputs(batch_tokens, -1), targets(batch_tokens, -1);
    loader.next_batch(inputs.data(), targets.data());
    for (int i = 0; i < batch_tokens; i++) {
        EXPECT_EQ(inputs[i], inputs[0] + i);
        EXPECT_EQ(targets[i], inputs[0] + i + 1);
    }
    return inputs[0];
}

static std::vector<int> next_firsts(DataLoader& loader, int batch_tokens, int count) {
    std::vector<int> firsts;
    for (int i = 0; i < count; i++) firsts.push_back(next_first(loader, batch_tokens));
    return firsts;
}

TEST(DataLoader, InOrder) {
    TemporaryFolder folder;
    write_counting(folder / "b.bin", 24, 100);  // 24 tokens: two batches of 8, the third would need 25
    write_counting(folder / "a.bin", 25);
    DataLoader loader(folder / "*.bin", 2, 4, 1000, false);
    EXPECT_EQ(loader.num_tokens(), 49u);
    EXPECT_EQ(loader.num_batches(), 5u);
    EXPECT_EQ(next_firsts(loader, 8, 7), (std::vector<int>{0, 8, 16, 100, 108, 0, 8}));
    loader.reset();
    EXPECT_EQ(next_first(loader, 8), 0);
    DataLoader exact(folder / "a.bin", 1, 24, 1000, false);
    EXPECT_EQ(next_firsts(exact, 24, 2), (std::vector<int>{0, 0}));
}

TEST(DataLoader, ShuffleCoversEveryChunkOnceAnEpoch) {
    TemporaryFolder folder;
    write_counting(folder / "a.bin", 161);
    write_counting(folder / "b.bin", 85, 1000);
    write_counting(folder / "c.bin", 41, 2000);
    DataLoader loader(folder / "*.bin", 2, 4, 3000, true), same(folder / "*.bin", 2, 4, 3000, true);
    std::vector<int> epochs[3];
    for (auto& epoch : epochs) {
        epoch = next_firsts(loader, 8, int(loader.num_batches()));
        EXPECT_EQ(epoch, next_firsts(same, 8, int(loader.num_batches())));
        std::set<int> seen(epoch.begin(), epoch.end());
        EXPECT_EQ(seen.size(), 20u + 10 + 5);
        EXPECT_EQ(*seen.begin(), 0);
        EXPECT_EQ(*seen.rbegin(), 2032);
    }
    EXPECT_NE(epochs[0], epochs[1]);
    EXPECT_NE(epochs[1], epochs[2]);
    DataLoader other(folder / "*.bin", 2, 4, 3000, true, 43);
    EXPECT_NE(next_firsts(other, 8, 35), epochs[0]);
}

TEST(DataLoader, OrderIsLlmcs) {
    TemporaryFolder folder;
    write_counting(folder / "a.bin", 81);
    DataLoader loader(folder / "a.bin", 2, 4, 1000, true);
    std::vector<int> expected = {1, 3, 9, 7, 6, 0, 8, 4, 5, 2};  // llm.c's permutation of 10, seed 42
    for (int& first : expected) first *= 8;
    EXPECT_EQ(next_firsts(loader, 8, 10), expected);
}

TEST(DataLoader, SmallShardsAreJoined) {
    TemporaryFolder folder;
    write_counting(folder / "a.bin", 5);
    write_counting(folder / "b.bin", 0);
    write_counting(folder / "c.bin", 3, 5);
    write_counting(folder / "d.bin", 9, 8);  // a-d: 17 tokens in a row, two batches
    write_counting(folder / "e.bin", 9, 100);
    write_counting(folder / "f.bin", 8, 109);  // too small alone, joined to e: 17 tokens
    DataLoader loader(folder / "*.bin", 2, 4, 1000, false);
    EXPECT_EQ(loader.num_batches(), 4u);
    EXPECT_EQ(next_firsts(loader, 8, 5), (std::vector<int>{0, 8, 100, 108, 0}));
}

TEST(DataLoader, ResumeIsExact) {
    TemporaryFolder folder;
    write_counting(folder / "a.bin", 161);
    write_counting(folder / "b.bin", 85, 1000);
    write_counting(folder / "c.bin", 41, 2000);  // unequal shards: llm.c could not resume these
    for (bool shuffled : {false, true}) {
        DataLoader loader(folder / "*.bin", 2, 4, 3000, shuffled);
        for (int step = 0; step < 80; step++) {
            DataPosition saved = loader.position();
            std::vector<int> expected = next_firsts(loader, 8, 40);
            DataLoader resumed(folder / "*.bin", 2, 4, 3000, shuffled);
            resumed.resume(saved);
            ASSERT_EQ(next_firsts(resumed, 8, 40), expected) << "at step " << step;
            loader.resume(saved);
            next_first(loader, 8);
        }
    }
}

// The numbers that llm.c's files hold: the sample to be drawn next, which at a shard's end is their number;
// only the draw after it begins the next shard.
TEST(DataLoader, PositionsCountAsInLlmC) {
    TemporaryFolder folder;
    write_counting(folder / "a.bin", 25);
    write_counting(folder / "b.bin", 17, 100);
    const uint64_t expected[][2] = {{0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 1}, {1, 2}, {0, 1}};
    for (bool shuffled : {false, true}) {
        DataLoader loader(folder / (shuffled ? "a.bin" : "*.bin"), 2, 4, 1000, shuffled);
        for (int step = 0; step < (shuffled ? 4 : 7); step++) {
            EXPECT_EQ(loader.position().current_shard, expected[step][0]);
            EXPECT_EQ(loader.position().current_sample, expected[step][1]);
            next_first(loader, 8);
        }
    }
    DataLoader loader(folder / "*.bin", 2, 4, 1000, false);
    DataPosition position;
    position.current_sample = 3;
    loader.resume(position);
    EXPECT_EQ(next_firsts(loader, 8, 3), (std::vector<int>{100, 108, 0}));
    position.current_sample = 1;
    loader.resume(position);
    EXPECT_EQ(next_firsts(loader, 8, 3), (std::vector<int>{8, 16, 100}));
}

TEST(DataLoader, ForeignPositionsAreRefused) {
    TemporaryFolder folder;
    write_counting(folder / "a.bin", 161);
    DataLoader loader(folder / "a.bin", 2, 4, 3000, true), ordered(folder / "a.bin", 2, 4, 3000, false);
    next_first(loader, 8);
    const DataPosition good = loader.position();
    EXPECT_THROW(loader.resume(ordered.position()), Error);
    EXPECT_THROW(ordered.resume(good), Error);
    DataLoader larger(folder / "a.bin", 4, 4, 3000, true);
    EXPECT_NE(message_of([&] { larger.resume(good); }).find("same data files, batch size"),
              std::string::npos);
    DataLoader fresh(folder / "a.bin", 4, 4, 3000, true);
    EXPECT_EQ(next_firsts(larger, 16, 25), next_firsts(fresh, 16, 25));  // a refused position changes nothing
    auto refuses = [&](auto change) {
        DataPosition bad = good;
        change(bad);
        EXPECT_THROW(loader.resume(bad), Error);
    };
    refuses([](DataPosition& at) { at.current_shard = 1; });
    refuses([](DataPosition& at) { at.current_sample = 21; });  // 20 is the shard's end
    refuses([](DataPosition& at) { at.shard_indices = {1}; });
    refuses([](DataPosition& at) { at.shard_indices = {}; });
    refuses([](DataPosition& at) { at.intra_shard_indices[3] = 20; });
    refuses([](DataPosition& at) { at.intra_shard_indices[3] = -1; });
    refuses([](DataPosition& at) { at.intra_shard_indices[3] = at.intra_shard_indices[4]; });
}

TEST(DataLoader, BadDataIsExplained) {
    TemporaryFolder folder;
    EXPECT_NE(message_of([&] { DataLoader(folder / "*.bin", 2, 4, 10, false); }).find("*.bin"),
              std::string::npos);
    write_counting(folder / "a.bin", 8);
    EXPECT_NE(message_of([&] { DataLoader(folder / "*.bin", 2, 4, 10, false); }).find("needs 9"),
              std::string::npos);
    EXPECT_NE(message_of([&] {
                  DataLoader(folder / "*.bin", 1 << 20, 1 << 20, 10, false);
              }).find("needs 1099511627777"),
              std::string::npos);
    EXPECT_THROW(DataLoader(folder / "*.bin", 0, 4, 10, false), Error);
    EXPECT_THROW(DataLoader(folder / "*.bin", 2, -4, 10, false), Error);
    write_whole_file(folder / "b.bin", {"not a shard"});
    EXPECT_NE(message_of([&] { DataLoader(folder / "*.bin", 1, 4, 10, false); }).find("b.bin"),
              std::string::npos);
}

TEST(DataLoader, TokensOutOfRangeAreNamed) {
    TemporaryFolder folder;
    write_counting(folder / "a.bin", 40);
    DataLoader loader(folder / "a.bin", 2, 4, 25, false);
    EXPECT_EQ(next_firsts(loader, 8, 3), (std::vector<int>{0, 8, 16}));  // the last target is 24
    std::string message = message_of([&] { next_first(loader, 8); });
    EXPECT_NE(message.find("a.bin: token 25 is 25, but the model's vocabulary has 25"), std::string::npos)
        << message;
}
