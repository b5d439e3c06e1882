// What holds for the SPIR-V of every kernel: nothing is left to the device's rounding of fp16, fragments load
// from aligned memory, and subgroup operations are where all lanes meet.
#include <gtest/gtest.h>

#include "dev/vulkan/baselines/baselines.h"
#include "tests/spirv_flow.h"

extern const EmbeddedShader baseline_shaders[];

static const uint32_t PACK_HALF = 58;

static std::vector<Module> modules() {
    std::vector<Module> all;
    for (const EmbeddedShader* table : {embedded_shaders, baseline_shaders})
        for (; table->name; table++) all.emplace_back(*table);
    return all;
}

// Whether a value may be what round_half() returned: its last operation selects infinity.
static bool is_rounded(const Module& m, uint32_t id) {
    const uint32_t op = m.op(id);
    if (op != OpCompositeConstruct) return op == OpSelect || op == OpPhi || op == OpConstant;
    const Instruction& parts = m.at(id);
    return std::all_of(parts.begin() + 3, parts.end(), [&](uint32_t part) { return is_rounded(m, part); });
}

TEST(EmbeddedShaders, RoundBeforeTheyConvertToFp16) {
    int conversions = 0;
    for (const Module& m : modules()) {
        // any rounding serves the pieces of fp32, and the probe asks how the device rounds
        if (m.name.ends_with("_half_fp32") || m.name.starts_with("matrix_layout")) continue;
        for (const Instruction& i : m.code)
            if (Spirv::opcode(i) == OpExtInst && i[4] == PACK_HALF) {
                EXPECT_TRUE(is_rounded(m, i[5])) << m.name;
                conversions++;
            }
    }
    EXPECT_GT(conversions, 100);
}

// The specification wants 16 bytes, and only the alignment of their type promises them to shared arrays.
TEST(EmbeddedShaders, FragmentsLoadFromVectors) {
    int loads = 0;
    for (const Module& m : modules())
        for (const Instruction& i : m.code) {
            const uint32_t op = Spirv::opcode(i);
            if (op != OpCooperativeMatrixLoad && op != OpCooperativeMatrixStore) continue;
            const Instruction& pointer = m.at(m.at(op == OpCooperativeMatrixLoad ? i[3] : i[1])[1]);
            ASSERT_EQ(Spirv::opcode(pointer), OpTypePointer) << m.name;
            if (pointer[2] != WORKGROUP) continue;
            const Instruction& element = m.at(pointer[3]);
            EXPECT_TRUE(Spirv::opcode(element) == OpTypeVector && element[3] == 4) << m.name;
            loads++;
        }
    EXPECT_GT(loads, 100);
}

// Its place in the workgroup does not tell an invocation's place in the subgroup.
TEST(EmbeddedShaders, TheProbeOfFragmentsKnowsItsLane) {
    for (const Module& m : modules())
        if (m.name.starts_with("matrix_layout")) {
            EXPECT_TRUE(std::ranges::any_of(m.code, [&](const Instruction& i) {
                return Spirv::opcode(i) == OpDecorate && i[2] == BUILT_IN && i[3] == LANE;
            })) << m.name;
        }
}

// --- subgroup operations ---

static bool is_matrix_operation(uint32_t op) {
    return op >= OpCooperativeMatrixLoad && op <= OpCooperativeMatrixMulAdd;
}
static bool needs_all_lanes(uint32_t op) {
    return op == OpControlBarrier || is_matrix_operation(op) ||
           (op >= OpGroupNonUniformElect && op <= OpGroupNonUniformLogicalXor);
}

// Counts a kernel's operations for which lanes may be missing. Vulkan lets the invocations of a workgroup
// meet again after code in which they took different ways, if the workgroup came there as a whole. Subgroups
// of kernels on matrices may go separate ways, as a whole and without such code; but_ifs: or with no more of
// it than an `if` without loop or return.
static int count_lonely(const Module& m, bool but_ifs = false) {
    const Flow flow(m);
    int lonely = 0;
    for (size_t b = 0; b < flow.all_blocks().size(); b++)
        for (const Instruction* i : flow.all_blocks()[b].code) {
            const uint32_t op = Spirv::opcode(*i), control = flow.control(b), SUBGROUP_SCOPE = 3;
            if (!needs_all_lanes(op) || control == NOTHING) continue;
            const bool may_part =
                m.uses_matrices() && control == SUBGROUPS && !flow.is_after_divergence(b, but_ifs);
            const bool of_workgroup = op == OpControlBarrier && m.at((*i)[1])[3] != SUBGROUP_SCOPE;
            lonely += !may_part || of_workgroup;
        }
    return lonely;
}

TEST(EmbeddedShaders, AllLanesMeetForSubgroupOperations) {
    int kernels = 0;
    for (const Module& m : modules()) {
        // Lanes part at its loads in a subgroup's own branch. Vulkan does not promise that they meet after an
        // `if`, compilers see to it, and the self-test tries it: the comment of iterate().
        EXPECT_EQ(count_lonely(m, m.name.starts_with("attention_forward4")), 0) << m.name;
        kernels += std::ranges::any_of(
            m.code, [](const Instruction& i) { return needs_all_lanes(Spirv::opcode(i)); });
    }
    EXPECT_GT(kernels, 60);
}

// The kernel with an index that differs where it took another one.
static Module with_built_in(const std::string& kernel, BuiltIn before, BuiltIn after) {
    for (const EmbeddedShader* shader = embedded_shaders; shader->name; shader++) {
        if (kernel != shader->name) continue;
        std::vector<uint32_t> words(shader->code, shader->end);
        for (size_t at = 5; at < words.size(); at += words[at] >> 16)
            if ((words[at] & 0xffff) == OpDecorate && words[at + 2] == BUILT_IN && words[at + 3] == before)
                words[at + 3] = after;
        return Module({shader->name, words.data(), words.data() + words.size()});
    }
    throw std::runtime_error("no kernel " + kernel);
}

TEST(EmbeddedShaders, TheCheckOfSubgroupOperationsFindsDivergence) {
    // a subgroup or an invocation past the last row returns
    EXPECT_GT(count_lonely(with_built_in("fused_classifier3_fp32", WORKGROUP_ID, SUBGROUP_ID)), 0);
    EXPECT_GT(count_lonely(with_built_in("fused_classifier3_fp32", WORKGROUP_ID, LANE)), 0);
    EXPECT_GT(count_lonely(with_built_in("sample_token1_fp32", WORKGROUP_ID, LANE)), 0);
    // subgroups loop for different times, in the LayerNorm and over a range of tokens
    EXPECT_GT(count_lonely(with_built_in("decode_linear1_fp32", NUM_SUBGROUPS, SUBGROUP_ID)), 0);
    EXPECT_GT(count_lonely(with_built_in("sample_token1_fp32", NUM_SUBGROUPS, SUBGROUP_ID)), 0);
    EXPECT_GT(count_lonely(with_built_in("attention_forward3_bf16", WORKGROUP_ID, LANE)), 0);
    // lanes load their keys after an `if`, skip others' keys, or loop for different times
    const std::string forward4 = "attention_forward4_bf16";
    EXPECT_GT(count_lonely(with_built_in(forward4, LANE, LANE)), 0);
    EXPECT_GT(count_lonely(with_built_in(forward4, SUBGROUP_ID, LANE), true), 0);
    EXPECT_GT(count_lonely(with_built_in(forward4, WORKGROUP_ID, LANE), true), 0);
}
