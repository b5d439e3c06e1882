// What --list-devices tells of a device: the features that it lacks, and the ones that decide which kernels
// training takes. Variants of lavapipe tell different ones; compile_kernels_test asks vendors' drivers.
#include "llmc/launchpad/device_features.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
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

// --- capabilities of the SPIR-V ---

// A device that has everything, but for one feature.
struct ImaginaryDevice {
    static inline DeviceFeatures* have;
    static inline VkSubgroupFeatureFlags subgroup_operations;
    DeviceFeatures features;
    Vulkan vk;
    ImaginaryDevice() {
        for_each_feature(features, [](VkBool32& feature) { feature = VK_TRUE; });
        features.matrix.cooperativeMatrix = VK_TRUE;
        features.bfloat16.shaderBFloat16Type = features.bfloat16.shaderBFloat16CooperativeMatrix = VK_TRUE;
        have = &features;
        subgroup_operations = ~VkSubgroupFeatureFlags(0);
        vk.vkGetPhysicalDeviceFeatures2 = [](VkPhysicalDevice, VkPhysicalDeviceFeatures2* to) {
            DeviceFeatures& asked = *reinterpret_cast<DeviceFeatures*>(to);  // whose first member it is
            asked.features2.features = have->features2.features;
            asked.vulkan11.storageBuffer16BitAccess = have->vulkan11.storageBuffer16BitAccess;
            asked.vulkan12.vulkanMemoryModel = have->vulkan12.vulkanMemoryModel;
            asked.vulkan12.shaderFloat16 = have->vulkan12.shaderFloat16;
            asked.matrix.cooperativeMatrix = have->matrix.cooperativeMatrix;
            asked.bfloat16.shaderBFloat16Type = have->bfloat16.shaderBFloat16Type;
            asked.bfloat16.shaderBFloat16CooperativeMatrix = have->bfloat16.shaderBFloat16CooperativeMatrix;
        };
        vk.vkGetPhysicalDeviceProperties2 = [](VkPhysicalDevice, VkPhysicalDeviceProperties2* to) {
            auto* const next = static_cast<VkPhysicalDeviceSubgroupProperties*>(to->pNext);
            if (next->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES) return;
            next->supportedOperations = subgroup_operations;
            next->supportedStages = VK_SHADER_STAGE_COMPUTE_BIT;
        };
        vk.vkEnumerateDeviceExtensionProperties = [](VkPhysicalDevice, const char*, uint32_t* count,
                                                     VkExtensionProperties* to) {
            *count = 2;
            if (to) strcpy(to[0].extensionName, "VK_KHR_cooperative_matrix");
            if (to) strcpy(to[1].extensionName, "VK_KHR_shader_bfloat16");
            return VK_SUCCESS;
        };
    }
};

