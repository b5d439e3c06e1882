// ZeRO stage 1: what processes own is disjoint and complete, and the optimizer's memory is divided.
#include "llmc/model/ownership.h"

#include <gtest/gtest.h>

#include "llmc/model/gpt2.h"

static const ModelConfig odd = {19, 53, 128, 2, 3, 24};

TEST(Ownership, HasEveryElementOnceInOrder) {
    for (const OptimizerInfo& optimizer : all_optimizers())
        for (const int count : {1, 2, 3, 7, 16, 500}) {
            int tensor = 0;
            size_t at = 0;
            for (const Shard& s : ownership_of(odd, optimizer.kind, count).shards) {
                if (s.tensor != tensor) {
                    ASSERT_EQ(at, parameter_size(odd, tensor)) << parameter_info[tensor].name;
                    ASSERT_EQ(s.tensor, tensor + 1);
                    tensor++;
                    at = 0;
                }
                ASSERT_EQ(s.first, at);
                ASSERT_GT(s.count, 0u);
                ASSERT_GE(s.owner, 0);
                ASSERT_LT(s.owner, count);
                at += s.count;
            }
            EXPECT_EQ(tensor, NUM_PARAMETER_TENSORS - 1);
            EXPECT_EQ(at, parameter_size(odd, tensor));
        }
}

TEST(Optimizers, AreFoundByVersion) {
    for (size_t i = 0; i < all_optimizers().size(); i++) {
        const OptimizerInfo& info = all_optimizers()[i];
        EXPECT_EQ(size_t(info.kind), i) << info.name;
        EXPECT_EQ(optimizer_of_state(info.state_version), info.kind);
    }
    EXPECT_FALSE(optimizer_of_state(0));
}

// How many elements of a tensor of `channels` elements each process owns.
static std::vector<size_t> sizes_of_lnf(int channels, int count) {
    const ModelConfig config = {8, 50, 128, 1, 1, channels};
    std::vector<size_t> sizes(count, 0);
    for (const Shard& s :
         ownership_of(config, OptimizerKind::adamw, count).within({LNFW, 0, size_t(channels)}))
        sizes[s.owner] += s.count;
    return sizes;
}

// Muon's owners have whole layers' weights, and about the same work each.
TEST(Ownership, MuonHasWholeMatrices) {
    const ModelConfig d12 = parse_descriptor("d12");
    for (const int count : {2, 4, 8}) {
        std::vector<double> work(count);
        for (const Shard& s : ownership_of(d12, OptimizerKind::muon, count).shards) {
            if (!is_linear_weight(s.tensor)) continue;
            ASSERT_EQ(s.count, parameter_layer_size(d12, s.tensor));
            work[s.owner] += s.tensor == ATTPROJW ? 4 : s.tensor == QKVW ? 12 : 13;
        }
        EXPECT_LT(*std::ranges::max_element(work), 1.1 * 12 * 42 / count) << count;
    }
}

TEST(Ownership, PartsAreEqualOrBeginAtMultiplesOf8) {
    EXPECT_EQ(sizes_of_lnf(21, 3), (std::vector<size_t>{7, 7, 7}));
    EXPECT_EQ(sizes_of_lnf(20, 3), (std::vector<size_t>{8, 8, 4}));
    EXPECT_EQ(sizes_of_lnf(25, 3), (std::vector<size_t>{16, 9, 0}));
    EXPECT_EQ(sizes_of_lnf(3, 2), (std::vector<size_t>{3, 0}));
}

TEST(Ownership, FindsTheShardsOfARange) {
    const size_t n = parameter_layer_size(odd, QKVW);
    std::vector<Shard> found =
        ownership_of(odd, OptimizerKind::adamw, 2).within({QKVW, n - 10, n});  // ends in layer 1
    std::erase_if(found, [](const Shard& s) { return s.owner != 1; });
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].first, n - 10);
    EXPECT_EQ(found[0].count, 10u);
    EXPECT_EQ(found[1].first, n + n / 2);
    EXPECT_EQ(found[1].count, n / 2 - 10);
}

TEST(Ownership, RangesHaveEveryTensorOnce) {
    std::vector<size_t> counts(NUM_PARAMETER_TENSORS);
    for (const TensorRange& r : linear_weight_ranges(odd, 0, odd.num_layers)) counts[r.tensor] += r.count;
    for (const TensorRange& r : other_ranges(odd)) counts[r.tensor] += r.count;
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) EXPECT_EQ(counts[i], parameter_size(odd, i));
}

static size_t optimizer_bytes(const ModelConfig& config, const OptimizerShare& share) {
    Memory memory(nullptr, MemoryUse::count);
    Optimizer<bf16>(config, memory, {.master_weights = true}, share);
    return memory.bytes;
}

