// What --list-devices tells of a device: the features that it lacks, and the ones that decide which kernels
// training takes. Variants of lavapipe tell different ones; compile_kernels_test asks vendors' drivers.
#include "llmc/launchpad/device_features.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "llmc/base/file.h"
#include "llmc/launchpad/shaders.h"
#include "llmc/options/command_line.h"
#include "tests/other_device.h"

TEST(DeviceFeatures, AllMissingFeaturesAreNamed) {
    DeviceFeatures have;
    have.request(have);  // all that kernels need
    const Limits limits = {.max_block = 256, .shared_bytes = 24576};
    EXPECT_EQ(missing_features(have, true, limits), "");
    EXPECT_EQ(missing_features(have, true, {.max_block = 128, .shared_bytes = 16384}),
              "workgroups of 256, 24 KiB of shared memory");
    have.vulkan12.scalarBlockLayout = have.vulkan13.computeFullSubgroups = VK_FALSE;
    EXPECT_EQ(missing_features(have, false, limits),
              "scalarBlockLayout, subgroup size control, subgroup arithmetic in compute");
}

// Calls f with each of the features that `features` has as booleans.
template <class Function>
static void for_each_feature(DeviceFeatures& features, Function f) {
    auto visit = [&](auto& group, auto& first) {
        for (VkBool32* b = &first; b != reinterpret_cast<VkBool32*>(&group + 1); b++) f(*b);
    };
    VkPhysicalDeviceFeatures& features10 = features.features2.features;
    visit(features10, features10.robustBufferAccess);
    visit(features.vulkan11, features.vulkan11.storageBuffer16BitAccess);
    visit(features.vulkan12, features.vulkan12.samplerMirrorClampToEdge);
    visit(features.vulkan13, features.vulkan13.robustImageAccess);
}

TEST(DeviceFeatures, WhatIsRequestedIsNamedWhereItIsMissing) {
    const Limits limits = {.max_block = 256, .shared_bytes = 24576};
    int requested = 0;
    DeviceFeatures none, needed;
    needed.request(none);
    for_each_feature(needed, [&](VkBool32& feature) {
        if (!feature) return;
        requested++;
        feature = VK_FALSE;
        EXPECT_NE(missing_features(needed, true, limits), "");
        feature = VK_TRUE;
    });
    EXPECT_EQ(requested, 7);
}

// What the shaders declare. Devices without 64-bit integers get other code; 16-bit types need 16-bit storage.
TEST(DeviceFeatures, KernelsNeedNothingElse) {
    const uint32_t shader = 1, int64 = 11, basic = 61, arithmetic = 63, storage16 = 4433, addresses = 5347,
                   cooperative_matrix = 6022;
    for (const EmbeddedShader* s = embedded_shaders; s->name; s++) {
        std::set<uint32_t> needs;
        for (const uint32_t* word = s->code + 5; word < s->end; word += *word >> 16)
            if ((*word & 0xffff) == 17) needs.insert(word[1]);
        if (needs.contains(cooperative_matrix)) continue;
        for (uint32_t known : {shader, int64, basic, arithmetic, addresses}) needs.erase(known);
        if (!std::string(s->name).ends_with("_fp32")) needs.erase(storage16);
        EXPECT_TRUE(needs.empty()) << s->name << " needs SPIR-V capability " << *needs.begin();
    }
}

TEST(DeviceFeatures, ThePageOfDevicesListsThemAll) {
    std::string page = read_whole_file(SOURCE_DIR "/docs/devices.md");
    std::replace(page.begin(), page.end(), '\n', ' ');
    const std::string all = missing_features(DeviceFeatures(), false, {});
    const size_t last = all.rfind(", ");
    EXPECT_TRUE(contains(
        page, "A device needs Vulkan 1.3 with " + all.substr(0, last) + " and " + all.substr(last + 2) + "."))
        << all;
}

static OptionalFeatures full() {
    OptionalFeatures f = {.min_subgroup = 32, .max_subgroup = 64};
    f.limits.subgroup_size = 32;
    f.limits.max_block = 1024;
    f.limits.shared_bytes = 64 * 1024;
    f.limits.bf16_fragment = f.limits.fp16_fragment = {16, 8, 16};
    f.int64 = f.storage_16bit = f.has_matrix_extension = f.float16_arithmetic = f.memory_budget =
        f.host_memory_import = f.compiler_statistics = true;
    f.matrix = {.fp16 = true, .bf16 = true, .extensions = {"VK_KHR_cooperative_matrix"}};
    return f;
}

