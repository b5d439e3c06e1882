// The data loader: order, epochs, shards of all sizes, exact resume, and bad data.
#include "llmc/data/dataloader.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/data/ignored_target.h"
#include "tests/message_of.h"
#include "tests/run_program.h"
#include "tests/token_shard.h"

// Writes a shard of the tokens first, first + 1, ...
static void write_counting(const std::string& path, uint64_t count, uint16_t first = 0) {
    std::vector<uint16_t> tokens(count + 1);  // never empty, so that data() is no null pointer
    std::iota(tokens.begin(), tokens.end(), first);
    write_token_shard(path, tokens.data(), count);
}

// Returns the inputs of the next batch and checks that the targets are shifted by one token.
static std::vector<int> next_inputs(DataLoader& loader, int batch_tokens, int* fresh = nullptr) {
    std::vector<int> inputs(batch_tokens, -1), targets(batch_tokens, -1);
    const int count = loader.next_batch(inputs.data(), targets.data());
    if (fresh) *fresh = count;
    for (int i = 0; i < batch_tokens; i++) EXPECT_EQ(targets[i], inputs[i] + 1);
    return inputs;
}

static int next_first(DataLoader& loader, int batch_tokens) { return next_inputs(loader, batch_tokens)[0]; }

static std::vector<int> counting(int first, int count) {
    std::vector<int> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
}

static std::vector<int> next_firsts(DataLoader& loader, int batch_tokens, int count) {
    std::vector<int> firsts;
    for (int i = 0; i < count; i++) firsts.push_back(next_first(loader, batch_tokens));
    return firsts;
}

using Loader = InFolder;

TEST_F(Loader, InOrder) {
    write_counting(folder / "b.bin", 24, 100);  // 24 tokens: two batches of 8, the third would need 25
    write_counting(folder / "a.bin", 25);
    DataLoader loader(folder / "*.bin", 2, 4, 1000, false);
    EXPECT_EQ(loader.num_tokens(), 49u);
    EXPECT_EQ(loader.num_batches(), 6u);
    for (int epoch = 0; epoch < 2; epoch++) {
        for (int first : {0, 8, 16, 100, 108}) EXPECT_EQ(next_inputs(loader, 8), counting(first, 8));
        int fresh;
        EXPECT_EQ(next_inputs(loader, 8, &fresh), (std::vector<int>{116, 117, 118, 119, 120, 121, 122, 0}));
        EXPECT_EQ(fresh, 7);
    }
    next_first(loader, 8);
    loader.reset();
    EXPECT_EQ(next_first(loader, 8), 0);
    DataLoader exact(folder / "a.bin", 1, 24, 1000, false);
    EXPECT_EQ(next_firsts(exact, 24, 2), (std::vector<int>{0, 0}));
}

// The targets that are multiples of 3 count, in files that are joined, too, and in any order.
TEST_F(Loader, MasksRuleOutTargets) {
    for (const int first : {0, 100, 107, 300}) {
        std::vector<uint16_t> tokens(first == 100 ? 7 : 61);
        std::iota(tokens.begin(), tokens.end(), uint16_t(first));
        std::vector<bool> targets;
        for (const uint16_t token : tokens) targets.push_back(token % 3 == 0);
        TokenShardWriter writer(folder / format_string("%d.bin", 1000 + first));
        writer.add(tokens.data(), 5, {targets.begin(), targets.begin() + 5});  // no whole byte
        writer.add(&tokens[5], tokens.size() - 5, {targets.begin() + 5, targets.end()});
        writer.finish();
    }
    write_counting(folder / "2000.bin", 61, 600);  // without a mask: all count
    for (const bool shuffle : {false, true}) {
        DataLoader loader(folder / "*.bin", 2, 4, 1000, shuffle);
        std::vector<int> inputs(8), targets(8);
        for (uint64_t batch = 0; batch < loader.num_batches(); batch++) {
            const int fresh = loader.next_batch(inputs.data(), targets.data());
            for (int i = 0; i < fresh; i++) {
                const bool joins = inputs[i] == 106;  // 107 follows, of the next file
                const int next = joins ? 107 : inputs[i] + 1;
                EXPECT_EQ(targets[i], next >= 600 || next % 3 == 0 ? next : ignored_target);
            }
        }
    }
}

