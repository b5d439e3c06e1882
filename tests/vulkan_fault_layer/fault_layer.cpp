// A Vulkan layer for tests: it makes the n-th call of one function fail. The environment says which:
//     VULKAN_FAULT=vkQueueSubmit2:3:-4    the third call returns VkResult -4, VK_ERROR_DEVICE_LOST
//     VULKAN_FAULT_LOG=FILE               at exit, a line per function with its number of calls is written
//                                         to FILE, and "fired" if the fault happened
//     VULKAN_MEMORY=64:16                 the device has 64 MiB, of which the host sees 16: allocations
//     beyond
//                                         that fail, as on a discrete GPU
//     VULKAN_MEMORY=64+32                 two heaps that only the device sees, and one of the host's
//     VULKAN_MEMORY=64:16:host            what the host sees is a heap of the host's, of 16 MiB
//     VULKAN_BUDGET_HALVES=30             from submission 30 on, VULKAN_MEMORY grants half as much of the
//                                         memory that only the device sees
//     VULKAN_WATCHDOG=2000                a submission that takes more than 2000 ms loses the device; the log
//                                         then has the longest, in ms
// Without VULKAN_FAULT, it only counts. The failing call does not reach the driver. After
// VK_ERROR_DEVICE_LOST, every later call that a lost device fails returns it, too; the real device is idle by
// then, so that the program may free its memory.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/vulkan_layer.h"

// All functions with a VkResult that llmc/launchpad calls, except for the two that create.
#define INSTANCE_FUNCTIONS(X) X(vkEnumeratePhysicalDevices) X(vkEnumerateDeviceExtensionProperties)
#define DEVICE_FUNCTIONS(X)       \
    X(vkDeviceWaitIdle)           \
    X(vkQueueSubmit2)             \
    X(vkCreateSemaphore)          \
    X(vkWaitSemaphores)           \
    X(vkGetSemaphoreCounterValue) \
    X(vkCreateCommandPool)        \
    X(vkAllocateCommandBuffers)   \
    X(vkBeginCommandBuffer)       \
    X(vkEndCommandBuffer)         \
    X(vkCreateBuffer)             \
    X(vkAllocateMemory)           \
    X(vkBindBufferMemory)         \
    X(vkMapMemory)                \
    X(vkCreatePipelineLayout)     \
    X(vkCreatePipelineCache)      \
    X(vkGetPipelineCacheData)     \
    X(vkMergePipelineCaches)      \
    X(vkCreateShaderModule)       \
    X(vkCreateComputePipelines)   \
    X(vkCreateQueryPool)          \
    X(vkGetQueryPoolResults)      \
    X(vkGetMemoryHostPointerPropertiesEXT)

#define CREATE_FUNCTIONS(X) X(vkCreateInstance) X(vkCreateDevice)
#define ALL_FUNCTIONS(X) INSTANCE_FUNCTIONS(X) DEVICE_FUNCTIONS(X) CREATE_FUNCTIONS(X)

enum Function {
#define NAME(function) function##_,
    ALL_FUNCTIONS(NAME)
#undef NAME
        NUM_FUNCTIONS
};
static const char* const names[] = {
#define NAME(function) #function,
    ALL_FUNCTIONS(NAME)
#undef NAME
};

struct Fault {
    std::string function;
    long call = 0;
    VkResult result = VK_SUCCESS;
};

static Fault read_fault() {
    Fault fault;
    const char* text = getenv("VULKAN_FAULT");
    char function[64] = "";
    int result = 0;
    if (text && sscanf(text, "%63[^:]:%ld:%d", function, &fault.call, &result) == 3) {
        fault.function = function;
        fault.result = VkResult(result);
    }
    return fault;
}

static long watchdog_ms() {
    const char* text = getenv("VULKAN_WATCHDOG");
    return text ? atol(text) : 0;
}