TEST(FeatureLines, OfADeviceWithEverything) {
    const Words lines = feature_lines(full());
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[0],
              "subgroups of 32 (the device has 32 to 64), workgroups of 1024, 64 KiB of shared memory");
    EXPECT_EQ(lines[1], "tensor cores: bf16 16x8x16, fp16 16x8x16");
    EXPECT_EQ(lines[2],
              "has 64-bit integers, 16-bit storage, fp16 arithmetic, memory budget, import of host memory, "
              "compiler statistics");
}

TEST(FeatureLines, NameWhatIsLackingAndItsConsequence) {
    OptionalFeatures f = full();
    f.int64 = f.storage_16bit = f.float16_arithmetic = f.memory_budget = f.host_memory_import =
        f.compiler_statistics = false;
    EXPECT_EQ(feature_lines(f)[2],
              "lacks 64-bit integers (kernels compute addresses in two halves), 16-bit storage (fp32 only), "
              "fp16 arithmetic (fp16 computes in fp32), memory budget (free memory is unknown), import "
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
    f.float16_arithmetic = false;
    EXPECT_TRUE(contains(tensor_cores(), "bf16 none (lacks shaderFloat16)"));
    f.limits.few_registers = true;
    EXPECT_TRUE(contains(tensor_cores(), "fp16 none (not used: too few registers)"));
    f.limits.has_one_subgroup_size = false;
    EXPECT_TRUE(contains(tensor_cores(), "fp16 none (not used: the driver chooses the size of subgroups)"));
    EXPECT_EQ(feature_lines(f)[0].find("subgroups of 32 to 64 (the driver chooses), "), 0u);
    f.matrix.extensions.clear();
    EXPECT_TRUE(contains(tensor_cores(), "lacks subgroup votes or shuffles"));
    f.has_matrix_extension = false;
    EXPECT_TRUE(contains(tensor_cores(), "fp16 none (lacks VK_KHR_cooperative_matrix)"));
}

TEST(TensorCores, OfFaultyDriversAreAvoidedUnlessAskedFor) {
    const auto faulty = [](VkDriverId driver, DeviceType type) {
        return trust_in_matrices(driver, type) != Trust::full;
    };
    EXPECT_TRUE(faulty(VK_DRIVER_ID_AMD_PROPRIETARY, DeviceType::integrated));
    EXPECT_TRUE(faulty(VK_DRIVER_ID_INTEL_PROPRIETARY_WINDOWS, DeviceType::discrete));
    EXPECT_FALSE(faulty(VK_DRIVER_ID_AMD_PROPRIETARY, DeviceType::discrete));
    EXPECT_FALSE(faulty(VK_DRIVER_ID_MESA_RADV, DeviceType::integrated));
    const auto parse = [](const char* option) {
        CommandLine line("program", "");
        std::string device;
        line.add_device(device);
        const char* arguments[] = {"program", option};
        EXPECT_EQ(line.run(2, const_cast<char**>(arguments), [] {}), 0);
    };
    parse("--tensor-cores");
    EXPECT_FALSE(faulty(VK_DRIVER_ID_AMD_PROPRIETARY, DeviceType::integrated));
    parse("--no-tensor-cores");
    EXPECT_TRUE(faulty(VK_DRIVER_ID_NVIDIA_PROPRIETARY, DeviceType::discrete));
    unsetenv("LAUNCHPAD_TENSOR_CORES");
    OptionalFeatures f = full();
    f.matrix = {.avoided = true};
    f.limits.bf16_fragment = f.limits.fp16_fragment = {};
    EXPECT_TRUE(contains(feature_lines(f)[1], "not used: the driver failed"));
    f.matrix.untried = true;
    EXPECT_TRUE(contains(feature_lines(f)[1], "not tried yet"));
}

// --- the program ---

static const std::string program = BINARY_DIR "/train_gpt2";

TEST(ListDevices, TellsTheSubgroupsOfSoftwareDevices) {
    if (getenv("LLMC_TEST_DEVICE")) GTEST_SKIP() << "another device than lavapipe";
    for (const auto& [bits, size] : {std::pair{"128", "4"}, {"256", "8"}}) {
        set_vector_bits(bits);
        const ProgramResult result = run_program({program, "--list-devices"});
        set_vector_bits("");
        EXPECT_EQ(result.status, 0);
        EXPECT_TRUE(contains(result.out,
                             std::string("\n   subgroups of ") + size + " (the device has " + size + ")"));
        EXPECT_TRUE(contains(result.out, "\n   tensor cores: bf16 "));
    }
}
