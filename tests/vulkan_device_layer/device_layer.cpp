// A Vulkan layer for tests: it makes a device look like another one. VULKAN_DEVICE has any of these words:
//     subgroups:4:8:8  subgroups have 4 to 8 invocations, usually 8, and kernels cannot be told a size
//     halves           conversions to fp16 truncate and overflow to 65504, as AMD's v_cvt_pkrtz
//     flush            with `halves`: they make zeros of subnormals
//     lanes            an invocation's number in its workgroup does not tell its number in the subgroup
//     no16bit          no 16-bit storage
//     import           the first memory type that host memory could be imported as is not host-visible
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#define VK_NO_PROTOTYPES
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#include "tests/vulkan_device_layer/spirv.h"

static const std::string words =
    std::string(" ") + (getenv("VULKAN_DEVICE") ? getenv("VULKAN_DEVICE") : "") + " ";
static bool has_word(const char* word) {
    return words.find(std::string(" ") + word + " ") != std::string::npos;
}

// The next layer's functions, which are the same for all instances and devices. Looked up when these are
// created: an instance may be gone when the function of another one is called.
static PFN_vkGetInstanceProcAddr next_instance_address;
static PFN_vkGetDeviceProcAddr next_device_address;
static std::map<std::string, PFN_vkVoidFunction> next_functions;

template <class Function>
static Function next(const char* name) {
    return reinterpret_cast<Function>(next_functions.at(name));
}

template <class Info>
static Info* link_of(const void* chain, VkStructureType type) {
    auto* info = static_cast<Info*>(const_cast<void*>(chain));
    while (info && !(info->sType == type && info->function == VK_LAYER_LINK_INFO))
        info = static_cast<Info*>(const_cast<void*>(info->pNext));
    return info;
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
    for (const char* name : {"vkCreateDevice", "vkGetPhysicalDeviceProperties2",
                             "vkGetPhysicalDeviceFeatures2", "vkGetPhysicalDeviceMemoryProperties2"})
        next_functions[name] = next_instance_address(*instance, name);
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo* info,
                                                    const VkAllocationCallbacks* allocator,
                                                    VkDevice* device) {
    auto* link = link_of<VkLayerDeviceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    next_device_address = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    const VkResult result = next<PFN_vkCreateDevice>("vkCreateDevice")(physical, info, allocator, device);
    if (result != VK_SUCCESS) return result;
    for (const char* name : {"vkGetBufferMemoryRequirements", "vkGetMemoryHostPointerPropertiesEXT",
                             "vkAllocateMemory", "vkCreateShaderModule"})
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
    const size_t at = words.find(" subgroups:");
    unsigned least = 0, most = 0, usual = 0;
    if (at == std::string::npos || sscanf(&words[at], " subgroups:%u:%u:%u", &least, &most, &usual) != 3)
        return;
    if (auto* v = find_in_chain<VkPhysicalDeviceVulkan11Properties>(
            properties, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES))
        v->subgroupSize = usual;
    if (auto* v = find_in_chain<VkPhysicalDeviceVulkan13Properties>(
            properties, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES)) {
        v->minSubgroupSize = least;
        v->maxSubgroupSize = most;
        v->requiredSubgroupSizeStages &= ~VkShaderStageFlags(VK_SHADER_STAGE_COMPUTE_BIT);
    }
}

static VKAPI_ATTR void VKAPI_CALL get_features(VkPhysicalDevice physical,
                                               VkPhysicalDeviceFeatures2* features) {
    next<PFN_vkGetPhysicalDeviceFeatures2>("vkGetPhysicalDeviceFeatures2")(physical, features);
    if (auto* v = find_in_chain<VkPhysicalDeviceVulkan11Features>(
            features, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES))
        v->storageBuffer16BitAccess = VK_FALSE;
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
    if (imports && info->memoryTypeIndex == 0) return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    VkMemoryAllocateInfo of_driver = *info;
    of_driver.memoryTypeIndex = 0;
    return next<PFN_vkAllocateMemory>("vkAllocateMemory")(device, &of_driver, allocator, memory);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_shader_module(VkDevice device,
                                                           const VkShaderModuleCreateInfo* info,
                                                           const VkAllocationCallbacks* allocator,
                                                           VkShaderModule* module) {
    Spirv spirv({info->pCode, info->codeSize / 4});
    if (has_word("halves")) spirv.truncate_halves(has_word("flush"));
    if (has_word("lanes")) spirv.swap_lanes();
    const std::vector<uint32_t> code = spirv.words();
    VkShaderModuleCreateInfo edited = *info;
    edited.codeSize = code.size() * 4;
    edited.pCode = code.data();
    return next<PFN_vkCreateShaderModule>("vkCreateShaderModule")(device, &edited, allocator, module);
}

static PFN_vkVoidFunction get_instance_address(VkInstance instance, const char* name);
static PFN_vkVoidFunction get_device_address(VkDevice device, const char* name);

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
        {"vkGetPhysicalDeviceProperties2", PFN_vkVoidFunction(get_properties), true},
        {"vkGetPhysicalDeviceFeatures2", PFN_vkVoidFunction(get_features), has_word("no16bit")},
        {"vkGetPhysicalDeviceMemoryProperties2", PFN_vkVoidFunction(get_memory_properties),
         has_word("import")},
        {"vkGetBufferMemoryRequirements", PFN_vkVoidFunction(get_buffer_requirements), has_word("import")},
        {"vkGetMemoryHostPointerPropertiesEXT", PFN_vkVoidFunction(get_host_pointer_properties),
         has_word("import")},
        {"vkAllocateMemory", PFN_vkVoidFunction(allocate_memory), has_word("import")},
        {"vkCreateShaderModule", PFN_vkVoidFunction(create_shader_module),
         has_word("halves") || has_word("lanes")},
    };
    for (const auto& f : own)
        if (f.is_needed && name == f.name) return f.function;
    return nullptr;
}

static PFN_vkVoidFunction get_device_address(VkDevice device, const char* name) {
    if (const PFN_vkVoidFunction own = find_own(name)) return own;
    return next_device_address(device, name);
}
static PFN_vkVoidFunction get_instance_address(VkInstance instance, const char* name) {
    if (const PFN_vkVoidFunction own = find_own(name)) return own;
    return instance ? next_instance_address(instance, name) : nullptr;
}

extern "C" VK_LAYER_EXPORT VKAPI_ATTR VkResult VKAPI_CALL
vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface* version) {
    version->loaderLayerInterfaceVersion = 2;
    version->pfnGetInstanceProcAddr = get_instance_address;
    version->pfnGetDeviceProcAddr = get_device_address;
    version->pfnGetPhysicalDeviceProcAddr = nullptr;
    return VK_SUCCESS;
}
