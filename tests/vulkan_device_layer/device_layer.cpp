// A Vulkan layer for tests: it makes a device look like another one. VULKAN_DEVICE has any of these words:
//     subgroups:4:8:8  subgroups have 4 to 8 invocations, usually 8, and kernels cannot be told a size
//     halves           conversions to fp16 truncate and overflow to 65504, as AMD's v_cvt_pkrtz
//     flush            with `halves`: they make zeros of subnormals
//     lanes            an invocation's number in its workgroup does not tell its number in the subgroup
//     widths           single elements lie in other memory than vectors, in each submission: what kernels
//                      access as both in one dispatch differs. LAUNCHPAD_SUBMISSION_MS=-1: each is alone
//     no16bit          no 16-bit storage: code that declares it is refused
//     noint64          no 64-bit integers: code that declares them is refused
//     notimestamps     queues without timestamps
//     shared:16        16 KiB of shared memory in a workgroup: pipelines that take more are refused
//     pushes:128       push constants of more bytes are refused
//     allocations:2    buffers and allocations of more than 2 MiB are refused
//     ignores:4:8      subgroups have 4 to 8 invocations, and kernels may ask for a size, which is ignored
//     untrusted        the driver is one that is known to fail with cooperative matrices, of no shape
//     matrices_crash   a device with them crashes; matrices_hang: opening it never ends; matrices_end:
//                      somebody kills the program that opens it
//     wrong:HASH       the kernel with this code (Spirv::hash()) has a wrong bit; of several kernels: several
//                      words. fails:HASH does not compile, null:HASH compiles to nothing, crashes:HASH
//                      crashes the compiler, hangs:HASH never ends; of the process that checks kernels
//                      only, ends:HASH: somebody kills it, and short:HASH: the driver lacks memory
//     nobase           dispatches ignore their base
//     onebase          so do those whose kernel's first pipeline lacks VK_PIPELINE_CREATE_DISPATCH_BASE, as
//                      with NVIDIA's driver 580
//     twins            the device is a discrete GPU, and there are two of them
//     pci:3            the device is a discrete GPU, of PCI bus 3
//     import           the first memory type that host memory could be imported as is not host-visible
//     no_import        host memory cannot be imported, though the device has the extension
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "llmc/launchpad/vulkan.h"
#include "tests/spirv_flow.h"
#include "tests/vulkan_layer.h"

static const std::string words =
    std::string(" ") + (getenv("VULKAN_DEVICE") ? getenv("VULKAN_DEVICE") : "") + " ";
static bool has_word(const std::string& word) { return words.find(" " + word + " ") != std::string::npos; }
static bool has_prefix(const char* word) { return words.find(std::string(" ") + word) != std::string::npos; }
// The number behind a prefix; 0: the word is not there.
static uint32_t number_after(const std::string& prefix) {
    const size_t at = words.find(" " + prefix);
    return at == std::string::npos ? 0 : uint32_t(atoi(&words[at + 1 + prefix.size()]));
}
static const uint32_t most_shared = number_after("shared:") << 10, most_pushed = number_after("pushes:"),
                      most_allocated = number_after("allocations:") << 20, pci_bus = number_after("pci:");

// The next layer's functions, which are the same for all instances and devices. Looked up when these are
// created: an instance may be gone when the function of another one is called.
static PFN_vkGetInstanceProcAddr next_instance_address;
static PFN_vkGetDeviceProcAddr next_device_address;
static std::map<std::string, PFN_vkVoidFunction> next_functions;

