#include "llmc/launchpad/device_features.h"

#include <cstdlib>
#include <cstring>

std::string missing_features(const DeviceFeatures& have, bool subgroup_arithmetic, const Limits& limits) {
    const bool subgroup_sizes = have.vulkan13.subgroupSizeControl && have.vulkan13.computeFullSubgroups;
    const std::pair<const char*, bool> needed[] = {
        {"bufferDeviceAddress", have.vulkan12.bufferDeviceAddress},
        {"scalarBlockLayout", have.vulkan12.scalarBlockLayout},
        {"timelineSemaphore", have.vulkan12.timelineSemaphore},
        {"synchronization2", have.vulkan13.synchronization2},
        {"maintenance4", have.vulkan13.maintenance4},
        {"subgroup size control", subgroup_sizes},
        {"subgroup arithmetic in compute", subgroup_arithmetic},
        {"workgroups of 256", limits.max_block >= 256},
        {"24 KiB of shared memory", limits.shared_bytes >= 24 * 1024},
    };
    std::string missing;
    for (const auto& [name, there] : needed)
        if (!there) missing += std::string(missing.empty() ? "" : ", ") + name;
    return missing;
}

Trust trust_in_matrices(VkDriverId driver, DeviceType type) {
    const char* wanted = getenv("LAUNCHPAD_TENSOR_CORES");
    if (wanted && *wanted) return strcmp(wanted, "0") == 0 ? Trust::none : Trust::full;
    // Radeon 860M, Adrenalin 26.3.1: the query of the shapes crashes (github.com/GPUOpen-Drivers/AMDVLK issue
    // 422)
    const bool amd = driver == VK_DRIVER_ID_AMD_PROPRIETARY || driver == VK_DRIVER_ID_AMD_OPEN_SOURCE;
    // Arc A770, 32.0.101.8826: up to 1,400 times slower (github.com/ggml-org/llama.cpp pull request 24404);
    // Arc Pro B70: the GPU hangs (github.com/IGCIT/Intel-GPU-Community-Issue-Tracker-IGCIT issue 1487)
    const bool intel = driver == VK_DRIVER_ID_INTEL_PROPRIETARY_WINDOWS;
    return intel || (amd && type == DeviceType::integrated) ? Trust::after_trial : Trust::full;
}

OptionalFeatures find_optional_features(const Vulkan& vk, VkPhysicalDevice physical, DeviceType type) {
    OptionalFeatures found;
    VkPhysicalDeviceVulkan13Properties vulkan13 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES};
    VkPhysicalDeviceProperties2 properties = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &vulkan13};
    vk.vkGetPhysicalDeviceProperties2(physical, &properties);
    found.min_subgroup = vulkan13.minSubgroupSize;
    found.max_subgroup = vulkan13.maxSubgroupSize;
    choose_subgroups(vk, physical, type, found.limits);
    DeviceFeatures have, request;
    vk.vkGetPhysicalDeviceFeatures2(physical, &have.features2);
    found.int64 = have.features2.features.shaderInt64;
    found.storage_16bit = have.vulkan11.storageBuffer16BitAccess;
    found.float16_arithmetic = have.vulkan12.shaderFloat16;
    found.has_matrix_extension = has_extension(vk, physical, "VK_KHR_cooperative_matrix");
    found.matrix = find_cooperative_matrix_support(vk, physical, request);
    find_fragment_shapes(vk, physical, found.matrix, found.limits);
    found.memory_budget = has_extension(vk, physical, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    found.host_memory_import = can_import_host_memory(vk, physical);
    found.compiler_statistics =
        has_extension(vk, physical, VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
    return found;
}

// Why a storage type runs without tensor cores.
static std::string reason_without(const OptionalFeatures& f, bool supported, const char* type_feature) {
    if (!f.has_matrix_extension) return "lacks VK_KHR_cooperative_matrix";
    if (f.matrix.untried) return "not tried yet: the first start tries what drivers of this kind do";
    if (f.matrix.avoided) return "not used: the driver failed with them, or --no-tensor-cores";
    if (f.matrix.extensions.empty())
        return "lacks subgroup votes or shuffles, shaderInt16, 16-bit storage or the Vulkan memory model";
    if (!f.limits.has_one_subgroup_size) return "not used: the driver chooses the size of subgroups";
    if (!supported) return std::string("lacks ") + type_feature;
    if (f.limits.few_registers) return "not used: too few registers";
    return "has no fragment shape that the kernels know";
}

static std::string tensor_cores(const OptionalFeatures& f, const FragmentShape& shape, bool supported,
                                const char* type_feature) {
    if (shape) return format_string("%ux%ux%u", shape.M, shape.N, shape.K);
    return "none (" + reason_without(f, supported, type_feature) + ")";
}

std::vector<std::string> feature_lines(const OptionalFeatures& f) {
    std::string sizes = std::to_string(f.min_subgroup);
    if (f.max_subgroup != f.min_subgroup) sizes += " to " + std::to_string(f.max_subgroup);
    std::string has, lacks;
    auto tell = [&](bool there, const char* name, const char* consequence) {
        std::string& list = there ? has : lacks;
        list += (list.empty() ? "" : ", ") + std::string(name);
        if (!there) list += std::string(" (") + consequence + ")";
    };
    tell(f.int64, "64-bit integers", "kernels compute addresses in two halves");
    tell(f.storage_16bit, "16-bit storage", "fp32 only");
    tell(f.float16_arithmetic, "fp16 arithmetic", "fp16 computes in fp32");
    tell(f.memory_budget, "memory budget", "free memory is unknown");
    tell(f.host_memory_import, "import of host memory", "several processes sum gradients on the CPU");
    tell(f.compiler_statistics, "compiler statistics", "compile_kernels shows no registers");
    std::vector<std::string> lines;
    const std::string subgroups =
        f.limits.has_one_subgroup_size
            ? format_string("%u (the device has %s)", f.limits.subgroup_size, sizes.c_str())
            : sizes + " (the driver chooses)";
    lines.push_back(format_string("subgroups of %s%s, workgroups of %u, %u KiB of shared memory",
                                  subgroups.c_str(),
                                  f.limits.few_registers ? ", kernels for few registers" : "",
                                  f.limits.max_block, f.limits.shared_bytes / 1024));
    const char* const bf16_feature = f.float16_arithmetic ? "VK_KHR_shader_bfloat16" : "shaderFloat16";
    lines.push_back("tensor cores: bf16 " +
                    tensor_cores(f, f.limits.bf16_fragment, f.matrix.bf16, bf16_feature) + ", fp16 " +
                    tensor_cores(f, f.limits.fp16_fragment, f.matrix.fp16, "shaderFloat16"));
    if (!has.empty()) lines.push_back("has " + has);
    if (!lacks.empty()) lines.push_back("lacks " + lacks);
    return lines;
}
