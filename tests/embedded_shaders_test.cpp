// What holds for the SPIR-V of every kernel: nothing is left to the device's rounding of fp16, fragments load
// from aligned memory, and kernels on cooperative matrices have no shared memory that nobody counts.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "dev/vulkan/baselines/baselines.h"
#include "llmc/launchpad/shaders.h"
#include "tests/vulkan_device_layer/spirv.h"

extern const EmbeddedShader baseline_shaders[];

static const uint32_t OpTypePointer = 32, OpVariable = 59, OpName = 5, OpEntryPoint = 15, OpPhi = 245,
                      OpCompositeConstruct = 80, OpTypeCooperativeMatrix = 4456,
                      OpCooperativeMatrixLoad = 4457, OpCooperativeMatrixStore = 4458, WORKGROUP = 4,
                      PACK_HALF = 58;

struct Module {
    std::string name;
    std::vector<Instruction> code;
    std::map<uint32_t, Instruction> by_id;  // of types, variables and results

    const Instruction& at(uint32_t id) const { return by_id.at(id); }
    uint32_t op(uint32_t id) const { return by_id.contains(id) ? Spirv::opcode(at(id)) : 0; }
    bool uses_matrices() const {
        return std::ranges::any_of(
            code, [](const Instruction& i) { return Spirv::opcode(i) == OpCooperativeMatrixLoad; });
    }
};

static bool is_type(uint32_t op) {
    return (op >= OpTypeBool && op <= OpTypePointer) || op == OpTypeCooperativeMatrix;
}

static std::vector<Module> modules() {
    std::vector<Module> all;
    for (const EmbeddedShader* table : {embedded_shaders, baseline_shaders})
        for (; table->name; table++) {
            Module m = {table->name, Spirv({table->code, table->end}).instructions(), {}};
            for (const Instruction& i : m.code) {
                const uint32_t op = Spirv::opcode(i);
                if (is_type(op))
                    m.by_id[i[1]] = i;
                else if (i.size() > 2 && is_type(m.op(i[1])))
                    m.by_id[i[2]] = i;
            }
            all.push_back(std::move(m));
        }
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
    const uint32_t BUILT_IN = 11, LANE = 41;
    for (const Module& m : modules())
        if (m.name.starts_with("matrix_layout")) {
            EXPECT_TRUE(std::ranges::any_of(m.code, [&](const Instruction& i) {
                return Spirv::opcode(i) == OpDecorate && i[2] == BUILT_IN && i[3] == LANE;
            })) << m.name;
        }
}

// Launchers count the shared memory that their kernels use; drivers may also reserve what is declared only.
TEST(EmbeddedShaders, MatrixKernelsUseAllTheirSharedMemory) {
    int kernels = 0;
    for (const Module& m : modules()) {
        if (!m.uses_matrices()) continue;
        kernels++;
        std::set<uint32_t> unused;
        for (const Instruction& i : m.code)
            if (Spirv::opcode(i) == OpVariable && i[3] == WORKGROUP) unused.insert(i[2]);
        for (const Instruction& i : m.code)
            if (const uint32_t op = Spirv::opcode(i);
                op != OpVariable && op != OpName && op != OpDecorate && op != OpEntryPoint)
                for (size_t word = 1; word < i.size(); word++) unused.erase(i[word]);
        EXPECT_TRUE(unused.empty()) << m.name;
    }
    EXPECT_GT(kernels, 10);
}
