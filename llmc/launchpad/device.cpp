// Lists Vulkan devices, checks whether they can run the kernels, and chooses one.
#include "llmc/launchpad/device.h"

#include <algorithm>
#include <cstring>

#include "llmc/launchpad/device_features.h"
#include "llmc/launchpad/shaders.h"

const char* device_type_name(DeviceType type) {
    static const char* const names[] = {"discrete GPU", "integrated GPU", "virtual GPU", "software"};
    return names[int(type)];
}

static DeviceType device_type(VkPhysicalDeviceType type) {
    if (type == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU) return DeviceType::discrete;
    if (type == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU) return DeviceType::integrated;
    if (type == VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU) return DeviceType::virtual_gpu;
    return DeviceType::software;
}

DeviceFeatures::DeviceFeatures() {
    features2.pNext = &vulkan11;
    vulkan11.pNext = &vulkan12;
    vulkan12.pNext = &vulkan13;
}

void DeviceFeatures::request(const DeviceFeatures& have) {
    features2.features.shaderInt64 = have.features2.features.shaderInt64;        // row offsets past 4 GiB
    vulkan11.storageBuffer16BitAccess = have.vulkan11.storageBuffer16BitAccess;  // bf16 and fp16 in memory
    vulkan12.bufferDeviceAddress = VK_TRUE;                                      // kernels take pointers
    vulkan12.scalarBlockLayout = VK_TRUE;  // argument blocks laid out as C++ structs
    vulkan12.timelineSemaphore = VK_TRUE;
    vulkan13.synchronization2 = VK_TRUE;
    vulkan13.maintenance4 = VK_TRUE;  // workgroup size from a specialization constant
    vulkan13.subgroupSizeControl = VK_TRUE;
    vulkan13.computeFullSubgroups = VK_TRUE;
}

bool has_extension(const Vulkan& vk, VkPhysicalDevice physical, const char* name) {
    const auto have = listed<VkExtensionProperties>(
        [&](auto... to) { VK_CHECK(vk.vkEnumerateDeviceExtensionProperties(physical, nullptr, to...)); });
    return std::any_of(have.begin(), have.end(),
                       [&](const auto& e) { return !strcmp(e.extensionName, name); });
}

bool can_import_host_memory(const Vulkan& vk, VkPhysicalDevice physical) {
    if (!has_extension(vk, physical, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME)) return false;
    VkPhysicalDeviceExternalBufferInfo info = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO};
    info.usage = BUFFER_USAGE;
    info.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
    VkExternalBufferProperties have = {VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES};
    vk.vkGetPhysicalDeviceExternalBufferProperties(physical, &info, &have);
    return have.externalMemoryProperties.externalMemoryFeatures & VK_EXTERNAL_MEMORY_FEATURE_IMPORTABLE_BIT;
}

// Whether compute kernels can use all of these.
static bool has_subgroup_operations(const Vulkan& vk, VkPhysicalDevice physical,
                                    VkSubgroupFeatureFlags needed) {
    VkPhysicalDeviceSubgroupProperties subgroup = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES};
    VkPhysicalDeviceProperties2 properties = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &subgroup};
    vk.vkGetPhysicalDeviceProperties2(physical, &properties);
    return (subgroup.supportedOperations & needed) == needed &&
           (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT);
}

bool choose_subgroups(const Vulkan& vk, VkPhysicalDevice physical, DeviceType type, Limits& limits) {
    VkPhysicalDeviceVulkan13Properties vulkan13 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES};
    VkPhysicalDeviceProperties2 properties = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &vulkan13};
    vk.vkGetPhysicalDeviceProperties2(physical, &properties);
    const VkPhysicalDeviceLimits& have = properties.properties.limits;
    const bool pin = (vulkan13.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) &&
                     vulkan13.minSubgroupSize != vulkan13.maxSubgroupSize;
    // The invocations of a subgroup divide registers among them: in the smallest subgroup, each has most.
    // That is also the size that Intel's cooperative matrices need.
    limits.subgroup_size = vulkan13.minSubgroupSize;
    limits.has_one_subgroup_size = pin || vulkan13.minSubgroupSize == vulkan13.maxSubgroupSize;
    limits.compiles_slowly = type == DeviceType::software;
    limits.few_registers = limits.subgroup_size < 32 && !limits.compiles_slowly;
    limits.max_block = std::min(have.maxComputeWorkGroupInvocations, have.maxComputeWorkGroupSize[0]);
    if (pin)
        limits.max_block =
            std::min(limits.max_block, vulkan13.maxComputeWorkgroupSubgroups * limits.subgroup_size);
    limits.shared_bytes = have.maxComputeSharedMemorySize;
    limits.barrier_block = std::min(limits.compiles_slowly ? 64u : 1024u, limits.max_block);
    // Mesa allows 65,534. The difference is for loops that no launcher counts, such as block_sum()'s.
    if (limits.compiles_slowly) limits.max_iterations = 64000;
    return pin;
}