// A shuffled loader draws sequences of T tokens.
TEST_F(Loader, ShuffleCoversEverySequenceOncePerEpoch) {
    write_counting(folder / "a.bin", 161);
    write_counting(folder / "b.bin", 83, 1000);
    write_counting(folder / "c.bin", 41, 2000);
    DataLoader loader(folder / "*.bin", 2, 4, 3000, true), same(folder / "*.bin", 2, 4, 3000, true);
    EXPECT_EQ(loader.num_batches(), 36u);  // 40 + 20 + 10 sequences, and b.bin leaves 2 tokens over
    std::vector<int> epoch;
    for (int batch = 0; batch < 35; batch++) {
        const std::vector<int> inputs = next_inputs(loader, 8);
        EXPECT_EQ(inputs, next_inputs(same, 8));
        for (int first : {0, 4}) {
            EXPECT_EQ(std::vector<int>(inputs.begin() + first, inputs.begin() + first + 4),
                      counting(inputs[size_t(first)], 4));
            epoch.push_back(inputs[size_t(first)]);
        }
    }
    std::set<int> seen(epoch.begin(), epoch.end());
    EXPECT_EQ(seen.size(), 40u + 20 + 10);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), 2036);
    EXPECT_EQ(next_inputs(loader, 8), (std::vector<int>{1080, 1081, 0, 1, 2, 3, 4, 5}));
    DataLoader other(folder / "*.bin", 2, 4, 3000, true, 43);
    EXPECT_NE(next_firsts(other, 8, 35), next_firsts(same, 8, 35));
}

// Where the sequences of each epoch begin, as remainders of T: one in an epoch, and all in the long run.
TEST_F(Loader, EpochsCutTheTextElsewhere) {
    const int T = 5, epochs = 40;
    write_counting(folder / "a.bin", 161);
    write_counting(folder / "b.bin", 85, 1000);
    TokenShardWriter packed_writer(folder / "packed.bin");
    std::vector<uint16_t> tokens(91);
    std::iota(tokens.begin(), tokens.end(), uint16_t(2000));
    packed_writer.add(tokens.data(), tokens.size(), std::vector<bool>(91, true));
    packed_writer.finish();
    std::set<int> of_epochs;
    DataLoader loader(folder / "*.bin", 1, T, 3000, true);
    for (int epoch = 0; epoch < epochs; epoch++) {
        std::set<int> remainders, packed;
        const int whole = 160 / T + 84 / T + 90 / T - 2;  // of all sequences, at least
        for (int i = 0; i < int(loader.num_batches()); i++) {
            const int first = next_first(loader, T);
            if (i < whole) (first >= 2000 ? packed : remainders).insert(first % T);
        }
        EXPECT_EQ(remainders.size(), 1u) << epoch;
        EXPECT_EQ(packed, std::set<int>{0}) << epoch;
        EXPECT_TRUE(epoch > 0 || remainders.contains(0));
        of_epochs.insert(remainders.begin(), remainders.end());
    }
    EXPECT_EQ(of_epochs, (std::set<int>{0, 1, 2, 3, 4}));
}

// Whatever the batch size, the order of the sequences is the same.
TEST_F(Loader, OrderIsThatOfEveryBatchSize) {
    write_counting(folder / "a.bin", 193);
    DataLoader one(folder / "a.bin", 1, 4, 3000, true);
    std::vector<int> expected;
    for (int i = 0; i < 48; i++)
        for (int token : next_inputs(one, 4)) expected.push_back(token);
    for (int B : {2, 3, 6, 16}) {
        DataLoader loader(folder / "a.bin", B, 4, 3000, true);
        std::vector<int> tokens;
        for (int i = 0; i < 48 / B; i++)
            for (int token : next_inputs(loader, 4 * B)) tokens.push_back(token);
        EXPECT_EQ(tokens, expected) << B;
    }
}

// For all sizes, every token except each shard's first is drawn as a target once per epoch, before any is
// drawn again.
TEST_F(Loader, NoTokenIsDropped) {
    const int sizes[] = {61, 100, 33, 47, 90};
    std::multiset<int> all;
    for (int i = 0; i < 5; i++) {
        write_counting(folder / format_string("%d.bin", i), sizes[i], uint16_t(1000 * i));
        for (int token = 0; token + 1 < sizes[i]; token++) all.insert(1000 * i + token);
    }
    for (bool shuffled : {false, true})
        for (int T : {1, 3, 7, 15, 16, 30}) {
            DataLoader loader(folder / "*.bin", 1, T, 5000, shuffled);
            for (int epoch = 0; epoch < 3; epoch++) {
                std::multiset<int> seen;
                int fresh = T;
                for (uint64_t i = 0; i < loader.num_batches(); i++) {
                    EXPECT_EQ(fresh, T) << "only the last batch may repeat tokens";
                    const std::vector<int> inputs = next_inputs(loader, T, &fresh);
                    seen.insert(inputs.begin(), inputs.begin() + fresh);
                }
                EXPECT_EQ(seen, all) << "T " << T << ", shuffled " << shuffled;
            }
        }
}