TEST(Ownership, DividesTheOptimizersMemory) {
    const ModelConfig d12 = parse_descriptor("d12");
    const double all = double(optimizer_bytes(d12, {}));
    for (const int count : {2, 3, 8, 16})
        for (const int index : {0, count - 1})
            EXPECT_LE(double(optimizer_bytes(d12, {index, count})), 1.02 * all / count) << count;
}

// What was stored in parts is loaded, and a process keeps only what it owns.
TEST(Ownership, OptimizerStoresAndLoads) {
    for (const int index : {0, 1, 2}) {
        Memory memory(nullptr);
        const Optimizer<float> optimizer(odd, memory, {}, {index, 3});
        const size_t n = parameter_size(odd, FCW), part = n / 5;
        std::vector<float> values(n);
        for (size_t i = 0; i < n; i++) values[i] = float(i);
        for (size_t first = 0; first < n; first += part) {
            const size_t count = std::min(part, n - first);
            optimizer.store(MOMENT_V, {FCW, first, count}, values.data() + first);
        }
        size_t owned = 0;
        for (const Shard& s : ownership_of(odd, OptimizerKind::adamw, 3).within({FCW, 0, n})) {
            if (s.owner != index) continue;
            std::vector<float> got(s.count);
            optimizer.load(MOMENT_V, {FCW, s.first, s.count}, got.data());
            for (size_t i = 0; i < s.count; i++) ASSERT_EQ(got[i], float(s.first + i));
            owned += s.count;
        }
        EXPECT_EQ(owned, n / 3);
    }
}

TEST(Ownership, GroupsOfLayersGrow) {
    using Begins = std::vector<int>;
    const auto groups = [](int layers, int channels, int vocab_size, bool wte_last = true) {
        return groups_of_layers({1024, vocab_size, vocab_size, layers, 1, channels}, wte_last);
    };
    EXPECT_EQ(groups(1, 64, 128, false), (Begins{0, 1}));
    EXPECT_EQ(groups(6, 384, 50304, false), (Begins{0, 1, 2, 4, 6}));
    EXPECT_EQ(groups(12, 768, 50304, false), (Begins{0, 1, 3, 7, 12}));
    EXPECT_EQ(groups(1, 64, 128), (Begins{0, 1, 2}));
    EXPECT_EQ(groups(2, 64, 128), (Begins{0, 1, 3}));
    EXPECT_EQ(groups(6, 384, 128), (Begins{0, 1, 2, 4, 7}));
    EXPECT_EQ(groups(24, 1024, 50304), (Begins{0, 1, 3, 9, 25}));
    EXPECT_EQ(groups(48, 1600, 50304), (Begins{0, 1, 4, 14, 49}));
    // wte by itself
    EXPECT_EQ(groups(6, 384, 50304), (Begins{0, 1, 3, 6, 7}));
    EXPECT_EQ(groups(12, 768, 50304), (Begins{0, 1, 4, 12, 13}));
    for (int layers = 1; layers < 300; layers++)
        for (const int vocab_size : {128, 50304}) {
            const Begins begins = groups(layers, 64, vocab_size);
            for (size_t i = 1; i < begins.size(); i++) EXPECT_LT(begins[i - 1], begins[i]) << layers;
            EXPECT_EQ(begins.back(), layers + 1);
            EXPECT_LE(begins.size(), 5u);
        }
}

TEST(Ownership, RowsOfTokens) {
    const ModelConfig c = {16, 100, 128, 1, 1, 10};
    TokenSet tokens(token_set_words(c));
    ASSERT_EQ(tokens.size(), 4u);
    for (const int token : {0, 31, 32, 35, 39, 99}) tokens[size_t(token) / 32] |= 1u << token % 32;
    const auto rows = [&](size_t first, size_t count) {
        std::vector<std::pair<size_t, size_t>> found;
        for (const TensorRange& r : token_rows(c, tokens, first, count)) {
            EXPECT_EQ(r.tensor, WTE);
            found.push_back({r.first, r.count});
        }
        return found;
    };
    using Rows = std::vector<std::pair<size_t, size_t>>;
    // two rows between 32 and 35, three between 35 and 39
    EXPECT_EQ(rows(0, 1280), (Rows{{0, 10}, {310, 50}, {390, 10}, {990, 10}}));
    EXPECT_EQ(rows(315, 80), (Rows{{315, 45}, {390, 5}}));
    EXPECT_EQ(rows(9, 1), (Rows{{9, 1}}));
    EXPECT_EQ(rows(10, 300), Rows());
    EXPECT_EQ(rows(995, 0), Rows());
}