CooperativeMatrixSupport find_cooperative_matrix_support(const Vulkan& vk, VkPhysicalDevice physical,
                                                         DeviceFeatures& request) {
    CooperativeMatrixSupport support;
    const char *matrix = "VK_KHR_cooperative_matrix", *bfloat16 = "VK_KHR_shader_bfloat16";
    const VkSubgroupFeatureFlags rows = VK_SUBGROUP_FEATURE_VOTE_BIT | VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
    if (!has_extension(vk, physical, matrix) || !has_subgroup_operations(vk, physical, rows)) return support;
    VkPhysicalDeviceDriverProperties driver = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
    VkPhysicalDeviceProperties2 properties = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &driver};
    vk.vkGetPhysicalDeviceProperties2(physical, &properties);
    const Trust trust = trust_in_matrices(driver.driverID, device_type(properties.properties.deviceType));
    if (trust == Trust::after_trial) {
        const std::map<std::string, bool> checks = stored_checks(vk, physical);
        const auto found = checks.find(MATRIX_TRIAL);
        support.untried = found == checks.end();
        support.avoided = support.untried || !found->second;
    }
    if (support.avoided || trust == Trust::none) {
        support.avoided = true;
        return support;
    }
    DeviceFeatures have;
    have.vulkan13.pNext = &have.matrix;
    const bool asks_bfloat16 = has_extension(vk, physical, bfloat16);
    if (asks_bfloat16) have.matrix.pNext = &have.bfloat16;
    vk.vkGetPhysicalDeviceFeatures2(physical, &have.features2);
    if (!have.matrix.cooperativeMatrix || !have.vulkan12.vulkanMemoryModel ||
        !have.features2.features.shaderInt16 || !have.vulkan11.storageBuffer16BitAccess)
        return support;
    support.fp16 = have.vulkan12.shaderFloat16;
    // glslang declares Float16 for conversions of bf16, too
    support.bf16 = have.vulkan12.shaderFloat16 && have.bfloat16.shaderBFloat16Type &&
                   have.bfloat16.shaderBFloat16CooperativeMatrix;
    support.extensions = {matrix};
    request.vulkan13.pNext = &request.matrix;
    request.matrix.cooperativeMatrix = request.vulkan12.vulkanMemoryModel = VK_TRUE;
    request.features2.features.shaderInt16 = VK_TRUE;  // halves of packed operands
    request.vulkan12.vulkanMemoryModelDeviceScope = have.vulkan12.vulkanMemoryModelDeviceScope;
    request.vulkan12.shaderFloat16 = have.vulkan12.shaderFloat16;
    if (!support.bf16) return support;
    support.extensions.push_back(bfloat16);
    request.matrix.pNext = &request.bfloat16;
    request.bfloat16.shaderBFloat16Type = request.bfloat16.shaderBFloat16CooperativeMatrix = VK_TRUE;
    return support;
}

