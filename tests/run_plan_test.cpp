// The plan of a run: the memory that is counted is the memory that is allocated.
#include "llmc/run/run_plan.h"

#include <omp.h>

#include "llmc/files/optimizer_state.h"
#include "llmc/layers/muon.h"
#include "tests/contains.h"
#include "tests/layer_test.h"

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
        for (const OptimizerInfo& info : all_optimizers()) {
            SCOPED_TRACE(pad ? memory_mode_name(pad->memory_mode()) : "CPU");
            TrainingShape shape = {.master_weights = true,
                                   .B = 3,
                                   .T = 17,
                                   .recompute = RECOMPUTE_LAYERS,
                                   .share = {.kind = info.kind}};
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
            EXPECT_TRUE(contains(need.by_kind, "MiB of host memory"));
        }
}

// On the CPU, Muon's matrices of up to 2^18 elements take a thread each.
TEST(RunPlan, CountsTheWorkspaceOfMuon) {
    const TrainingShape shape = {.master_weights = true,
                                 .B = 3,
                                 .T = 17,
                                 .recompute = RECOMPUTE_GELU,
                                 .share = {.kind = OptimizerKind::muon}};
    const MemoryNeed need = memory_need<bf16>(small(), nullptr, shape);
    EXPECT_TRUE(contains(need.by_kind, ", scratch "));
    const size_t threads = size_t(omp_get_max_threads());
    EXPECT_EQ(muon_workspace_bytes(300, 100), threads * 2 * (300 * 100 + 100 * 100) * sizeof(float));
    EXPECT_EQ(muon_workspace_bytes(1000, 3000), 2 * (3000000 + 1000000) * sizeof(float));
}

// The limit of a launchpad is that of one process.
TEST(RunPlan, ProcessesOnADeviceDivideItsMemory) {
    for (const auto& like : test_pads()) {
        const uint64_t mib = 1 << 20;
        LaunchPadOptions options = test_options();
        options.memory = like->memory_mode();
        options.device_memory = 600 * mib;
        const LaunchPad pad(options);
        const MemoryRoom one = memory_room(&pad, 1, 600 * mib), three = memory_room(&pad, 3, 1800 * mib);
        EXPECT_LE(one.bytes, 600 * mib);
        EXPECT_GT(one.bytes, 200 * mib);
        EXPECT_NEAR(double(three.bytes) / 3, double(one.bytes), double(mib));
        EXPECT_GT(host_room(&pad, 3), uint64_t(0));
        EXPECT_LE(host_room(&pad, 3), host_room(&pad, 1));
        if (const uint64_t granted = pad.available_bytes(Placement::host)) {
            EXPECT_LE(host_room(&pad, 1), granted);
        }
    }
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
