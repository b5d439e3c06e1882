// Every kernel, rewritten for devices without 64-bit integers, is valid SPIR-V and uses none. That the
// results are the same is what swiftshader_test shows, on a device without them.
#include "llmc/launchpad/without_int64.h"

#include <gtest/gtest.h>

#include "llmc/base/file.h"
#include "llmc/launchpad/shaders.h"
#include "tests/message_of.h"
#include "tests/run_program.h"

extern const EmbeddedShader baseline_shaders[];

static std::string validate(const std::string& path) {
    const std::string own = SOURCE_DIR "/.tools/bin/spirv-val";
    const ProgramResult result = run_program({std::filesystem::exists(own) ? own : "spirv-val",
                                              "--target-env", "vulkan1.3", "--scalar-block-layout", path});
    return result.status == 0 ? "" : result.err + result.out;
}

// Whether an instruction of the module has this opcode and these first operands.
static bool has_instruction(std::span<const uint32_t> module, uint32_t op, uint32_t operand, uint32_t at) {
    for (size_t i = 5; i < module.size(); i += module[i] >> 16)
        if ((module[i] & 0xffff) == op && module[i + at] == operand) return true;
    return false;
}
static bool has_int64(std::span<const uint32_t> module) {
    return has_instruction(module, 17, 11, 1) || has_instruction(module, 21, 64, 2);  // capability, type
}

TEST(WithoutInt64, EveryKernelIsValid) {
    TemporaryFolder folder;
    int rewritten = 0;
    for (const EmbeddedShader* shader : {embedded_shaders, baseline_shaders})
        for (; shader->name; shader++) {
            const std::vector<uint32_t> module = without_int64({shader->code, shader->end});
            rewritten += has_int64({shader->code, shader->end});
            EXPECT_FALSE(has_int64(module)) << shader->name;
            const std::string path = folder / shader->name;
            write_whole_file(path,
                             {std::string(reinterpret_cast<const char*>(module.data()), module.size() * 4)});
            EXPECT_EQ(validate(path), "") << shader->name;
        }
    EXPECT_GT(rewritten, 180);
}

// A type of 64 bits, an undefined value of it, and this instruction.
static std::string refusal(std::vector<uint32_t> instruction) {
    std::vector<uint32_t> module = {0x07230203, 0x10600, 0, 9, 0, 4 << 16 | 21, 1, 64, 0, 3 << 16 | 1, 1, 2};
    instruction[0] |= uint32_t(instruction.size()) << 16;
    module.insert(module.end(), instruction.begin(), instruction.end());
    return message_of([&] { without_int64(module); });
}

TEST(WithoutInt64, AnUnknownInstructionIsNamed) {
    EXPECT_TRUE(contains(refusal({126, 1, 3, 2}), "instruction 126 on 64-bit integers"));
    for (uint32_t op : {112u, 114u, 124u, 177u})  // OpConvertUToF, OpSConvert, OpBitcast, OpSLessThan
        EXPECT_TRUE(contains(refusal({op, 5, 3, 2, 2}), format_string("instruction %u on 64-bit", op))) << op;
    EXPECT_EQ(refusal({62, 5, 3, 2}), "");  // OpStore of 3, with an alignment that is no operand
}