// Chooses the first shape that the device has from a list, best for the kernels first.
void find_fragment_shapes(const Vulkan& vk, VkPhysicalDevice physical,
                          const CooperativeMatrixSupport& support, Limits& limits) {
    const auto list = GetCooperativeMatrixProperties(
        vk.vkGetInstanceProcAddr(vk.instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
    if (support.extensions.empty() || !list || !limits.has_one_subgroup_size) return;
    // The kernels keep up to 128 accumulators per invocation: with few registers they spill hundreds, and
    // Mesa 25's compiler for Intel crashes on some of them.
    if (limits.few_registers) return;
    const auto have =
        listed<CooperativeMatrixProperties>([&](auto... to) { VK_CHECK(list(physical, to...)); });
    auto find = [&](int type) {
        for (FragmentShape shape :
             {FragmentShape{16, 16, 16}, {16, 8, 16}, {8, 8, 16}, {8, 16, 16}, {8, 8, 8}})
            for (const CooperativeMatrixProperties& p : have)
                if (p.M == shape.M && p.N == shape.N && p.K == shape.K && p.A == type && p.B == type &&
                    p.C == COMPONENT_FLOAT32 && p.result == COMPONENT_FLOAT32 && p.scope == SCOPE_SUBGROUP)
                    return shape;
        return FragmentShape();
    };
    if (support.bf16) limits.bf16_fragment = find(COMPONENT_BFLOAT16);
    if (support.fp16) limits.fp16_fragment = find(COMPONENT_FLOAT16);
}

// Names what the kernels need and the device lacks; empty: nothing.
static std::string missing_on(const Vulkan& vk, VkPhysicalDevice physical, uint32_t api) {
    if (api < VK_API_VERSION_1_3) return "Vulkan 1.3";
    DeviceFeatures have;
    vk.vkGetPhysicalDeviceFeatures2(physical, &have.features2);
    Limits limits;
    choose_subgroups(vk, physical, DeviceType::discrete, limits);
    const VkSubgroupFeatureFlags arithmetic =
        VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT;
    return missing_features(have, has_subgroup_operations(vk, physical, arithmetic), limits);
}

// As the system's files name it; empty where the driver does not tell.
static std::string pci_address(const Vulkan& vk, VkPhysicalDevice physical) {
    if (!has_extension(vk, physical, VK_EXT_PCI_BUS_INFO_EXTENSION_NAME)) return "";
    VkPhysicalDevicePCIBusInfoPropertiesEXT pci = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT};
    VkPhysicalDeviceProperties2 properties = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &pci};
    vk.vkGetPhysicalDeviceProperties2(physical, &properties);
    return format_string("%04x:%02x:%02x.%x", pci.pciDomain, pci.pciBus, pci.pciDevice, pci.pciFunction);
}

// Bytes of the largest heap of the device's own.
static uint64_t memory_of(const Vulkan& vk, VkPhysicalDevice physical) {
    VkPhysicalDeviceMemoryProperties2 memory = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    vk.vkGetPhysicalDeviceMemoryProperties2(physical, &memory);
    uint64_t most = 0;
    for (uint32_t i = 0; i < memory.memoryProperties.memoryHeapCount; i++) {
        const VkMemoryHeap& heap = memory.memoryProperties.memoryHeaps[i];
        if (heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) most = std::max(most, heap.size);
    }
    return most;
}

static DeviceInfo describe(const Vulkan& vk, VkPhysicalDevice physical) {
    VkPhysicalDeviceDriverProperties driver = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
    VkPhysicalDeviceProperties2 properties = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &driver};
    vk.vkGetPhysicalDeviceProperties2(physical, &properties);
    const uint32_t api = properties.properties.apiVersion;
    DeviceInfo info;
    info.name = properties.properties.deviceName;
    info.type = device_type(properties.properties.deviceType);
    if (environment_switch("LAUNCHPAD_WITHOUT_DEVICE")) info.type = DeviceType::discrete;  // not "software"
    info.driver = format_string("%s %s", driver.driverName, driver.driverInfo);
    info.api_version = format_string("%u.%u.%u", VK_API_VERSION_MAJOR(api), VK_API_VERSION_MINOR(api),
                                     VK_API_VERSION_PATCH(api));
    info.memory_bytes = memory_of(vk, physical);
    info.pci = pci_address(vk, physical);
    info.missing = missing_on(vk, physical, api);
    return info;
}

std::vector<PhysicalDevice> physical_devices(const Vulkan& vk) {
    const auto handles = listed<VkPhysicalDevice>(
        [&](auto... to) { VK_CHECK(vk.vkEnumeratePhysicalDevices(vk.instance, to...)); });
    std::vector<PhysicalDevice> devices;
    for (VkPhysicalDevice handle : handles) devices.push_back({describe(vk, handle), handle});
    std::stable_sort(devices.begin(), devices.end(),
                     [](const auto& a, const auto& b) { return a.info.type < b.info.type; });
    for (size_t i = 0; i < devices.size(); i++) devices[i].info.index = int(i);
    return devices;
}

