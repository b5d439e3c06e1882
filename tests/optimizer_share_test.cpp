// ZeRO stage 1: the parts of AdamW's state that processes hold are disjoint and complete, and save memory.
#include "llmc/model/optimizer_share.h"

#include <gtest/gtest.h>

#include <set>

#include "llmc/model/gpt2.h"

static const ModelConfig odd = {19, 53, 128, 2, 3, 24};

// Whatever the number of parts, each element has one holder, and a place of its own in the holder's memory.
TEST(OptimizerShare, HoldsEveryElementOnce) {
    for (const int count : {1, 2, 3, 7, 16, 500})
        for (int tensor = 0; tensor < NUM_PARAMETER_TENSORS; tensor++) {
            std::multiset<size_t> held;
            for (int index = 0; index < count; index++) {
                const OptimizerShare share = {index, count};
                std::set<size_t> positions;
                for (const TensorRange& e : share.held(odd, {tensor, 0, parameter_size(odd, tensor)}))
                    for (size_t i = 0; i < e.count; i++) {
                        held.insert(e.first + i);
                        positions.insert(share.position(odd, tensor, e.first + i));
                    }
                ASSERT_EQ(positions.size(), share.size(odd, tensor));
                if (!positions.empty()) {
                    EXPECT_EQ(*positions.rbegin() + 1, positions.size());
                }
                if (index == 0 && !share.divides(tensor)) break;  // every process holds all of it
            }
            ASSERT_EQ(held.size(), parameter_size(odd, tensor)) << parameter_info[tensor].name;
            EXPECT_EQ(std::set<size_t>(held.begin(), held.end()).size(), held.size());
        }
}

TEST(OptimizerShare, PartsAreEqualOrBeginAtMultiplesOf8) {
    const auto parts = [](size_t n, int count) {
        std::vector<size_t> sizes;
        for (int index = 0; index < count; index++) sizes.push_back(part_of(n, index, count).count);
        return sizes;
    };
    EXPECT_EQ(parts(21, 3), (std::vector<size_t>{7, 7, 7}));
    EXPECT_EQ(parts(20, 3), (std::vector<size_t>{8, 8, 4}));
    EXPECT_EQ(parts(25, 3), (std::vector<size_t>{16, 9, 0}));
    EXPECT_EQ(parts(3, 2), (std::vector<size_t>{3, 0}));
}

TEST(OptimizerShare, FindsTheHeldPartOfARange) {
    const OptimizerShare share = {1, 2};
    const size_t n = parameter_layer_size(odd, QKVW);
    const auto held = share.held(odd, {QKVW, n - 10, n});  // the end of layer 0, most of layer 1
    ASSERT_EQ(held.size(), 2u);
    EXPECT_EQ(held[0].first, n - 10);
    EXPECT_EQ(held[0].count, 10u);
    EXPECT_EQ(held[1].first, n + n / 2);
    EXPECT_EQ(held[1].count, n / 2 - 10);
}

static size_t optimizer_bytes(const ModelConfig& config, const OptimizerShare& share) {
    GPT2<bf16> g(config, nullptr, true, true, share);
    gpt2_allocate(g, 1, 64, true);
    for (const auto& [kind, bytes] : g.memory.kinds)
        if (kind == std::string("optimizer")) return bytes;
    return 0;
}

TEST(OptimizerShare, DividesTheOptimizersMemory) {
    const ModelConfig d12 = parse_descriptor("d12");
    const double all = double(optimizer_bytes(d12, {}));
    for (const int count : {2, 3, 8, 16})
        for (const int index : {0, count - 1})
            EXPECT_LE(double(optimizer_bytes(d12, {index, count})), 1.02 * all / count) << count;
}