// The extension alone promises no buffers in such memory.
TEST(DeviceFeatures, HostMemoryIsImportedWhereBuffersCanBe) {
    static VkExternalMemoryFeatureFlags features;
    ImaginaryDevice device;
    device.vk.vkEnumerateDeviceExtensionProperties = [](VkPhysicalDevice, const char*, uint32_t* count,
                                                        VkExtensionProperties* to) {
        *count = 1;
        if (to) strcpy(to->extensionName, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
        return VK_SUCCESS;
    };
    device.vk.vkGetPhysicalDeviceExternalBufferProperties =
        [](VkPhysicalDevice, const VkPhysicalDeviceExternalBufferInfo*, VkExternalBufferProperties* to) {
            to->externalMemoryProperties.externalMemoryFeatures = features;
        };
    EXPECT_FALSE(can_import_host_memory(device.vk, VK_NULL_HANDLE));
    features = VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT;
    EXPECT_TRUE(can_import_host_memory(device.vk, VK_NULL_HANDLE));
}

static std::set<uint32_t> capabilities_of(const EmbeddedShader& shader) {
    std::set<uint32_t> found;
    for (const uint32_t* word = shader.code + 5; word < shader.end; word += *word >> 16)
        if ((*word & 0xffff) == 17) found.insert(word[1]);
    return found;
}

const uint32_t COOPERATIVE_MATRIX = 6022, BFLOAT16 = 5116;

// By capability. Others are properties of subgroups, or Shader.
static std::map<uint32_t, VkBool32*> features_by_capability(DeviceFeatures& f) {
    const uint32_t FLOAT16 = 9, INT64 = 11, INT16 = 22, STORAGE16 = 4433, BFLOAT16_MATRIX = 5118,
                   MEMORY_MODEL = 5345, ADDRESSES = 5347;
    return {{FLOAT16, &f.vulkan12.shaderFloat16},
            {INT64, &f.features2.features.shaderInt64},
            {INT16, &f.features2.features.shaderInt16},
            {STORAGE16, &f.vulkan11.storageBuffer16BitAccess},
            {BFLOAT16, &f.bfloat16.shaderBFloat16Type},
            {BFLOAT16_MATRIX, &f.bfloat16.shaderBFloat16CooperativeMatrix},
            {MEMORY_MODEL, &f.vulkan12.vulkanMemoryModel},
            {ADDRESSES, &f.vulkan12.bufferDeviceAddress},
            {COOPERATIVE_MATRIX, &f.matrix.cooperativeMatrix}};
}
static const std::map<uint32_t, VkSubgroupFeatureFlagBits> subgroup_operations = {
    {61, VK_SUBGROUP_FEATURE_BASIC_BIT},
    {62, VK_SUBGROUP_FEATURE_VOTE_BIT},
    {63, VK_SUBGROUP_FEATURE_ARITHMETIC_BIT},
    {65, VK_SUBGROUP_FEATURE_SHUFFLE_BIT}};

TEST(DeviceFeatures, OfAllCapabilitiesAreAskedFor) {
    ImaginaryDevice device;
    DeviceFeatures asked;
    asked.request(device.features);
    EXPECT_TRUE(find_cooperative_matrix_support(device.vk, VK_NULL_HANDLE, asked).bf16);
    const std::map<uint32_t, VkBool32*> features = features_by_capability(asked);
    for (const EmbeddedShader* s = embedded_shaders; s->name; s++)
        for (const uint32_t capability : capabilities_of(*s)) {
            const uint32_t SHADER = 1;
            if (capability == SHADER || subgroup_operations.contains(capability)) continue;
            ASSERT_TRUE(features.contains(capability)) << s->name << " needs capability " << capability;
            EXPECT_TRUE(*features.at(capability)) << s->name << " needs capability " << capability;
        }
}

// Where a feature is missing, the kernels that declare it are not taken. Devices without 64-bit integers get
// other code; 16-bit types need 16-bit storage.
TEST(DeviceFeatures, KernelsAreTakenWithTheirFeaturesAlone) {
    const uint32_t SHADER = 1, INT64 = 11, BASIC = 61, ARITHMETIC = 63, STORAGE16 = 4433, ADDRESSES = 5347;
    const std::set<uint32_t> always = {SHADER, INT64, BASIC, ARITHMETIC, ADDRESSES};
    for (const EmbeddedShader* s = embedded_shaders; s->name; s++) {
        const std::string name = s->name;
        const std::set<uint32_t> needs = capabilities_of(*s);
        for (const uint32_t capability : needs) {
            if (always.contains(capability) || (capability == STORAGE16 && !name.ends_with("_fp32")))
                continue;
            ASSERT_TRUE(needs.contains(COOPERATIVE_MATRIX)) << name << " needs capability " << capability;
            ImaginaryDevice device;
            const std::map<uint32_t, VkBool32*> features = features_by_capability(device.features);
            if (features.contains(capability))
                *features.at(capability) = VK_FALSE;
            else
                device.subgroup_operations &= ~VkSubgroupFeatureFlags(subgroup_operations.at(capability));
            DeviceFeatures asked;
            const auto found = find_cooperative_matrix_support(device.vk, VK_NULL_HANDLE, asked);
            EXPECT_FALSE(needs.contains(BFLOAT16) ? found.bf16 : found.fp16) << name << " " << capability;
        }
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
        const ProgramResult result = run_program("train_gpt2 --list-devices");
        set_vector_bits("");
        EXPECT_EQ(result.status, 0);
        EXPECT_TRUE(contains(result.out,
                             std::string("\n   subgroups of ") + size + " (the device has " + size + ")"));
        EXPECT_TRUE(contains(result.out, "\n   tensor cores: bf16 "));
    }
}