struct Counts {
    const Fault fault = read_fault();
    std::atomic<long> calls[NUM_FUNCTIONS] = {};
    std::atomic<bool> fired = false, lost = false;
    std::atomic<long> longest_ms = 0;  // of the submissions, with VULKAN_WATCHDOG

    ~Counts() {
        const char* path = getenv("VULKAN_FAULT_LOG");
        FILE* file = path ? fopen(path, "w") : nullptr;
        if (!file) return;
        for (int i = 0; i < NUM_FUNCTIONS; i++) fprintf(file, "%s %ld\n", names[i], calls[i].load());
        if (watchdog_ms()) fprintf(file, "longest %ld\n", longest_ms.load());
        if (fired) fprintf(file, "fired\n");
        fclose(file);
    }
};
static Counts counts;

// The memory of VULKAN_MEMORY. Of the driver's memory types, which must be one, it makes two: one that only
// the device sees comes first. Both are the driver's.
struct LimitedMemory {
    uint64_t device = 0, visible = 0;  // MiB; 0: no limit
    uint64_t used = 0, visible_used = 0;
    bool has_host_heap = false;
    const bool has_budget = getenv("VULKAN_BUDGET_HALVES");  // for which lavapipe has no extension
    const std::string budget_extension = VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
    uint64_t second = 0, second_used = 0;  // of the second heap that only the device sees
    struct Allocation {
        uint64_t bytes;
        bool is_visible, is_second;
    };
    std::map<VkDeviceMemory, Allocation> allocations;

    LimitedMemory() {
        const char* text = getenv("VULKAN_MEMORY");
        unsigned long of_device = 0, of_host = 0;
        if (text && sscanf(text, "%lu+%lu", &of_device, &of_host) == 2) {
            second = of_host << 20;
            of_host = 1 << 20;
        } else if (!text || sscanf(text, "%lu:%lu", &of_device, &of_host) != 2) {
            return;
        }
        device = of_device << 20;
        visible = of_host << 20;
        has_host_heap = second || strstr(text, ":host");
    }
    // Other programs take the half of the memory from a submission on.
    static uint64_t granted(uint64_t bytes) {
        const char* call = getenv("VULKAN_BUDGET_HALVES");
        return call && counts.calls[vkQueueSubmit2_] >= atol(call) ? bytes / 2 : bytes;
    }
    bool holds(const Allocation& a) const {
        if (a.is_second) return second_used + a.bytes <= granted(second);
        if (second && a.is_visible) return true;
        return used + a.bytes <= granted(device) && (!a.is_visible || visible_used + a.bytes <= visible);
    }
    void add(const Allocation& a, int64_t sign) {
        if (a.is_second) second_used += uint64_t(sign) * a.bytes;
        if (second && (a.is_second || a.is_visible)) return;
        used += uint64_t(sign) * a.bytes;
        if (a.is_visible) visible_used += uint64_t(sign) * a.bytes;
    }
};
static LimitedMemory limited;

// The next layer's functions, by the loader's table, to which every dispatchable handle begins with a
// pointer.
struct Next {
    PFN_vkGetInstanceProcAddr instance_address = nullptr;
    PFN_vkGetDeviceProcAddr device_address = nullptr;
    VkDevice device = VK_NULL_HANDLE;
    PFN_vkFreeMemory free_memory = nullptr;
    PFN_vkGetBufferMemoryRequirements buffer_requirements = nullptr;
    PFN_vkGetPhysicalDeviceMemoryProperties2 memory_properties = nullptr;
    std::array<PFN_vkVoidFunction, NUM_FUNCTIONS> functions = {};
};
static std::map<void*, Next> next_of;
static std::mutex mutex;

template <class Handle>
static void* key_of(Handle handle) {
    return *reinterpret_cast<void**>(handle);
}

template <class Handle>
static Next find_next(Handle handle) {
    const std::lock_guard<std::mutex> lock(mutex);
    return next_of[key_of(handle)];
}