// A run that resumes with another batch size draws the rest of the epoch's tokens, none twice.
TEST_F(Loader, BatchSizeMayChange) {
    write_counting(folder / "a.bin", 200);
    write_counting(folder / "b.bin", 150, 1000);
    for (bool shuffled : {false, true})
        for (int T : {1, 4, 6, 11, 16, 24}) {
            DataLoader before(folder / "*.bin", 1, 8, 5000, shuffled),
                after(folder / "*.bin", 1, T, 5000, shuffled);
            std::multiset<int> seen;
            for (int i = 0; i < 10; i++)
                for (int token : next_inputs(before, 8)) seen.insert(token);
            after.resume(before.position());
            while (after.position().current_shard == 0 && after.position().current_sample < 24) {
                const DataPosition at = after.position();
                const std::vector<int> inputs = next_inputs(after, T);
                // the same position gives the same batch
                DataLoader again(folder / "*.bin", 1, T, 5000, shuffled);
                again.resume(at);
                EXPECT_EQ(next_inputs(again, T), inputs);
                if (after.position().current_shard == 0) seen.insert(inputs.begin(), inputs.end());
            }
            EXPECT_GE(seen.size(), shuffled ? 100u : 175u) << T;
            EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), seen.size()) << T;
        }
}

// llm.c draws samples of B*T.
TEST_F(Loader, OrderIsLlmcsForBatchesOfOne) {
    write_counting(folder / "a.bin", 81);
    DataLoader loader(folder / "a.bin", 1, 8, 1000, true);
    std::vector<int> expected = {1, 3, 9, 7, 6, 0, 8, 4, 5, 2};  // llm.c's permutation of 10, seed 42
    for (int& first : expected) first *= 8;
    EXPECT_EQ(next_firsts(loader, 8, 10), expected);
}

TEST_F(Loader, SmallShardsAreJoined) {
    write_counting(folder / "a.bin", 5);
    write_counting(folder / "b.bin", 0);
    write_counting(folder / "c.bin", 3, 5);
    write_counting(folder / "d.bin", 9, 8);  // a to d: 17 consecutive tokens, two batches
    write_counting(folder / "e.bin", 9, 100);
    write_counting(folder / "f.bin", 8, 109);  // too small, joined to e: 17 tokens
    DataLoader loader(folder / "*.bin", 2, 4, 1000, false);
    EXPECT_EQ(loader.num_batches(), 4u);
    EXPECT_EQ(next_firsts(loader, 8, 5), (std::vector<int>{0, 8, 100, 108, 0}));
}

