// LaunchPad: opening a device and closing it. Memory is in buffers.cpp, commands in commands.cpp,
// postponed ones in postponed.cpp, asynchronous copies in copies.cpp, kernels in pipelines.cpp.
#include "llmc/launchpad/launchpad.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "llmc/launchpad/internal.h"
#include "llmc/launchpad/matrix_layout.h"
#include "shaders/args.h"

const char* memory_mode_name(MemoryMode mode) {
    static const char* const names[] = {"automatic", "unified", "staged"};
    return names[int(mode)];
}

bool environment_switch(const char* name) {
    const char* value = getenv(name);
    return value && *value && strcmp(value, "0") != 0;
}

void check_iterations(const LaunchPad& pad, const char* kernel, uint64_t iterations) {
    const uint32_t most = pad.limits().max_iterations;
    if (iterations > most)
        fail(
            "%s: loops of %llu iterations are too long for %s, which ends them after %u: use a smaller batch "
            "or sequence, or --device cpu",
            kernel, (unsigned long long)iterations, pad.device().name.c_str(), most);
}

static void find_physical_device(LaunchPadState& s) {
    const std::vector<PhysicalDevice> devices = physical_devices(s.vk);
    std::vector<DeviceInfo> infos;
    for (const PhysicalDevice& device : devices) infos.push_back(device.info);
    const DeviceChoice choice = choose_among(infos, s.options.device);
    if (!choice.device)
        fail("a launchpad needs a Vulkan device, and '%s' means the CPU", s.options.device.c_str());
    s.info = *choice.device;
    s.physical = devices[size_t(s.info.index)].handle;
}

// On NVIDIA, all families use the same engine, and the first one is measured.
int compute_family(const std::vector<VkQueueFamilyProperties>& families, uint32_t vendor) {
    const uint32_t NVIDIA = 0x10de;
    const VkQueueFlags graphics = vendor == NVIDIA ? 0 : VK_QUEUE_GRAPHICS_BIT;
    for (const VkQueueFlags unwanted : {graphics, VkQueueFlags(0)})
        for (size_t i = 0; i < families.size(); i++)
            if ((families[i].queueFlags & (VK_QUEUE_COMPUTE_BIT | unwanted)) == VK_QUEUE_COMPUTE_BIT)
                return int(i);
    return -1;
}

static void find_queue_families(LaunchPadState& s) {
    const auto families = listed<VkQueueFamilyProperties>(
        [&](auto... to) { s.vk.vkGetPhysicalDeviceQueueFamilyProperties(s.physical, to...); });
    VkPhysicalDeviceProperties2 properties = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    s.vk.vkGetPhysicalDeviceProperties2(s.physical, &properties);
    const int family = compute_family(families, properties.properties.vendorID);
    if (family < 0) fail("%s has no compute queue", s.info.name.c_str());
    const uint32_t bits = families[size_t(family)].timestampValidBits;
    s.timestamp_mask = bits >= 64 ? ~0ull : (1ull << bits) - 1;
    s.compute.family = s.copies.family = uint32_t(family);
    // families for video and optical flow transfer too
    const VkQueueFlags harmless = VK_QUEUE_SPARSE_BINDING_BIT | VK_QUEUE_PROTECTED_BIT;
    for (uint32_t i = 0; i < families.size(); i++)
        if ((families[i].queueFlags & ~harmless) == VK_QUEUE_TRANSFER_BIT) s.copies.family = i;
}

// SMs or compute units; 0 if the driver does not tell.
static void find_compute_units(LaunchPadState& s) {
    VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nvidia = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
    VkPhysicalDeviceShaderCoreProperties2AMD amd = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD};
    VkPhysicalDeviceProperties2 properties = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    if (has_extension(s.vk, s.physical, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME))
        properties.pNext = &nvidia;
    else if (has_extension(s.vk, s.physical, VK_AMD_SHADER_CORE_PROPERTIES_2_EXTENSION_NAME))
        properties.pNext = &amd;
    s.vk.vkGetPhysicalDeviceProperties2(s.physical, &properties);
    s.limits.compute_units = std::max(nvidia.shaderSMCount, amd.activeComputeUnitCount);
    s.limits.splits_fp32 = nvidia.shaderWarpsPerSM >= 64;
}

