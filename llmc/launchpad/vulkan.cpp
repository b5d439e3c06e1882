// Loads Vulkan, creates instances, collects validation messages, checks results.
#include "llmc/launchpad/vulkan.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "llmc/base/os.h"
#include "llmc/launchpad/launchpad.h"

static std::atomic<int> validation_messages{0};

int validation_message_count() { return validation_messages; }

static VKAPI_ATTR VkBool32 VKAPI_CALL print_message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                                    VkDebugUtilsMessageTypeFlagsEXT,
                                                    const VkDebugUtilsMessengerCallbackDataEXT* data, void*) {
    validation_messages++;
    fprintf(stderr, "validation: %s\n", data->pMessage);
    return VK_FALSE;
}

static const char* result_name(VkResult result) {
    static const std::pair<VkResult, const char*> names[] = {
        {VK_NOT_READY, "not ready"},
        {VK_TIMEOUT, "time-out"},
        {VK_ERROR_OUT_OF_HOST_MEMORY, "out of host memory"},
        {VK_ERROR_OUT_OF_DEVICE_MEMORY, "out of device memory"},
        {VK_ERROR_INITIALIZATION_FAILED, "initialization failed"},
        {VK_ERROR_DEVICE_LOST, "device lost"},
        {VK_ERROR_MEMORY_MAP_FAILED, "memory could not be mapped"},
        {VK_ERROR_LAYER_NOT_PRESENT, "layer not present"},
        {VK_ERROR_EXTENSION_NOT_PRESENT, "extension not present"},
        {VK_ERROR_FEATURE_NOT_PRESENT, "feature not present"},
        {VK_ERROR_INCOMPATIBLE_DRIVER, "incompatible driver"},
        {VK_ERROR_TOO_MANY_OBJECTS, "too many objects"},
    };
    for (const auto& [code, name] : names)
        if (code == result) return name;
    return "unknown error";
}

// "vkQueueSubmit2" of "s.vk.vkQueueSubmit2(queue, 1, ...)".
static std::string function_name(std::string_view call) {
    call = call.substr(0, call.find('('));
    return std::string(call.substr(call.find_last_of(".>") + 1));
}

bool is_out_of_memory(VkResult result) {
    return result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY;
}

void check_vulkan(VkResult result, const char* call) {
    if (result == VK_SUCCESS) return;
    const std::string function = function_name(call);
    if (result == VK_ERROR_DEVICE_LOST)
        throw DeviceLost(format_string(
            "the GPU was lost in %s (its driver reset it, perhaps because of another program); run again",
            function.c_str()));
    const std::string error =
        format_string("Vulkan: %s (%d) in %s", result_name(result), result, function.c_str());
    if (is_out_of_memory(result))
        throw DriverOutOfMemory(error + "; close other programs, or use a smaller batch or model");
    throw Error(error);
}

static void* open_loader() {
    for (const char* name : vulkan_loaders)
        if (void* library = open_library(name)) return library;
    fail(
        "no Vulkan loader on this machine (%s was not found): install your GPU's driver and libvulkan1, or "
        "use --device cpu",
        vulkan_loaders[0]);
}

static bool has_layer(PFN_vkGetInstanceProcAddr get, const char* wanted) {
    auto enumerate =
        PFN_vkEnumerateInstanceLayerProperties(get(nullptr, "vkEnumerateInstanceLayerProperties"));
    const auto layers = listed<VkLayerProperties>([&](auto... to) { VK_CHECK(enumerate(to...)); });
    return std::ranges::any_of(layers, [&](const auto& layer) { return !strcmp(layer.layerName, wanted); });
}

static bool has_instance_extension(PFN_vkGetInstanceProcAddr get, const char* wanted) {
    auto enumerate =
        PFN_vkEnumerateInstanceExtensionProperties(get(nullptr, "vkEnumerateInstanceExtensionProperties"));
    const auto extensions =
        listed<VkExtensionProperties>([&](auto... to) { VK_CHECK(enumerate(nullptr, to...)); });
    return std::ranges::any_of(extensions, [&](const auto& e) { return !strcmp(e.extensionName, wanted); });
}

static VkDebugUtilsMessengerCreateInfoEXT messenger_info() {
    VkDebugUtilsMessengerCreateInfoEXT info = {VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT};
    info.messageSeverity =
        VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
    info.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
    info.pfnUserCallback = print_message;
    return info;
}