template <class Function>
static Function next(const char* name) {
    return reinterpret_cast<Function>(next_functions.at(name));
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo* info,
                                                      const VkAllocationCallbacks* allocator,
                                                      VkInstance* instance) {
    auto* link =
        link_of<VkLayerInstanceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    next_instance_address = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    const auto create = PFN_vkCreateInstance(next_instance_address(nullptr, "vkCreateInstance"));
    const VkResult result = create(info, allocator, instance);
    if (result != VK_SUCCESS) return result;
    for (const char* name :
         {"vkCreateDevice", "vkEnumeratePhysicalDevices", "vkGetPhysicalDeviceProperties2",
          "vkGetPhysicalDeviceFeatures2", "vkGetPhysicalDeviceMemoryProperties2",
          "vkEnumerateDeviceExtensionProperties", "vkGetPhysicalDeviceQueueFamilyProperties"})
        next_functions[name] = next_instance_address(*instance, name);
    return result;
}

static bool is_check() {
    std::ifstream command("/proc/self/cmdline");
    return std::string(std::istreambuf_iterator<char>(command), {}).find("--check-kernels") !=
           std::string::npos;
}

// Each of the driver's twice.
static VKAPI_ATTR VkResult VKAPI_CALL list_twice(VkInstance instance, uint32_t* count,
                                                 VkPhysicalDevice* devices) {
    const auto list = next<PFN_vkEnumeratePhysicalDevices>("vkEnumeratePhysicalDevices");
    uint32_t of_driver = devices ? *count / 2 : 0;
    const VkResult result = list(instance, &of_driver, devices);
    if (devices && result == VK_SUCCESS) std::copy_n(devices, of_driver, devices + of_driver);
    *count = 2 * of_driver;
    return result;
}

static const char* const matrices = "VK_KHR_cooperative_matrix";

// The driver's, and one that it has not.
static VKAPI_ATTR VkResult VKAPI_CALL list_extensions(VkPhysicalDevice physical, const char* layer,
                                                      uint32_t* count, VkExtensionProperties* have) {
    const uint32_t room = *count;
    const char* name = "vkEnumerateDeviceExtensionProperties";
    const VkResult result =
        next<PFN_vkEnumerateDeviceExtensionProperties>(name)(physical, layer, count, have);
    if (layer || result != VK_SUCCESS || (have && *count == room)) return result;
    const char* added = pci_bus ? VK_EXT_PCI_BUS_INFO_EXTENSION_NAME : matrices;
    if (have) strcpy(have[*count].extensionName, added);
    ++*count;
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo* info,
                                                    const VkAllocationCallbacks* allocator,
                                                    VkDevice* device) {
    auto* link = link_of<VkLayerDeviceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    next_device_address = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    std::vector<const char*> of_driver;
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++)
        if (!has_word("untrusted") || info->ppEnabledExtensionNames[i] != std::string(matrices))
            of_driver.push_back(info->ppEnabledExtensionNames[i]);
    if (of_driver.size() < info->enabledExtensionCount && has_word("matrices_crash")) abort();
    if (of_driver.size() < info->enabledExtensionCount && has_word("matrices_end")) raise(SIGKILL);
    while (of_driver.size() < info->enabledExtensionCount && has_word("matrices_hang")) pause();
    VkDeviceCreateInfo edited = *info;
    edited.enabledExtensionCount = uint32_t(of_driver.size());
    edited.ppEnabledExtensionNames = of_driver.data();
    const VkResult result = next<PFN_vkCreateDevice>("vkCreateDevice")(physical, &edited, allocator, device);
    if (result != VK_SUCCESS) return result;
    for (const char* name :
         {"vkGetBufferMemoryRequirements", "vkGetMemoryHostPointerPropertiesEXT", "vkAllocateMemory",
          "vkCreateShaderModule", "vkCreateComputePipelines", "vkCmdBindPipeline", "vkCmdDispatch",
          "vkCmdDispatchBase", "vkQueueSubmit2", "vkCreatePipelineLayout", "vkCreateBuffer",
          "vkDestroyBuffer", "vkGetBufferDeviceAddress", "vkQueueWaitIdle"})
        next_functions[name] = next_device_address(*device, name);
    return result;
}

template <class Struct>
static Struct* find_in_chain(const void* chain, VkStructureType type) {
    auto* s = static_cast<VkBaseOutStructure*>(const_cast<void*>(chain));
    while (s && s->sType != type) s = s->pNext;
    return reinterpret_cast<Struct*>(s);
}