TEST_F(Loader, ResumeIsExact) {
    write_counting(folder / "a.bin", 161);
    write_counting(folder / "b.bin", 85, 1000);
    write_counting(folder / "c.bin", 41, 2000);  // unequal shards, which llm.c cannot resume
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

// llm.c's files hold the next sample to draw. At the end of a shard it equals the number of samples; only the
// next draw begins the next shard.
TEST_F(Loader, PositionsCountAsInLlmC) {
    write_counting(folder / "a.bin", 25);
    write_counting(folder / "b.bin", 17, 100);
    const uint64_t expected[][2] = {{0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 1}, {1, 2}, {0, 1}};
    for (bool shuffled : {false, true}) {
        DataLoader loader(folder / (shuffled ? "a.bin" : "*.bin"), 1, 8, 1000, shuffled);
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

TEST_F(Loader, ForeignPositionsAreRefused) {
    write_counting(folder / "a.bin", 161);
    DataLoader loader(folder / "a.bin", 2, 4, 3000, true), ordered(folder / "a.bin", 2, 4, 3000, false);
    next_first(loader, 8);
    const DataPosition good = loader.position();
    EXPECT_THROW(loader.resume(ordered.position()), Error);
    EXPECT_THROW(ordered.resume(good), Error);
    DataLoader larger(folder / "a.bin", 4, 4, 3000, true);
    DataPosition llmcs = DataLoader(folder / "a.bin", 1, 8, 3000, true).position();
    llmcs.sample_tokens = 0;  // which llm.c's files do not store: B*T
    expect_error("the same data files", [&] { larger.resume(llmcs); });
    DataLoader fresh(folder / "a.bin", 4, 4, 3000, true);
    EXPECT_EQ(next_firsts(larger, 16, 25), next_firsts(fresh, 16, 25));  // a refused position changes nothing
    loader.resume(llmcs);
    DataPosition unsaid = good;  // of this trainer, without the run_*.json that has the tokens per sample
    unsaid.sample_tokens = 0;
    loader.resume(unsaid);
    EXPECT_EQ(loader.position().sample_tokens, 4u);
    auto refuses = [&](auto change) {
        DataPosition bad = good;
        change(bad);
        EXPECT_THROW(loader.resume(bad), Error);
    };
    refuses([](DataPosition& at) { at.current_shard = 1; });
    refuses([](DataPosition& at) { at.current_sample = 41; });  // 40 is the shard's end
    refuses([](DataPosition& at) { at.token_in_sample = 4; });
    refuses([](DataPosition& at) { at.sample_tokens = 9; });
    refuses([](DataPosition& at) { at.sample_tokens = ~0ull; });
    refuses([](DataPosition& at) { at.first_token = ~0ull; });
    refuses([](DataPosition& at) { at.first_token = 80; });  // another number of samples
    refuses([](DataPosition& at) { at.shard_indices = {1}; });
    refuses([](DataPosition& at) { at.shard_indices = {}; });
    refuses([](DataPosition& at) { at.intra_shard_indices[3] = 40; });
    refuses([](DataPosition& at) { at.intra_shard_indices[3] = -1; });
    refuses([](DataPosition& at) { at.intra_shard_indices[3] = at.intra_shard_indices[4]; });
}

TEST_F(Loader, BadDataIsExplained) {
    expect_error("*.bin", [&] { DataLoader(folder / "*.bin", 2, 4, 10, false); });
    write_counting(folder / "a.bin", 8);
    expect_error("needs 9", [&] { DataLoader(folder / "*.bin", 2, 4, 10, false); });
    expect_error("smaller batch (-b)", [&] { DataLoader(folder / "*.bin", 2, 4, 10, false); });
    const std::string long_sequences =
        message_of([&] { DataLoader(folder / "*.bin", 1 << 20, 1 << 20, 10, false); });
    EXPECT_TRUE(contains(long_sequences, "needs 1099511627777; use shorter sequences (-t)"));
    EXPECT_THROW(DataLoader(folder / "*.bin", 0, 4, 10, false), Error);
    EXPECT_THROW(DataLoader(folder / "*.bin", 2, -4, 10, false), Error);
    write_whole_file(folder / "b.bin", {"not a shard"});
    expect_error("b.bin", [&] { DataLoader(folder / "*.bin", 1, 4, 10, false); });
}

TEST_F(Loader, TokensOutOfRangeAreNamed) {
    write_counting(folder / "a.bin", 40);
    DataLoader loader(folder / "a.bin", 2, 4, 25, false);
    EXPECT_EQ(next_firsts(loader, 8, 3), (std::vector<int>{0, 8, 16}));  // the last target is 24
    std::string message = message_of([&] { next_first(loader, 8); });
    EXPECT_TRUE(contains(message, "a.bin: token 25 is 25, but the model's vocabulary has 25"));
}

// The last target of the last piece is only ever a target; of a file that ends there, and of a joined one.
TEST_F(Loader, LastTargetsOutOfRangeAreNamed) {
    for (int files : {1, 2}) {
        if (files == 1) {
            write_counting(folder / "a.bin", 9);
        } else {
            write_counting(folder / "a.bin", 8);
            write_counting(folder / "b.bin", 1, 8);
        }
        std::vector<int> batch(8), targets(8);
        DataLoader good(folder / "*.bin", 2, 4, 9, false);
        EXPECT_EQ(next_inputs(good, 8), counting(0, 8));
        DataLoader bad(folder / "*.bin", 2, 4, 8, false);
        EXPECT_EQ(message_of([&] { bad.next_batch(batch.data(), targets.data()); }),
                  folder / (files == 1 ? "a.bin: token 8" : "b.bin: token 0") +
                      " is 8, but the model's vocabulary has 8; is the shard for another tokenizer?");
    }
}
