// The features of a device that change what training takes on it, for --list-devices.
#pragma once
#include <string>
#include <vector>

#include "llmc/launchpad/internal.h"

// What a device offers beyond what all kernels need.
struct OptionalFeatures {
    uint32_t min_subgroup = 0, max_subgroup = 0;
    Limits limits;                      // subgroup_size: the one that pipelines get
    bool has_matrix_extension = false;  // VK_KHR_cooperative_matrix
    CooperativeMatrixSupport matrix;    // what the kernels can use of it
    bool int64 = false;                 // shaderInt64
    bool storage_16bit = false;         // storageBuffer16BitAccess
    bool float16_arithmetic = false;    // shaderFloat16
    bool memory_budget = false;         // VK_EXT_memory_budget
    bool host_memory_import = false;    // VK_EXT_external_memory_host
    bool compiler_statistics = false;   // VK_KHR_pipeline_executable_properties
};

// What all kernels need and is not there, separated by commas; empty: nothing. The device has Vulkan 1.3.
// `subgroup_arithmetic`: in compute kernels. `limits`: max_block and shared_bytes.
std::string missing_features(const DeviceFeatures& have, bool subgroup_arithmetic, const Limits& limits);

// Drivers of some versions crash, hang or take a thousand times as long with cooperative matrices: a child
// process tries them first (llmc/kernels/self_test.h). LAUNCHPAD_TENSOR_CORES=1 trusts all, 0 none.
enum class Trust { none, after_trial, full };
Trust trust_in_matrices(VkDriverId driver, DeviceType type);

OptionalFeatures find_optional_features(const Vulkan& vk, VkPhysicalDevice physical, DeviceType type);

// For people, a line each: what pipelines are built for, the tensor cores, what is there, and what is not.
std::vector<std::string> feature_lines(const OptionalFeatures& features);