static VKAPI_ATTR void VKAPI_CALL get_properties(VkPhysicalDevice physical,
                                                 VkPhysicalDeviceProperties2* properties) {
    next<PFN_vkGetPhysicalDeviceProperties2>("vkGetPhysicalDeviceProperties2")(physical, properties);
    if (auto* v = find_in_chain<VkPhysicalDeviceDriverProperties>(
            properties, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES);
        v && has_word("untrusted"))
        v->driverID = VK_DRIVER_ID_INTEL_PROPRIETARY_WINDOWS;
    if (auto* v = find_in_chain<VkPhysicalDevicePCIBusInfoPropertiesEXT>(
            properties, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT))
        *v = {v->sType, v->pNext, 0, pci_bus, 0, 0};
    if (has_word("twins") || pci_bus)
        properties->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
    VkPhysicalDeviceLimits& limits = properties->properties.limits;
    if (most_shared) limits.maxComputeSharedMemorySize = most_shared;
    if (most_pushed) limits.maxPushConstantsSize = most_pushed;
    if (auto* v = find_in_chain<VkPhysicalDeviceVulkan13Properties>(
            properties, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES);
        v && most_allocated)
        v->maxBufferSize = most_allocated;
    const size_t at = std::min(words.find(" subgroups:"), words.find(" ignores:"));
    if (at == std::string::npos) return;
    const bool ignores = words[at + 1] == 'i';
    unsigned least = 0, most = 0, usual = 0;
    sscanf(&words[words.find(':', at)], ":%u:%u:%u", &least, &most, &usual);
    if (auto* v = find_in_chain<VkPhysicalDeviceVulkan11Properties>(
            properties, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES);
        v && usual)
        v->subgroupSize = usual;
    if (auto* v = find_in_chain<VkPhysicalDeviceVulkan13Properties>(
            properties, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES)) {
        v->minSubgroupSize = least;
        v->maxSubgroupSize = most;
        v->requiredSubgroupSizeStages &= ~VkShaderStageFlags(VK_SHADER_STAGE_COMPUTE_BIT);
        if (ignores) v->requiredSubgroupSizeStages |= VK_SHADER_STAGE_COMPUTE_BIT;
        if (ignores) v->maxComputeWorkgroupSubgroups = 256 / least;
    }
}

static VKAPI_ATTR void VKAPI_CALL get_queue_families(VkPhysicalDevice physical, uint32_t* count,
                                                     VkQueueFamilyProperties* families) {
    const char* name = "vkGetPhysicalDeviceQueueFamilyProperties";
    next<PFN_vkGetPhysicalDeviceQueueFamilyProperties>(name)(physical, count, families);
    for (uint32_t i = 0; families && i < *count; i++) families[i].timestampValidBits = 0;
}

static VKAPI_ATTR void VKAPI_CALL get_features(VkPhysicalDevice physical,
                                               VkPhysicalDeviceFeatures2* features) {
    next<PFN_vkGetPhysicalDeviceFeatures2>("vkGetPhysicalDeviceFeatures2")(physical, features);
    if (auto* v = find_in_chain<VkPhysicalDeviceVulkan11Features>(
            features, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES);
        v && has_word("no16bit"))
        v->storageBuffer16BitAccess = VK_FALSE;
    if (has_word("noint64")) features->features.shaderInt64 = VK_FALSE;
    if (auto* v = find_in_chain<CooperativeMatrixFeatures>(features, CooperativeMatrixFeatures().sType);
        v && has_word("untrusted"))
        v->cooperativeMatrix = VK_TRUE;
}

