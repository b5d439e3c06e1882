// The Vulkan functions that the launchpad calls, loaded at run time: without a Vulkan loader the programs
// still start, and train on the CPU. Every VkResult goes through VK_CHECK, in every build.
#pragma once
#include <vulkan/vulkan.h>

#include <vector>

#include "llmc/base/error.h"

// VK_KHR_cooperative_matrix and VK_KHR_shader_bfloat16, declared under the project's own names: the headers
// of Debian 12 are older than both.
struct CooperativeMatrixFeatures {
    VkStructureType sType = VkStructureType(1000506000);
    void* pNext = nullptr;
    VkBool32 cooperativeMatrix = VK_FALSE, cooperativeMatrixRobustBufferAccess = VK_FALSE;
};
struct BFloat16Features {
    VkStructureType sType = VkStructureType(1000141000);
    void* pNext = nullptr;
    VkBool32 shaderBFloat16Type = VK_FALSE, shaderBFloat16DotProduct = VK_FALSE;
    VkBool32 shaderBFloat16CooperativeMatrix = VK_FALSE;
};
const int COMPONENT_FLOAT16 = 0, COMPONENT_FLOAT32 = 1, COMPONENT_BFLOAT16 = 1000141000, SCOPE_SUBGROUP = 3;
struct CooperativeMatrixProperties {
    VkStructureType sType = VkStructureType(1000506001);
    void* pNext = nullptr;
    uint32_t M = 0, N = 0, K = 0;
    int A = 0, B = 0, C = 0, result = 0;  // component types
    VkBool32 saturating = VK_FALSE;
    int scope = 0;
};
typedef VkResult(VKAPI_PTR* GetCooperativeMatrixProperties)(VkPhysicalDevice, uint32_t* count,
                                                            CooperativeMatrixProperties* properties);

// Functions of the instance level, in the order they are used.
// clang-format off
#define VULKAN_INSTANCE_FUNCTIONS(X) \
    X(vkDestroyInstance) \
    X(vkEnumeratePhysicalDevices) \
    X(vkGetPhysicalDeviceProperties2) \
    X(vkGetPhysicalDeviceFeatures2) \
    X(vkGetPhysicalDeviceExternalBufferProperties) \
    X(vkGetPhysicalDeviceMemoryProperties2) \
    X(vkGetPhysicalDeviceQueueFamilyProperties) \
    X(vkEnumerateDeviceExtensionProperties) \
    X(vkCreateDevice) \
    X(vkGetDeviceProcAddr)

// The last three are null on devices without their extensions.
#define VULKAN_DEVICE_FUNCTIONS(X) \
    X(vkDestroyDevice) \
    X(vkGetDeviceQueue) \
    X(vkDeviceWaitIdle) \
    X(vkQueueSubmit2) \
    X(vkCreateSemaphore) \
    X(vkDestroySemaphore) \
    X(vkWaitSemaphores) \
    X(vkGetSemaphoreCounterValue) \
    X(vkCreateCommandPool) \
    X(vkDestroyCommandPool) \
    X(vkAllocateCommandBuffers) \
    X(vkFreeCommandBuffers) \
    X(vkBeginCommandBuffer) \
    X(vkEndCommandBuffer) \
    X(vkCreateBuffer) \
    X(vkDestroyBuffer) \
    X(vkGetBufferMemoryRequirements) \
    X(vkAllocateMemory) \
    X(vkFreeMemory) \
    X(vkBindBufferMemory) \
    X(vkMapMemory) \
    X(vkGetBufferDeviceAddress) \
    X(vkCreatePipelineLayout) \
    X(vkDestroyPipelineLayout) \
    X(vkCreatePipelineCache) \
    X(vkDestroyPipelineCache) \
    X(vkGetPipelineCacheData) \
    X(vkMergePipelineCaches) \
    X(vkCreateShaderModule) \
    X(vkDestroyShaderModule) \
    X(vkCreateComputePipelines) \
    X(vkDestroyPipeline) \
    X(vkCmdBindPipeline) \
    X(vkCmdPushConstants) \
    X(vkCmdDispatch) \
    X(vkCmdDispatchBase) \
    X(vkCmdPipelineBarrier2) \
    X(vkCmdCopyBuffer) \
    X(vkCmdFillBuffer) \
    X(vkCmdUpdateBuffer) \
    X(vkCreateQueryPool) \
    X(vkDestroyQueryPool) \
    X(vkGetQueryPoolResults) \
    X(vkCmdResetQueryPool) \
    X(vkCmdWriteTimestamp2) \
    X(vkGetMemoryHostPointerPropertiesEXT) \
    X(vkGetPipelineExecutablePropertiesKHR) \
    X(vkGetPipelineExecutableStatisticsKHR)
// clang-format on

// One table per instance and device, so that a program can have several launchpads.
struct Vulkan {
    VkInstance instance = VK_NULL_HANDLE;
    VkDebugUtilsMessengerEXT messenger = VK_NULL_HANDLE;
    PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr = nullptr;
#define DECLARE(function) PFN_##function function = nullptr;
    VULKAN_INSTANCE_FUNCTIONS(DECLARE)
    VULKAN_DEVICE_FUNCTIONS(DECLARE)
#undef DECLARE
};

// Loads the Vulkan library and creates an instance, on request with the Khronos validation layer
// (synchronization validation included). Throws Error if there is no loader, no Vulkan 1.3, or no such layer.
Vulkan open_vulkan(bool validation);
void close_vulkan(Vulkan& vk);
void load_device_functions(Vulkan& vk, VkDevice device);

// The messages that the validation layer has printed in this process so far.
int validation_message_count();

// Returns if the result is VK_SUCCESS; otherwise throws Error, or DeviceLost (launchpad.h), with the called
// function and the meaning of the result.
void check_vulkan(VkResult result, const char* call);
bool is_out_of_memory(VkResult result);  // the host's or the device's
#define VK_CHECK(call) check_vulkan((call), #call)

// What a function of Vulkan lists: list(count, elements) calls it for the number of elements, then for these,
// which begin as copies of `first`.
template <class Element, class List>
std::vector<Element> listed(List list, const Element& first = {}) {
    uint32_t count = 0;
    list(&count, static_cast<Element*>(nullptr));
    std::vector<Element> elements(count, first);
    list(&count, elements.data());
    return elements;
}
