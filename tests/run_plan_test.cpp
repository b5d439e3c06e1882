// The plan of a run: the memory that is counted is the memory that is allocated, and an error suggests what
// fits.
#include "llmc/run/run_plan.h"

#include "llmc/files/optimizer_state.h"
#include "tests/layer_test.h"
#include "tests/message_of.h"

static ModelConfig small() {
    return parse_descriptor("custom:layers=3,heads=2,channels=24,max_seq_len=32,vocab=67");
}

template <class Real>
static void expect_counted_as_allocated(LaunchPad* pad) {
    for (Recompute recompute :
         {RECOMPUTE_NOTHING, RECOMPUTE_GELU, RECOMPUTE_GELU_AND_LAYERNORM, RECOMPUTE_LAYERS})
        for (bool master : {false, true}) {
            const MemoryNeed need = memory_need<Real>(
                small(), pad, {.master_weights = master, .B = 3, .T = 17, .recompute = recompute});
            GPT2<Real> g(small(), pad);
            gpt2_allocate(g, 3, 17, true, recompute);
            const Optimizer<Real> optimizer(small(), g.memory, {.master_weights = master});
            EXPECT_EQ(need.bytes, g.memory.bytes);
            EXPECT_EQ(need.by_kind, g.memory.summary());
            EXPECT_GT(need.largest, need.bytes / 100);
            EXPECT_LT(need.largest, need.bytes);
        }
}

TEST(RunPlan, CountsWhatIsAllocated) {
    expect_counted_as_allocated<float>(nullptr);
    expect_counted_as_allocated<bf16>(nullptr);
    for (const auto& pad : test_pads()) {
        const uint64_t before = pad->allocated_bytes();
        memory_need<bf16>(small(), pad.get(),
                          {.master_weights = true, .B = 3, .T = 17, .recompute = RECOMPUTE_GELU});
        EXPECT_EQ(pad->allocated_bytes(), before);
        expect_counted_as_allocated<float>(pad.get());
        expect_counted_as_allocated<fp16>(pad.get());
    }
}

// Where the device has its own memory, the host's takes over moments and master weights, and nothing else.
TEST(RunPlan, OffloadMovesTheOptimizersState) {
    std::vector<LaunchPad*> places = {nullptr};
    for (const auto& pad : test_pads()) places.push_back(pad.get());
    for (LaunchPad* pad : places)
        for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::muon}) {
            SCOPED_TRACE(pad ? memory_mode_name(pad->memory_mode()) : "CPU");
            TrainingShape shape = {.master_weights = true,
                                   .B = 3,
                                   .T = 17,
                                   .recompute = RECOMPUTE_LAYERS,
                                   .share = {.kind = kind}};
            const MemoryNeed whole = memory_need<bf16>(small(), pad, shape);
            shape.offload = true;
            const MemoryNeed need = memory_need<bf16>(small(), pad, shape);
            EXPECT_EQ(whole.host_bytes, 0u);
            EXPECT_EQ(need.bytes + need.host_bytes, whole.bytes);
            GPT2<bf16> g(small(), pad);
            gpt2_allocate(g, 3, 17, true, RECOMPUTE_LAYERS);
            const Optimizer<bf16> optimizer(small(), g.memory, {.master_weights = true, .offload = true},
                                            shape.share);
            EXPECT_EQ(need.host_bytes, g.memory.host_bytes);
            EXPECT_EQ(need.host_bytes > 0, has_own_memory(pad));
            if (!need.host_bytes) continue;
            const uint64_t state = moment_bytes(small(), true, shape.share);
            EXPECT_GE(need.host_bytes, state);
            EXPECT_LT(need.host_bytes, state + 64 * 3 * NUM_PARAMETER_TENSORS);  // rounded up
            EXPECT_NE(need.by_kind.find("MiB of host memory"), std::string::npos) << need.by_kind;
        }
}

TEST(RunPlan, HostMemoryMustHoldWhatIsOffloaded) {
    const uint64_t gib = uint64_t(1) << 30;
    const auto need = [&](int) { return MemoryNeed{gib, gib, "", 3 * gib}; };
    const auto message = [&](uint64_t host) {
        return message_of([&] { check_memory(need, {8 * gib, gib, "the card", host}, 1, 16, -1); });
    };
    EXPECT_EQ(message(3 * gib), "");
    EXPECT_NE(message(2 * gib).find("needs 3.0 GiB of this machine's memory"), std::string::npos)
        << message(2 * gib);
    EXPECT_EQ(largest_batch(need, {8 * gib, gib, "the card", 2 * gib}, 16), 0);
}

static MemoryNeed ten_per_sequence(int B) { return {100 + 10 * uint64_t(B), 10 * uint64_t(B), ""}; }

TEST(RunPlan, LargestBatch) {
    auto largest = [](uint64_t bytes, uint64_t piece) {
        return largest_batch(ten_per_sequence, {bytes, piece, ""}, 16);
    };
    const uint64_t no_limit = ~uint64_t(0);
    EXPECT_EQ(largest(109, no_limit), 0);
    EXPECT_EQ(largest(110, no_limit), 1);
    EXPECT_EQ(largest(100 + 10 * 777 + 9, no_limit), 777);
    EXPECT_EQ(largest(100 + 10 * 777, 500), 50);
    EXPECT_EQ(largest(no_limit, no_limit), (1 << 30) / 16);
}

TEST(RunPlan, AnErrorSuggestsWhatFits) {
    const MemoryRoom room = {200, 1000, "the card"};
    auto message = [&](int B, int total) {
        return message_of([&] { check_memory(ten_per_sequence, room, B, 16, total); });
    };
    EXPECT_EQ(message(10, -1), "");
    EXPECT_NE(message(20, -1).find("use -b 10 (with -d 320 "), std::string::npos) << message(20, -1);
    EXPECT_NE(message(16, 16 * 32).find("use -b 8 (with -d 512 "), std::string::npos) << message(16, 16 * 32);
    EXPECT_NE(message(16, -1).find("the card"), std::string::npos);
    const MemoryRoom tight = {10, 1000, "the card"};
    const std::string none = message_of([&] { check_memory(ten_per_sequence, tight, 2, 16, -1); });
    EXPECT_NE(none.find("not even -b 1"), std::string::npos) << none;
    const MemoryRoom pieces = {100000, 50, "the card"};
    const std::string piece = message_of([&] { check_memory(ten_per_sequence, pieces, 8, 16, -1); });
    EXPECT_NE(piece.find("one allocation"), std::string::npos) << piece;
    EXPECT_NE(piece.find("-b 5"), std::string::npos) << piece;
}

TEST(RunPlan, HostMemoryIsKnown) {
    const MemoryRoom room = memory_room(nullptr);
    EXPECT_GT(room.bytes, uint64_t(64) << 20);
    EXPECT_LT(room.bytes, uint64_t(1) << 50);
}

TEST(RunPlan, OperationsAreCountedAsInLlmC) {
    const ModelConfig d12 = parse_descriptor("d12");  // 6 * 124,475,904 + 6 * 12 * 768 * 1024
    EXPECT_DOUBLE_EQ(flops_per_token(d12, 1024), 803478528.0);
}

TEST(RunPlan, PeakOfTheCpu) {
    const double peak = peak_rate<float>(nullptr);
    EXPECT_GT(peak, 1e8);
    EXPECT_LT(peak, 1e15);
}