// Before the driver's only memory type, one that the host does not see. Both are the driver's.
static VKAPI_ATTR void VKAPI_CALL get_memory_properties(VkPhysicalDevice physical,
                                                        VkPhysicalDeviceMemoryProperties2* properties) {
    next<PFN_vkGetPhysicalDeviceMemoryProperties2>("vkGetPhysicalDeviceMemoryProperties2")(physical,
                                                                                           properties);
    VkPhysicalDeviceMemoryProperties& p = properties->memoryProperties;
    p.memoryTypeCount = 2;
    p.memoryTypes[1] = p.memoryTypes[0];
    p.memoryTypes[0].propertyFlags = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
}
static VKAPI_ATTR void VKAPI_CALL get_buffer_requirements(VkDevice device, VkBuffer buffer,
                                                          VkMemoryRequirements* needs) {
    next<PFN_vkGetBufferMemoryRequirements>("vkGetBufferMemoryRequirements")(device, buffer, needs);
    needs->memoryTypeBits = 3;
}
static VKAPI_ATTR VkResult VKAPI_CALL get_host_pointer_properties(VkDevice device,
                                                                  VkExternalMemoryHandleTypeFlagBits type,
                                                                  const void* pointer,
                                                                  VkMemoryHostPointerPropertiesEXT* result) {
    const char* name = "vkGetMemoryHostPointerPropertiesEXT";
    const VkResult status =
        next<PFN_vkGetMemoryHostPointerPropertiesEXT>(name)(device, type, pointer, result);
    result->memoryTypeBits = 3;
    return status;
}
static VKAPI_ATTR VkResult VKAPI_CALL allocate_memory(VkDevice device, const VkMemoryAllocateInfo* info,
                                                      const VkAllocationCallbacks* allocator,
                                                      VkDeviceMemory* memory) {
    const bool imports = find_in_chain<VkImportMemoryHostPointerInfoEXT>(
        info->pNext, VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT);
    if (has_word("import") && imports && info->memoryTypeIndex == 0) return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    if (most_allocated && info->allocationSize > most_allocated) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    VkMemoryAllocateInfo of_driver = *info;
    of_driver.memoryTypeIndex = 0;
    return next<PFN_vkAllocateMemory>("vkAllocateMemory")(device, &of_driver, allocator, memory);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pipeline_layout(VkDevice device,
                                                             const VkPipelineLayoutCreateInfo* info,
                                                             const VkAllocationCallbacks* allocator,
                                                             VkPipelineLayout* layout) {
    for (uint32_t i = 0; i < info->pushConstantRangeCount; i++)
        if (info->pPushConstantRanges[i].offset + info->pPushConstantRanges[i].size > most_pushed)
            return VK_ERROR_UNKNOWN;
    return next<PFN_vkCreatePipelineLayout>("vkCreatePipelineLayout")(device, info, allocator, layout);
}

// --- widths: a software device's addresses are the host's ---

static const uint64_t LOWER = uint64_t(1) << 44, PAGE = 4096;

struct Twofold {
    uint64_t bytes = 0;
    char* memory = nullptr;         // that of vectors; LOWER bytes below, that of elements
    std::vector<char> before = {};  // the submission
};
static std::map<VkBuffer, Twofold> twofold;

static VKAPI_ATTR VkResult VKAPI_CALL create_buffer(VkDevice device, const VkBufferCreateInfo* info,
                                                    const VkAllocationCallbacks* allocator,
                                                    VkBuffer* buffer) {
    const VkResult result = next<PFN_vkCreateBuffer>("vkCreateBuffer")(device, info, allocator, buffer);
    if (result == VK_SUCCESS) twofold[*buffer] = {info->size};
    return result;
}
static VKAPI_ATTR void VKAPI_CALL destroy_buffer(VkDevice device, VkBuffer buffer,
                                                 const VkAllocationCallbacks* allocator) {
    twofold.erase(buffer);
    next<PFN_vkDestroyBuffer>("vkDestroyBuffer")(device, buffer, allocator);
}
// The lower pages stay mapped, for buffers that take the place of others.
static VKAPI_ATTR VkDeviceAddress VKAPI_CALL get_address(VkDevice device,
                                                         const VkBufferDeviceAddressInfo* info) {
    const auto get = next<PFN_vkGetBufferDeviceAddress>("vkGetBufferDeviceAddress");
    const VkDeviceAddress address = get(device, info);
    Twofold& buffer = twofold[info->buffer];
    buffer.memory = reinterpret_cast<char*>(address);
    for (uint64_t page = address / PAGE * PAGE; page < address + buffer.bytes; page += PAGE)
        mmap(reinterpret_cast<void*>(page - LOWER), PAGE, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    return address;
}

static void join(Twofold& buffer) {
    char *const vectors = buffer.memory, *const elements = vectors - LOWER;
    const char* const before = buffer.before.data();
    if (memcmp(elements, before, buffer.bytes) == 0) return;
    for (uint64_t k = 0; k < buffer.bytes; k++) {
        if (elements[k] == before[k]) continue;
        if (vectors[k] != before[k])
            fprintf(stderr, "VK_LAYER_LLMC_device: byte %llu is written as an element and in a vector\n",
                    static_cast<unsigned long long>(k));
        vectors[k] = elements[k];
    }
}
static VKAPI_ATTR VkResult VKAPI_CALL submit_twofold(VkQueue queue, uint32_t count,
                                                     const VkSubmitInfo2* infos, VkFence fence) {
    const auto wait = next<PFN_vkQueueWaitIdle>("vkQueueWaitIdle");
    wait(queue);
    for (auto& [handle, buffer] : twofold) {
        if (!buffer.memory) continue;
        memcpy(buffer.memory - LOWER, buffer.memory, buffer.bytes);
        buffer.before.assign(buffer.memory, buffer.memory + buffer.bytes);
    }
    const VkResult result = next<PFN_vkQueueSubmit2>("vkQueueSubmit2")(queue, count, infos, fence);
    wait(queue);
    for (auto& [handle, buffer] : twofold)
        if (buffer.memory) join(buffer);
    return result;
}

static std::map<VkShaderModule, std::string> hashes;               // of the code
static std::map<VkShaderModule, std::vector<uint32_t>> of_module;  // the code, if shared memory is limited
static std::set<VkPipeline> hanging;
static std::mutex tables;  // several threads build pipelines

static std::string hash_of(VkShaderModule module) {
    const std::lock_guard<std::mutex> lock(tables);
    return hashes[module];
}
static bool hangs = false;                          // the next submission
static std::map<std::string, bool> first_has_base;  // the first pipeline of each code with its constants
static std::map<VkPipeline, bool> has_base;         // a pipeline of that code
static std::map<VkCommandBuffer, VkPipeline> last_bound;

static bool declares(const Spirv& spirv, uint32_t capability) {
    const uint32_t OP_CAPABILITY = 17;
    return std::ranges::any_of(spirv.instructions(), [&](const Instruction& i) {
        return Spirv::opcode(i) == OP_CAPABILITY && i[1] == capability;
    });
}

static VKAPI_ATTR VkResult VKAPI_CALL create_shader_module(VkDevice device,
                                                           const VkShaderModuleCreateInfo* info,
                                                           const VkAllocationCallbacks* allocator,
                                                           VkShaderModule* module) {
    const uint32_t INT64 = 11, STORAGE16 = 4433;
    Spirv spirv({info->pCode, info->codeSize / 4});
    if (has_word("noint64") && declares(spirv, INT64)) return VK_ERROR_UNKNOWN;
    if (has_word("no16bit") && declares(spirv, STORAGE16)) return VK_ERROR_UNKNOWN;
    if (has_word("halves")) spirv.truncate_halves(has_word("flush"));
    if (has_word("lanes")) spirv.swap_lanes();
    if (has_word("widths")) spirv.lower_elements(LOWER);
    const std::string hash = Spirv::hash({info->pCode, info->codeSize / 4});
    if (has_word("wrong:" + hash)) spirv.flip_bit();
    const std::vector<uint32_t> code = spirv.words();
    VkShaderModuleCreateInfo edited = *info;
    edited.codeSize = code.size() * 4;
    edited.pCode = code.data();
    const VkResult result =
        next<PFN_vkCreateShaderModule>("vkCreateShaderModule")(device, &edited, allocator, module);
    const std::lock_guard<std::mutex> lock(tables);
    hashes[*module] = hash;
    if (most_shared) of_module[*module] = code;
    return result;
}

static uint64_t shared_bytes_of(const VkPipelineShaderStageCreateInfo& stage) {
    const std::lock_guard<std::mutex> lock(tables);
    const std::vector<uint32_t>& code = of_module[stage.module];
    const auto* constants = static_cast<const uint32_t*>(stage.pSpecializationInfo->pData);
    return shared_bytes(Module({"", code.data(), code.data() + code.size()}),
                        {constants, constants + stage.pSpecializationInfo->mapEntryCount});
}

// Of one pipeline, as the launchpad creates them.
static VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice device, VkPipelineCache cache, uint32_t count,
                                                       const VkComputePipelineCreateInfo* infos,
                                                       const VkAllocationCallbacks* allocator,
                                                       VkPipeline* pipelines) {
    const std::string hash = hash_of(infos[0].stage.module);
    if (has_word("crashes:" + hash)) abort();
    if (has_word("ends:" + hash) && is_check()) raise(SIGKILL);
    pipelines[0] = VK_NULL_HANDLE;
    if (has_word("short:" + hash) && is_check()) return VK_ERROR_OUT_OF_HOST_MEMORY;
    if (has_word("fails:" + hash)) return VK_ERROR_UNKNOWN;
    if (has_word("null:" + hash)) return VK_SUCCESS;
    if (most_shared && shared_bytes_of(infos[0].stage) > most_shared) return VK_ERROR_UNKNOWN;
    VkComputePipelineCreateInfo edited = infos[0];
    if (has_prefix("ignores:")) edited.stage.pNext = nullptr;
    const auto create = next<PFN_vkCreateComputePipelines>("vkCreateComputePipelines");
    const VkResult result = create(device, cache, count, &edited, allocator, pipelines);
    const std::lock_guard<std::mutex> lock(tables);
    if (has_word("hangs:" + hash)) hanging.insert(pipelines[0]);
    const VkSpecializationInfo& constants = *infos[0].stage.pSpecializationInfo;
    const std::string code =
        hash + std::string(static_cast<const char*>(constants.pData), constants.dataSize);
    const bool wants_base = infos[0].flags & VK_PIPELINE_CREATE_DISPATCH_BASE;
    has_base[pipelines[0]] = first_has_base.try_emplace(code, wants_base).first->second;
    return result;
}

static VKAPI_ATTR void VKAPI_CALL bind_pipeline(VkCommandBuffer commands, VkPipelineBindPoint point,
                                                VkPipeline pipeline) {
    {
        const std::lock_guard<std::mutex> lock(tables);
        hangs |= hanging.contains(pipeline);
        last_bound[commands] = pipeline;
    }
    next<PFN_vkCmdBindPipeline>("vkCmdBindPipeline")(commands, point, pipeline);
}

static VKAPI_ATTR void VKAPI_CALL dispatch_base(VkCommandBuffer commands, uint32_t from_x, uint32_t from_y,
                                                uint32_t from_z, uint32_t x, uint32_t y, uint32_t z) {
    const std::lock_guard<std::mutex> lock(tables);
    if (has_word("nobase") || !has_base[last_bound[commands]])
        return next<PFN_vkCmdDispatch>("vkCmdDispatch")(commands, x, y, z);
    next<PFN_vkCmdDispatchBase>("vkCmdDispatchBase")(commands, from_x, from_y, from_z, x, y, z);
}

static VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue queue, uint32_t count, const VkSubmitInfo2* infos,
                                             VkFence fence) {
    while (hangs) std::this_thread::sleep_for(std::chrono::seconds(1));
    return next<PFN_vkQueueSubmit2>("vkQueueSubmit2")(queue, count, infos, fence);
}