std::set<std::string> checked_versions(const std::map<std::string, bool>& checks, bool failed) {
    std::set<std::string> versions;
    for (const auto& [name, right] : checks)
        if (name != MATRIX_TRIAL && !(failed && right)) versions.insert(name.substr(0, name.find('/')));
    return versions;
}

// What the self-test found.
static std::string check_line(const std::map<std::string, bool>& checks) {
    std::string wrong;
    for (const auto& [name, right] : checks)
        if (!right) wrong += (wrong.empty() ? ": " : ", ") + name;
    if (checks.empty())
        return "not checked yet: the first start does, and " + command_of("train_gpt2") + " --self-test";
    const size_t failed = checked_versions(checks, true).size();
    return format_string("checked: %zu kernel versions right, %zu wrong%s",
                         checked_versions(checks).size() - failed, failed, wrong.c_str());
}

std::vector<DeviceInfo> list_devices() {
    Vulkan vk = open_vulkan(false);
    std::vector<DeviceInfo> infos;
    for (const auto& [info, handle] : physical_devices(vk)) {
        infos.push_back(info);
        if (!info.missing.empty()) continue;
        const OptionalFeatures features = find_optional_features(vk, handle, info.type);
        infos.back().features = feature_lines(features);
        infos.back().features.push_back(check_line(stored_checks(vk, handle)));
        infos.back().has_untried_matrices = features.matrix.untried;
    }
    close_vulkan(vk);
    return infos;
}

static bool contains_ignoring_case(const std::string& text, const std::string& part) {
    auto same = [](char a, char b) { return tolower(a) == tolower(b); };
    return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

static DeviceInfo usable(const DeviceInfo& device) {
    if (!device.missing.empty())
        fail("device %d (%s) cannot run the kernels: it lacks %s", device.index, device.name.c_str(),
             device.missing.c_str());
    return device;
}

static std::string names_of(const std::vector<DeviceInfo>& devices) {
    std::string text = "cpu";
    for (const DeviceInfo& device : devices)
        text += format_string(", %d (%s)", device.index, device.name.c_str());
    return text;
}

static DeviceChoice choose_hardware(const std::vector<DeviceInfo>& devices) {
    for (const DeviceInfo& device : devices)
        if (device.is_gpu() && device.missing.empty())
            return {device, format_string("it is the first usable %s", device_type_name(device.type))};
    std::string reason = "no GPU was found";
    for (const DeviceInfo& device : devices) {
        if (!device.is_gpu())
            reason = format_string("the only Vulkan device is a software one (--device %d to use it)",
                                   device.index);
        else
            reason = format_string("%s lacks %s", device.name.c_str(), device.missing.c_str());
    }
    return {std::nullopt, reason};
}

DeviceChoice choose_device(const std::string& request) {
    std::vector<DeviceInfo> devices;
    if (request != "cpu") try {
            if (!embedded_shaders[0].name) fail("this build has no GPU kernels (WITH_SHADERS=OFF)");
            devices = list_devices();
        } catch (const Error& error) {
            if (request == "auto") return {std::nullopt, error.what()};
            fail("no device '%s': %s", request.c_str(), error.what());
        }
    return choose_among(devices, request);
}

DeviceChoice choose_among(const std::vector<DeviceInfo>& devices, const std::string& request) {
    if (request == "cpu") return {std::nullopt, "it was asked for"};
    if (request == "auto" || request == "gpu") {
        DeviceChoice choice = choose_hardware(devices);
        if (request == "gpu" && !choice.device)
            fail("no device 'gpu': %s; there is: %s", choice.reason.c_str(), names_of(devices).c_str());
        return choice;
    }
    const bool is_number = !request.empty() && std::all_of(request.begin(), request.end(), isdigit);
    if (is_number && request.size() < 6 && std::stoul(request) < devices.size())
        return {usable(devices[std::stoul(request)]), "it was asked for"};
    const DeviceInfo* named = nullptr;  // the first usable one, else the first
    for (const DeviceInfo& device : devices)
        if (!is_number && !request.empty() && contains_ignoring_case(device.name, request))
            if (!named || (!named->missing.empty() && device.missing.empty())) named = &device;
    if (named) return {usable(*named), "it was asked for"};
    fail("no device '%s'; there is: %s", request.c_str(), names_of(devices).c_str());
}