static VkInstance create_instance(PFN_vkGetInstanceProcAddr get, bool validation) {
    const char* layer = "VK_LAYER_KHRONOS_validation";
    if (validation && !has_layer(get, layer))
        fail(
            "validation was asked for, but the Khronos validation layer is not installed: install "
            "vulkan-validationlayers");
    std::vector<const char*> extensions;
    if (validation) extensions.push_back(VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
    const bool portability = has_instance_extension(get, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME);
    if (portability) extensions.push_back(VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME);  // MoltenVK

    VkApplicationInfo application = {VK_STRUCTURE_TYPE_APPLICATION_INFO};
    application.pApplicationName = "vulkan_gpt2";
    application.apiVersion = VK_API_VERSION_1_3;
    const VkValidationFeatureEnableEXT enabled[] = {
        VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
    VkDebugUtilsMessengerCreateInfoEXT messenger = messenger_info();
    VkValidationFeaturesEXT features = {VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT, &messenger};
    features.enabledValidationFeatureCount = 1;
    features.pEnabledValidationFeatures = enabled;

    VkInstanceCreateInfo info = {VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    info.pNext = validation ? &features : nullptr;
    info.flags = portability ? VkInstanceCreateFlags(VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR) : 0;
    info.pApplicationInfo = &application;
    info.enabledLayerCount = validation ? 1 : 0;
    info.ppEnabledLayerNames = &layer;
    info.enabledExtensionCount = uint32_t(extensions.size());
    info.ppEnabledExtensionNames = extensions.data();
    VkInstance instance;
    VkResult result = PFN_vkCreateInstance(get(nullptr, "vkCreateInstance"))(&info, nullptr, &instance);
    if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
        fail("the Vulkan loader found no driver: install your GPU's Vulkan driver, or use --device cpu");
    check_vulkan(result, "vkCreateInstance");
    return instance;
}

Vulkan open_vulkan(bool validation) {
    static void* library = nullptr;  // stays loaded: drivers do not survive dlclose
    if (!library) library = open_loader();
    Vulkan vk;
    vk.vkGetInstanceProcAddr = PFN_vkGetInstanceProcAddr(find_in_library(library, "vkGetInstanceProcAddr"));
    if (!vk.vkGetInstanceProcAddr)
        fail("the Vulkan loader has no vkGetInstanceProcAddr: reinstall libvulkan1");
    auto version =
        PFN_vkEnumerateInstanceVersion(vk.vkGetInstanceProcAddr(nullptr, "vkEnumerateInstanceVersion"));
    uint32_t api = VK_API_VERSION_1_0;
    if (version) VK_CHECK(version(&api));
    if (api < VK_API_VERSION_1_3)
        fail("the Vulkan loader is of version %u.%u, and 1.3 is needed: install a newer libvulkan1",
             VK_API_VERSION_MAJOR(api), VK_API_VERSION_MINOR(api));
    vk.instance = create_instance(vk.vkGetInstanceProcAddr, validation);
#define LOAD(function) vk.function = PFN_##function(vk.vkGetInstanceProcAddr(vk.instance, #function));
    VULKAN_INSTANCE_FUNCTIONS(LOAD)
#undef LOAD
    if (validation) {
        auto create = PFN_vkCreateDebugUtilsMessengerEXT(
            vk.vkGetInstanceProcAddr(vk.instance, "vkCreateDebugUtilsMessengerEXT"));
        VkDebugUtilsMessengerCreateInfoEXT info = messenger_info();
        VK_CHECK(create(vk.instance, &info, nullptr, &vk.messenger));
    }
    return vk;
}

void close_vulkan(Vulkan& vk) {
    if (!vk.instance) return;
    if (vk.messenger) {
        auto destroy = PFN_vkDestroyDebugUtilsMessengerEXT(
            vk.vkGetInstanceProcAddr(vk.instance, "vkDestroyDebugUtilsMessengerEXT"));
        destroy(vk.instance, vk.messenger, nullptr);
    }
    vk.vkDestroyInstance(vk.instance, nullptr);
    vk.instance = VK_NULL_HANDLE;
}

void load_device_functions(Vulkan& vk, VkDevice device) {
#define LOAD(function) vk.function = PFN_##function(vk.vkGetDeviceProcAddr(device, #function));
    VULKAN_DEVICE_FUNCTIONS(LOAD)
#undef LOAD
}
