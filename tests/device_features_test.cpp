// What --list-devices tells of a device: the features that it lacks, and the ones that decide which kernels
// training takes. Variants of lavapipe tell different ones; compile_kernels_test asks vendors' drivers.
#include "llmc/launchpad/device_features.h"

#include <gtest/gtest.h>

#include "tests/run_program.h"

TEST(DeviceFeatures, AllMissingFeaturesAreNamed) {
    DeviceFeatures have;
    have.request();  // all that kernels need
    const Limits limits = {.max_block = 256, .shared_bytes = 24576};
    EXPECT_EQ(missing_features(have, true, limits), "");
    EXPECT_EQ(missing_features(have, true, {.max_block = 128, .shared_bytes = 16384}),
              "workgroups of 256, 24 KiB of shared memory");
    have.vulkan11.storageBuffer16BitAccess = VK_FALSE;
    EXPECT_EQ(missing_features(have, true, limits), "storageBuffer16BitAccess");
    have.features2.features.shaderInt64 = have.vulkan13.computeFullSubgroups = VK_FALSE;
    EXPECT_EQ(missing_features(have, false, limits),
              "shaderInt64, storageBuffer16BitAccess, subgroup size control, subgroup arithmetic in compute");
}

static OptionalFeatures full() {
    OptionalFeatures f = {.min_subgroup = 32, .max_subgroup = 64};
    f.limits.subgroup_size = 32;
    f.limits.max_block = 1024;
    f.limits.shared_bytes = 64 * 1024;
    f.limits.bf16_fragment = f.limits.fp16_fragment = {16, 8, 16};
    f.has_matrix_extension = f.float16_arithmetic = f.memory_budget = f.host_memory_import =
        f.compiler_statistics = true;
    f.matrix = {.fp16 = true, .bf16 = true, .extensions = {"VK_KHR_cooperative_matrix"}};
    return f;
}

TEST(FeatureLines, OfADeviceWithEverything) {
    const std::vector<std::string> lines = feature_lines(full());
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[0],
              "subgroups of 32 (the device has 32 to 64), workgroups of 1024, 64 KiB of shared memory");
    EXPECT_EQ(lines[1], "tensor cores: bf16 16x8x16, fp16 16x8x16");
    EXPECT_EQ(lines[2], "has fp16 arithmetic, memory budget, import of host memory, compiler statistics");
}

TEST(FeatureLines, NameWhatIsLackingAndItsConsequence) {
    OptionalFeatures f = full();
    f.float16_arithmetic = f.memory_budget = f.host_memory_import = f.compiler_statistics = false;
    EXPECT_EQ(feature_lines(f)[2],
              "lacks fp16 arithmetic (fp16 computes in fp32), memory budget (free memory is unknown), import "
              "of host memory (several processes sum gradients on the CPU), compiler statistics "
              "(compile_kernels shows no registers)");
}

TEST(FeatureLines, GiveTheReasonForNoTensorCores) {
    OptionalFeatures f = full();
    auto tensor_cores = [&] { return feature_lines(f)[1]; };
    f.matrix.bf16 = false;
    f.limits.bf16_fragment = f.limits.fp16_fragment = {};
    EXPECT_EQ(tensor_cores(),
              "tensor cores: bf16 none (lacks VK_KHR_shader_bfloat16), fp16 none (has no fragment shape that "
              "the kernels know)");
    f.limits.few_registers = true;
    EXPECT_NE(tensor_cores().find("fp16 none (not used: too few registers)"), std::string::npos);
    f.matrix.extensions.clear();
    EXPECT_NE(tensor_cores().find("lacks subgroup votes or shuffles"), std::string::npos);
    f.has_matrix_extension = false;
    EXPECT_NE(tensor_cores().find("fp16 none (lacks VK_KHR_cooperative_matrix)"), std::string::npos);
}

// --- the program ---

static const std::string program = BINARY_DIR "/train_gpt2";

TEST(ListDevices, TellsTheSubgroupsOfSoftwareDevices) {
    if (getenv("LLMC_TEST_DEVICE")) GTEST_SKIP() << "another device than lavapipe";
    for (const auto& [bits, size] : {std::pair{"128", "4"}, {"256", "8"}}) {
        const ProgramResult result =
            run_program({"env", std::string("LP_NATIVE_VECTOR_WIDTH=") + bits, program, "--list-devices"});
        EXPECT_EQ(result.status, 0);
        EXPECT_NE(
            result.out.find(std::string("\n   subgroups of ") + size + " (the device has " + size + ")"),
            std::string::npos)
            << result.out;
        EXPECT_NE(result.out.find("\n   tensor cores: bf16 "), std::string::npos) << result.out;
    }
}