static void read_limits(LaunchPadState& s) {
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT import = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceVulkan13Properties vulkan13 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES};
    VkPhysicalDeviceProperties2 properties = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &vulkan13};
    if (s.import_alignment) vulkan13.pNext = &import;
    s.vk.vkGetPhysicalDeviceProperties2(s.physical, &properties);
    const VkPhysicalDeviceLimits& limits = properties.properties.limits;
    if (s.import_alignment) s.import_alignment = import.minImportedHostPointerAlignment;
    s.pin_subgroup = choose_subgroups(s.vk, s.physical, s.info.type, s.limits);
    s.max_subgroup = s.pin_subgroup ? s.limits.subgroup_size : vulkan13.maxSubgroupSize;
    find_compute_units(s);
    // maxMemoryAllocationSize is only what always succeeds: NVIDIA reports 4 GiB, and allocates 110 GiB
    s.limits.max_allocation = vulkan13.maxBufferSize;
    for (int i = 0; i < 3; i++) s.max_groups[i] = limits.maxComputeWorkGroupCount[i];
    s.timestamp_period = limits.timestampPeriod * 1e-9;
}

// The optional extensions that the device has.
static std::vector<const char*> choose_extensions(LaunchPadState& s) {
    auto has = [&](const char* name) { return has_extension(s.vk, s.physical, name); };
    std::vector<const char*> chosen;
    if (can_import_host_memory(s.vk, s.physical)) {
        chosen.push_back(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
        s.import_alignment = 1;  // read_limits() replaces it
    }
    if (has(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME)) {
        chosen.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
        s.has_memory_budget = true;
    }
    s.capture_statistics &= has(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
    if (s.capture_statistics) chosen.push_back(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
    if (has("VK_KHR_portability_subset"))
        chosen.push_back("VK_KHR_portability_subset");  // must be enabled if present
    return chosen;
}

static void create_device(LaunchPadState& s) {
    DeviceFeatures have, features;
    s.vk.vkGetPhysicalDeviceFeatures2(s.physical, &have.features2);
    features.request(have);
    s.has_int64 = have.features2.features.shaderInt64;
    s.has_16bit_storage = have.vulkan11.storageBuffer16BitAccess;
    const CooperativeMatrixSupport matrix = find_cooperative_matrix_support(s.vk, s.physical, features);
    std::vector<const char*> extensions = choose_extensions(s);
    extensions.insert(extensions.end(), matrix.extensions.begin(), matrix.extensions.end());
    find_queue_families(s);
    const float priority = 1.0f;
    VkDeviceQueueCreateInfo queues[2];
    for (VkDeviceQueueCreateInfo& queue : queues) {
        queue = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
        queue.queueFamilyIndex = &queue == queues ? s.compute.family : s.copies.family;
        queue.queueCount = 1;
        queue.pQueuePriorities = &priority;
    }
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executables = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR, &features.features2,
        VK_TRUE};
    VkDeviceCreateInfo info = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &features.features2};
    if (s.capture_statistics) info.pNext = &executables;
    info.queueCreateInfoCount = s.copies.family == s.compute.family ? 1 : 2;
    info.pQueueCreateInfos = queues;
    info.enabledExtensionCount = uint32_t(extensions.size());
    info.ppEnabledExtensionNames = extensions.data();
    VkDevice device;
    VK_CHECK(s.vk.vkCreateDevice(s.physical, &info, nullptr, &device));
    s.device = device;
    load_device_functions(s.vk, s.device);
    for (Queue* queue : {&s.compute, &s.copies})
        s.vk.vkGetDeviceQueue(s.device, queue->family, 0, &queue->handle);
    read_limits(s);
    find_fragment_shapes(s.vk, s.physical, matrix, s.limits);
}

static void create_pipeline_layout(LaunchPadState& s) {
    VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, 128};
    VkPipelineLayoutCreateInfo layout = {VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
    layout.pushConstantRangeCount = 1;
    layout.pPushConstantRanges = &range;
    VkPipelineLayout created;
    VK_CHECK(s.vk.vkCreatePipelineLayout(s.device, &layout, nullptr, &created));
    s.layout = created;
}

static void create_command_objects(LaunchPadState& s, Queue& queue) {
    VkCommandPoolCreateInfo info = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    info.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
    info.queueFamilyIndex = queue.family;
    VkCommandPool pool;
    VK_CHECK(s.vk.vkCreateCommandPool(s.device, &info, nullptr, &pool));
    queue.pool = pool;
    VkSemaphoreTypeCreateInfo type = {VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
    type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
    VkSemaphoreCreateInfo semaphore_info = {VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type};
    VkSemaphore semaphore;
    VK_CHECK(s.vk.vkCreateSemaphore(s.device, &semaphore_info, nullptr, &semaphore));
    queue.timeline = semaphore;
}

// Some drivers build kernels for another size of subgroups than they were told.
static void probe_subgroup_size(LaunchPad& pad, Limits& limits) {
    float* const size = pad.allocate<float>(1, "size of subgroups", Placement::host);
    pad.dispatch("subgroup_size", {1}, {256}, SubgroupSizeArgs{.size = pad.at(size, 1)});
    float counted = 0;
    pad.download(&counted, size, sizeof counted);
    pad.free(size);
    if (uint32_t(counted) == limits.subgroup_size) return;
    limits.subgroup_size = std::clamp(uint32_t(counted), 1u, limits.subgroup_size);
    limits.has_one_subgroup_size = false;
    limits.bf16_fragment = limits.fp16_fragment = {};
}

LaunchPad::LaunchPad(const LaunchPadOptions& options) : state(std::make_unique<LaunchPadState>()) {
    LaunchPadState& s = *state;
    s.options = options;
    s.options.validation |= environment_switch("LAUNCHPAD_VALIDATION");
    s.options.check_pointers |= environment_switch("LAUNCHPAD_CHECK_POINTERS");
    s.options.reverse_groups |= environment_switch("LAUNCHPAD_REVERSE_GROUPS");
    s.options.fp16_pieces |= environment_switch("LAUNCHPAD_FP16_PIECES");
    if (environment_switch("LAUNCHPAD_SUBMISSION_MS"))
        s.options.submission_seconds = atof(getenv("LAUNCHPAD_SUBMISSION_MS")) * 1e-3;
    if (environment_switch("LAUNCHPAD_STAGED")) s.options.memory = MemoryMode::staged;
    s.without_device = environment_switch("LAUNCHPAD_WITHOUT_DEVICE");
    s.options.compile_only |= s.without_device;
    s.capture_statistics = s.options.compile_only;
    s.vk = open_vulkan(s.options.validation);
    find_physical_device(s);
    create_device(s);
    VkPhysicalDeviceMemoryProperties2 memory = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    s.vk.vkGetPhysicalDeviceMemoryProperties2(s.physical, &memory);
    s.memory = memory.memoryProperties;
    create_pipeline_layout(s);
    if (!s.without_device) {  // which has no memory, and no queue to wait for
        choose_memory_mode(s);
        for (Queue* queue : {&s.compute, &s.copies}) create_command_objects(s, *queue);
    }
    create_pipeline_cache(s);
    read_measured(s);
    if (s.without_device)
        assume_matrix_layouts(s.limits);
    else {
        if (s.limits.has_one_subgroup_size) probe_subgroup_size(*this, s.limits);
        find_matrix_layouts(*this, s.limits);
    }
    if (s.options.compile_only) s.dry = &s.collected;
    s.limits.bf16_fragment.in_place &= s.options.in_place;
    s.limits.fp16_fragment.in_place &= s.options.in_place;
    s.limits.fp16_pieces = s.options.fp16_pieces;
    s.limits.splits_fp32 = (s.limits.splits_fp32 || s.limits.fp16_pieces) && s.limits.fp32_pieces();
}

LaunchPad::~LaunchPad() = default;

LaunchPadState::~LaunchPadState() {
    if (device) {
        wait_until_idle(*this);
        if (cache && !lost) save_pipeline_cache(*this);
        for (auto& [start, buffer] : buffers) destroy_buffer(*this, buffer);
        if (staging.buffer) destroy_buffer(*this, staging);
        for (Commands& commands : compute.in_flight) destroy_commands(*this, commands);
        for (Commands& commands : compute.idle) destroy_commands(*this, commands);
        if (recording) destroy_recording(*this, *recording);
        destroy_commands(*this, open);
        destroy_commands(*this, span);
        for (Recording* kept : recordings) {
            destroy_recording(*this, *kept);
            delete kept;
        }
        for (auto& [key, pipeline] : pipelines) vk.vkDestroyPipeline(device, pipeline.handle, nullptr);
        for (auto& [name, module] : modules) vk.vkDestroyShaderModule(device, module, nullptr);
        if (cache) vk.vkDestroyPipelineCache(device, cache, nullptr);
        if (layout) vk.vkDestroyPipelineLayout(device, layout, nullptr);
        for (const Queue* queue : {&compute, &copies}) {
            if (queue->timeline) vk.vkDestroySemaphore(device, queue->timeline, nullptr);
            if (queue->pool)
                vk.vkDestroyCommandPool(device, queue->pool, nullptr);  // with its command buffers
        }
        vk.vkDestroyDevice(device, nullptr);
    }
    close_vulkan(vk);
}

const DeviceInfo& LaunchPad::device() const { return state->info; }
const Limits& LaunchPad::limits() const { return state->limits; }
MemoryMode LaunchPad::memory_mode() const { return state->mode; }
bool LaunchPad::has_16bit_storage() const { return state->has_16bit_storage; }
uint64_t LaunchPad::allocated_bytes() const { return state->allocated; }