static bool fails_when_lost(int function) {
    return function == vkQueueSubmit2_ || function == vkWaitSemaphores_ || function == vkDeviceWaitIdle_ ||
           function == vkGetSemaphoreCounterValue_ || function == vkGetQueryPoolResults_;
}

// Counts the call. Returns what it is to return instead of reaching the driver, or VK_SUCCESS.
static VkResult count_call(int function) {
    const long call = ++counts.calls[function];
    if (counts.lost && fails_when_lost(function)) return VK_ERROR_DEVICE_LOST;
    if (counts.fault.function != names[function] || counts.fault.call != call) return VK_SUCCESS;
    counts.fired = true;
    counts.lost = counts.fault.result == VK_ERROR_DEVICE_LOST;
    return counts.fault.result;
}

// Vulkan leaves the output of a call that fails undefined: it becomes a handle that crashes the driver.
// Pipelines are the exception: theirs are null.
static void ruin(...) {}
template <class Handle>
requires std::is_pointer_v<Handle> &&(!std::is_const_v<Handle>)static void ruin(Handle* output) {
    if (output) *output = std::is_same_v<Handle, VkPipeline> ? nullptr : reinterpret_cast<Handle>(0xbad0);
}

template <int function, class Type>
struct Interceptor;
template <int function, class Handle, class... Rest>
struct Interceptor<function, VkResult(VKAPI_PTR*)(Handle, Rest...)> {
    static VKAPI_ATTR VkResult VKAPI_CALL call(Handle handle, Rest... rest) {
        const Next next = find_next(handle);
        if (const VkResult fault = count_call(function); fault != VK_SUCCESS) {
            if (fault == VK_ERROR_DEVICE_LOST && next.device)
                PFN_vkDeviceWaitIdle(next.functions[vkDeviceWaitIdle_])(next.device);
            (ruin(rest), ...);
            return fault;
        }
        return reinterpret_cast<VkResult(VKAPI_PTR*)(Handle, Rest...)>(next.functions[function])(handle,
                                                                                                 rest...);
    }
};

// Submits and waits for it. On a busy machine, a software device takes as long as it has processor time.
static VKAPI_ATTR VkResult VKAPI_CALL submit_watched(VkQueue queue, uint32_t count,
                                                     const VkSubmitInfo2* infos, VkFence fence) {
    using Submit = Interceptor<vkQueueSubmit2_, PFN_vkQueueSubmit2>;
    const auto start = std::chrono::steady_clock::now();
    const double processor_start = double(std::clock());
    const VkResult result = Submit::call(queue, count, infos, fence);
    if (result != VK_SUCCESS) return result;
    const Next next = find_next(queue);
    PFN_vkDeviceWaitIdle(next.functions[vkDeviceWaitIdle_])(next.device);
    const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - start;
    const double took =
        std::min(wall.count(), (double(std::clock()) - processor_start) * 1e3 / CLOCKS_PER_SEC);
    counts.longest_ms = std::max(counts.longest_ms.load(), long(took));
    if (took <= double(watchdog_ms())) return VK_SUCCESS;
    counts.fired = counts.lost = true;
    return VK_ERROR_DEVICE_LOST;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo* info,
                                                      const VkAllocationCallbacks* allocator,
                                                      VkInstance* instance) {
    auto* link =
        link_of<VkLayerInstanceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    if (const VkResult fault = count_call(vkCreateInstance_); fault != VK_SUCCESS) return fault;
    Next next;
    next.instance_address = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    auto create = PFN_vkCreateInstance(next.instance_address(nullptr, "vkCreateInstance"));
    const VkResult result = create(info, allocator, instance);
    if (result != VK_SUCCESS) return result;
#define FIND(function) next.functions[function##_] = next.instance_address(*instance, #function);
    INSTANCE_FUNCTIONS(FIND)
#undef FIND
    next.functions[vkCreateDevice_] = next.instance_address(*instance, "vkCreateDevice");
    next.memory_properties = PFN_vkGetPhysicalDeviceMemoryProperties2(
        next.instance_address(*instance, "vkGetPhysicalDeviceMemoryProperties2"));
    const std::lock_guard<std::mutex> lock(mutex);
    next_of[key_of(*instance)] = next;
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo* info,
                                                    const VkAllocationCallbacks* allocator,
                                                    VkDevice* device) {
    auto* link = link_of<VkLayerDeviceCreateInfo>(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    if (const VkResult fault = count_call(vkCreateDevice_); fault != VK_SUCCESS) return fault;
    Next next;
    next.device_address = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    auto create = PFN_vkCreateDevice(find_next(physical).functions[vkCreateDevice_]);
    std::vector<const char*> of_driver;
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++)
        if (!limited.has_budget || info->ppEnabledExtensionNames[i] != limited.budget_extension)
            of_driver.push_back(info->ppEnabledExtensionNames[i]);
    VkDeviceCreateInfo edited = *info;
    edited.enabledExtensionCount = uint32_t(of_driver.size());
    edited.ppEnabledExtensionNames = of_driver.data();
    const VkResult result = create(physical, &edited, allocator, device);
    if (result != VK_SUCCESS) return result;
#define FIND(function) next.functions[function##_] = next.device_address(*device, #function);
    DEVICE_FUNCTIONS(FIND)
#undef FIND
    next.device = *device;
    counts.lost = false;  // a lost one is opened again
    next.free_memory = PFN_vkFreeMemory(next.device_address(*device, "vkFreeMemory"));
    next.buffer_requirements =
        PFN_vkGetBufferMemoryRequirements(next.device_address(*device, "vkGetBufferMemoryRequirements"));
    const std::lock_guard<std::mutex> lock(mutex);
    next_of[key_of(*device)] = next;
    return result;
}

