#include "dev/vulkan/compile_kernel.h"

#include "llmc/base/clock.h"
#include "llmc/launchpad/internal.h"

// The first of these names that the driver's statistics have; -1: none.
static double find_statistic(const std::map<std::string, double>& statistics,
                             std::initializer_list<const char*> names) {
    for (const char* name : names)
        if (const auto known = statistics.find(name); known != statistics.end()) return known->second;
    return -1;
}

// In each list: the names of RADV, ANV, NVIDIA's driver and NVK, as far as they have one of their own.
// "Code Size", "SLM Size" and no spills: NVK up to Mesa 25.0. "Spills": ANV of Mesa 26.2.
void name_statistics(CompiledKernel& k) {
    k.registers =
        find_statistic(k.statistics, {"VGPRs", "Max live registers", "Register Count", "Number of GPRs"});
    k.spills = find_statistic(k.statistics, {"Spilled VGPRs", "Spill Count", "Spills", "Spills to memory"});
    k.scratch_bytes = find_statistic(
        k.statistics, {"Scratch size", "Scratch Memory Size", "Local Memory Size", "SLM Size", "SLM size"});
    k.shared_bytes =
        find_statistic(k.statistics, {"LDS size", "Workgroup Memory Size", "Shared Memory Size"});
    k.code_bytes = find_statistic(k.statistics, {"Code size", "Binary Size", "Code Size"});
    k.subgroups_per_unit = find_statistic(k.statistics, {"Subgroups per SIMD", "Occupancy"});
    const double warps_per_sm = find_statistic(k.statistics, {"Max warps/SM"});
    if (warps_per_sm > 0) k.subgroups_per_unit = warps_per_sm / 4;  // an SM has four SIMD units
}

// What the driver's compiler tells of a kernel: registers, shared memory and so on.
static std::map<std::string, double> read_statistics(const LaunchPadState& s, VkPipeline pipeline) {
    std::map<std::string, double> read;
    VkPipelineExecutableInfoKHR info = {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR, nullptr, pipeline, 0};
    const auto statistics = listed<VkPipelineExecutableStatisticKHR>(
        [&](auto... to) { VK_CHECK(s.vk.vkGetPipelineExecutableStatisticsKHR(s.device, &info, to...)); },
        {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR});
    for (const VkPipelineExecutableStatisticKHR& statistic : statistics)
        read[statistic.name] = statistic.format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR
                                   ? statistic.value.f64
                                   : double(statistic.value.i64);
    return read;
}

CompiledKernel compile_kernel(LaunchPad& pad, const std::string& key,
                              const std::vector<uint32_t>& constants) {
    LaunchPadState& s = *pad.state;
    CompiledKernel k;
    VkPipeline pipeline = VK_NULL_HANDLE;
    try {
        const std::string kernel = key.substr(0, key.find('\0'));
        find_module(s, kernel);  // outside of the time
        const double start = now();
        pipeline = build_pipeline(s, kernel, constants, VK_NULL_HANDLE);
        k.seconds = now() - start;
    } catch (const Error& error) {
        k.error = error.what();
        return k;
    }
    if (s.capture_statistics) {
        k.statistics = read_statistics(s, pipeline);
        VkPipelineInfoKHR info = {VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR, nullptr, pipeline};
        VkPipelineExecutablePropertiesKHR properties = {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR};
        uint32_t count = 1;
        s.vk.vkGetPipelineExecutablePropertiesKHR(s.device, &info, &count, &properties);
        if (count) k.subgroup_size = properties.subgroupSize;
    }
    name_statistics(k);
    s.vk.vkDestroyPipeline(s.device, pipeline, nullptr);
    return k;
}