static VKAPI_ATTR VkResult VKAPI_CALL refuse_host_pointer(VkDevice, VkExternalMemoryHandleTypeFlagBits,
                                                          const void*, VkMemoryHostPointerPropertiesEXT*) {
    return VK_ERROR_INVALID_EXTERNAL_HANDLE;
}

// The layer's version of a function; null where the next one's serves.
static PFN_vkVoidFunction find_own(const std::string& name) {
    const struct {
        const char* name;
        PFN_vkVoidFunction function;
        bool is_needed;
    } own[] = {
        {"vkCreateInstance", PFN_vkVoidFunction(create_instance), true},
        {"vkCreateDevice", PFN_vkVoidFunction(create_device), true},
        {"vkGetInstanceProcAddr", PFN_vkVoidFunction(get_instance_address), true},
        {"vkGetDeviceProcAddr", PFN_vkVoidFunction(get_device_address), true},
        {"vkEnumeratePhysicalDevices", PFN_vkVoidFunction(list_twice), has_word("twins")},
        {"vkGetPhysicalDeviceProperties2", PFN_vkVoidFunction(get_properties), true},
        {"vkGetPhysicalDeviceQueueFamilyProperties", PFN_vkVoidFunction(get_queue_families),
         has_word("notimestamps")},
        {"vkGetPhysicalDeviceFeatures2", PFN_vkVoidFunction(get_features),
         has_word("no16bit") || has_word("noint64") || has_word("untrusted")},
        {"vkGetPhysicalDeviceMemoryProperties2", PFN_vkVoidFunction(get_memory_properties),
         has_word("import")},
        {"vkGetBufferMemoryRequirements", PFN_vkVoidFunction(get_buffer_requirements), has_word("import")},
        {"vkGetMemoryHostPointerPropertiesEXT", PFN_vkVoidFunction(get_host_pointer_properties),
         has_word("import")},
        {"vkAllocateMemory", PFN_vkVoidFunction(allocate_memory), has_word("import") || most_allocated},
        {"vkCreatePipelineLayout", PFN_vkVoidFunction(create_pipeline_layout), most_pushed != 0},
        {"vkGetMemoryHostPointerPropertiesEXT", PFN_vkVoidFunction(refuse_host_pointer),
         has_word("no_import")},
        {"vkCreateBuffer", PFN_vkVoidFunction(create_buffer), has_word("widths")},
        {"vkDestroyBuffer", PFN_vkVoidFunction(destroy_buffer), has_word("widths")},
        {"vkGetBufferDeviceAddress", PFN_vkVoidFunction(get_address), has_word("widths")},
        {"vkQueueSubmit2", PFN_vkVoidFunction(submit_twofold), has_word("widths")},
        {"vkCreateShaderModule", PFN_vkVoidFunction(create_shader_module), true},
        {"vkCreateComputePipelines", PFN_vkVoidFunction(create_pipelines), true},
        {"vkCmdBindPipeline", PFN_vkVoidFunction(bind_pipeline), true},
        {"vkCmdDispatchBase", PFN_vkVoidFunction(dispatch_base), has_word("nobase") || has_word("onebase")},
        {"vkQueueSubmit2", PFN_vkVoidFunction(submit), has_prefix("hangs:")},
        {"vkEnumerateDeviceExtensionProperties", PFN_vkVoidFunction(list_extensions),
         has_word("untrusted") || pci_bus},
    };
    for (const auto& f : own)
        if (f.is_needed && name == f.name) return f.function;
    return nullptr;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_address(VkDevice device, const char* name) {
    if (const PFN_vkVoidFunction own = find_own(name)) return own;
    return next_device_address(device, name);
}
static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance_address(VkInstance instance, const char* name) {
    if (const PFN_vkVoidFunction own = find_own(name)) return own;
    return instance ? next_instance_address(instance, name) : nullptr;
}