// The driver's, and the one of budgets, which lavapipe has not.
static VKAPI_ATTR VkResult VKAPI_CALL list_extensions(VkPhysicalDevice physical, const char* layer,
                                                      uint32_t* count, VkExtensionProperties* have) {
    const uint32_t room = *count;
    using List = Interceptor<vkEnumerateDeviceExtensionProperties_, PFN_vkEnumerateDeviceExtensionProperties>;
    const VkResult result = List::call(physical, layer, count, have);
    if (layer || result != VK_SUCCESS || (have && *count == room)) return result;
    if (have) strcpy(have[*count].extensionName, limited.budget_extension.c_str());
    ++*count;
    return result;
}

static VKAPI_ATTR void VKAPI_CALL get_memory_properties(VkPhysicalDevice physical,
                                                        VkPhysicalDeviceMemoryProperties2* properties) {
    find_next(physical).memory_properties(physical, properties);
    VkPhysicalDeviceMemoryProperties& p = properties->memoryProperties;
    p.memoryTypeCount = 2;
    p.memoryTypes[1] = p.memoryTypes[0];
    p.memoryTypes[0].propertyFlags = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    auto* budget = static_cast<VkPhysicalDeviceMemoryBudgetPropertiesEXT*>(properties->pNext);
    if (budget) budget->heapBudget[0] = limited.granted(limited.device);
    if (budget) budget->heapUsage[0] = limited.used;
    if (!limited.has_host_heap) return;
    if (budget) budget->heapBudget[1] = limited.visible;
    p.memoryHeapCount = 2;
    p.memoryHeaps[1] = {limited.visible, 0};
    p.memoryTypes[1].heapIndex = 1;
    p.memoryTypes[1].propertyFlags &= ~VkMemoryPropertyFlags(VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
    if (!limited.second) return;
    if (budget) budget->heapBudget[2] = limited.granted(limited.second);
    if (budget) budget->heapUsage[2] = limited.second_used;
    p.memoryHeaps[0].size = limited.device;
    p.memoryHeaps[p.memoryHeapCount++] = {limited.second, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
    p.memoryTypes[p.memoryTypeCount++] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 2};
}

static VKAPI_ATTR void VKAPI_CALL get_buffer_requirements(VkDevice device, VkBuffer buffer,
                                                          VkMemoryRequirements* needs) {
    find_next(device).buffer_requirements(device, buffer, needs);
    needs->memoryTypeBits = limited.second ? 7 : 3;
}

static VKAPI_ATTR VkResult VKAPI_CALL allocate_memory(VkDevice device, const VkMemoryAllocateInfo* info,
                                                      const VkAllocationCallbacks* allocator,
                                                      VkDeviceMemory* memory) {
    const LimitedMemory::Allocation asked = {info->allocationSize, info->memoryTypeIndex == 1,
                                             info->memoryTypeIndex == 2};
    if (!limited.holds(asked)) {
        counts.fired = true;
        ruin(memory);
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    VkMemoryAllocateInfo of_driver = *info;
    of_driver.memoryTypeIndex = 0;
    using Allocate = Interceptor<vkAllocateMemory_, PFN_vkAllocateMemory>;
    const VkResult result = Allocate::call(device, &of_driver, allocator, memory);
    if (result != VK_SUCCESS) return result;
    limited.add(asked, 1);
    limited.allocations[*memory] = asked;
    return result;
}

static VKAPI_ATTR void VKAPI_CALL free_memory(VkDevice device, VkDeviceMemory memory,
                                              const VkAllocationCallbacks* allocator) {
    if (const auto found = limited.allocations.find(memory); found != limited.allocations.end()) {
        limited.add(found->second, -1);
        limited.allocations.erase(found);
    }
    find_next(device).free_memory(device, memory, allocator);
}

// Where memory is limited; null: the function does not concern it.
static PFN_vkVoidFunction find_for_memory(const char* name) {
    if (!limited.device) return nullptr;
    if (limited.has_budget && !strcmp(name, "vkEnumerateDeviceExtensionProperties"))
        return PFN_vkVoidFunction(list_extensions);
    if (!strcmp(name, "vkGetPhysicalDeviceMemoryProperties2"))
        return PFN_vkVoidFunction(get_memory_properties);
    if (!strcmp(name, "vkGetBufferMemoryRequirements")) return PFN_vkVoidFunction(get_buffer_requirements);
    if (!strcmp(name, "vkAllocateMemory")) return PFN_vkVoidFunction(allocate_memory);
    if (!strcmp(name, "vkFreeMemory")) return PFN_vkVoidFunction(free_memory);
    return nullptr;
}

// The layer's version of a function; null where it has none.
static PFN_vkVoidFunction find_own(const char* name) {
    if (const PFN_vkVoidFunction of_memory = find_for_memory(name)) return of_memory;
    if (watchdog_ms() && !strcmp(name, "vkQueueSubmit2")) return PFN_vkVoidFunction(submit_watched);
#define FIND(function) \
    if (!strcmp(name, #function)) return PFN_vkVoidFunction(&Interceptor<function##_, PFN_##function>::call);
    INSTANCE_FUNCTIONS(FIND)
    DEVICE_FUNCTIONS(FIND)
#undef FIND
    if (!strcmp(name, "vkCreateInstance")) return PFN_vkVoidFunction(create_instance);
    if (!strcmp(name, "vkCreateDevice")) return PFN_vkVoidFunction(create_device);
    return nullptr;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device_address(VkDevice device, const char* name) {
    if (!strcmp(name, "vkGetDeviceProcAddr")) return PFN_vkVoidFunction(get_device_address);
    if (const PFN_vkVoidFunction own = find_own(name)) return own;
    return find_next(device).device_address(device, name);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance_address(VkInstance instance, const char* name) {
    if (!strcmp(name, "vkGetInstanceProcAddr")) return PFN_vkVoidFunction(get_instance_address);
    if (!strcmp(name, "vkGetDeviceProcAddr")) return PFN_vkVoidFunction(get_device_address);
    if (const PFN_vkVoidFunction own = find_own(name)) return own;
    return instance ? find_next(instance).instance_address(instance, name) : nullptr;
}
