// LaunchPad's memory: choosing a mode, allocating, importing host memory, moving bytes.
#include <algorithm>
#include <cstring>
#include <utility>

#include "llmc/base/os.h"
#include "llmc/launchpad/internal.h"

static const VkMemoryPropertyFlags NEAR = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
static const VkMemoryPropertyFlags VISIBLE =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
static const VkMemoryPropertyFlags CACHED = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
static const size_t STAGING_BYTES = 16 << 20, LEAST_STAGING_BYTES = 64 << 10;
static const uintptr_t DRY_RUN_ADDRESS = 1 << 16;  // of scratch memory in a dry run: aligned, and not null
// Uploads of up to so many bytes are copied into the command buffer, so that the host need not wait: a batch
// of 64 x 1024 tokens with its buckets takes 0.75 MiB.
static const size_t INLINE_UPLOAD = 4 << 20;

// The first memory type allowed by `bits` that has all of `wanted`; -1 if there is none.
static int find_memory_type(const LaunchPadState& s, uint32_t bits, VkMemoryPropertyFlags wanted) {
    for (uint32_t i = 0; i < s.memory.memoryTypeCount; i++)
        if ((bits >> i & 1) && (s.memory.memoryTypes[i].propertyFlags & wanted) == wanted) return int(i);
    return -1;
}

// Host-visible memory has no use on a discrete GPU: its driver may grant only a part of the device's memory
// that way (NVIDIA's 40 of 80 GiB), and copies through a staging buffer take no longer.
void choose_memory_mode(LaunchPadState& s) {
    const bool is_shared = find_memory_type(s, ~0u, NEAR | VISIBLE) >= 0;
    const bool one_memory = s.info.type == DeviceType::integrated || !s.info.is_gpu();
    s.mode = s.options.memory;
    if (s.mode == MemoryMode::automatic)
        s.mode = one_memory && is_shared ? MemoryMode::unified : MemoryMode::staged;
    if (s.mode == MemoryMode::unified && !is_shared)
        fail("%s has no memory that both host and device see: use staged memory", s.info.name.c_str());
    if (s.mode == MemoryMode::unified && !one_memory)
        fail("%s has memory of its own: unified memory is for integrated and software devices",
             s.info.name.c_str());
}

static bool is_on_device(const LaunchPadState& s, uint32_t heap) {
    return s.memory.memoryHeaps[heap].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT;
}

static bool type_is_on_device(const LaunchPadState& s, uint32_t type) {
    return is_on_device(s, s.memory.memoryTypes[type].heapIndex);
}

static std::vector<VkMemoryPropertyFlags> preferences_for(BufferKind kind) {
    if (kind == BufferKind::device_only) return {NEAR};
    if (kind != BufferKind::host_visible) return {VISIBLE | CACHED, VISIBLE};
    // an integrated GPU's own heap may be a small part of the memory that it can use
    return {NEAR | VISIBLE | CACHED, NEAR | VISIBLE, VISIBLE | CACHED, VISIBLE};
}

// Types with further properties need features that are not enabled.
std::vector<uint32_t> memory_types_for(const LaunchPadState& s, uint32_t bits, BufferKind kind) {
    std::vector<uint32_t> types;
    for (VkMemoryPropertyFlags wanted : preferences_for(kind))
        for (uint32_t i = 0; i < s.memory.memoryTypeCount; i++) {
            const VkMemoryPropertyFlags have = s.memory.memoryTypes[i].propertyFlags;
            const bool suits = (bits >> i & 1) && (have & wanted) == wanted;
            if (suits && !(have & ~(NEAR | VISIBLE | CACHED)) && std::ranges::count(types, i) == 0)
                types.push_back(i);
        }
    const auto on_device = [&s](uint32_t type) { return type_is_on_device(s, type); };
    // a software device has no other memory than "its own"
    if (kind == BufferKind::host && !std::ranges::all_of(types, on_device)) std::erase_if(types, on_device);
    if (types.empty()) fail("%s has no memory type for this kind of buffer", s.info.name.c_str());
    return types;
}

// Of all heaps on the device, or of the others.
static uint64_t used_bytes(const LaunchPadState& s, bool on_device) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s.memory.memoryHeapCount; i++)
        if (is_on_device(s, i) == on_device) sum += s.heap_bytes[i];
    return sum;
}

// What the driver grants of a heap, and how much of it this program uses. Software devices count what all
// programs use.
struct HeapBudget {
    uint64_t granted, used;
    uint64_t left() const { return granted > used ? granted - used : 0; }
};
static HeapBudget heap_budget(const LaunchPadState& s, uint32_t heap) {
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 memory = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
                                                &budget};
    if (!s.has_memory_budget) return {s.memory.memoryHeaps[heap].size, s.heap_bytes[heap]};
    s.vk.vkGetPhysicalDeviceMemoryProperties2(s.physical, &memory);
    return {std::min(budget.heapBudget[heap], s.memory.memoryHeaps[heap].size), budget.heapUsage[heap]};
}

// What a GPU's driver takes for a program beyond what it reports: 73 MiB on an H100, driver 580.
static const uint64_t UNREPORTED_BYTES = 128 << 20;

// What LaunchPadOptions::device_memory leaves. On a GPU, the driver's own memory counts, too.
static uint64_t left_of_limit(const LaunchPadState& s, uint32_t heap) {
    if (!s.options.device_memory || !is_on_device(s, heap)) return ~uint64_t(0);
    uint64_t used = used_bytes(s, true), reported = 0;
    for (uint32_t i = 0; i < s.memory.memoryHeapCount; i++)
        if (is_on_device(s, i)) reported += heap_budget(s, i).used;
    if (s.has_memory_budget && s.info.is_gpu()) used = std::max(used, reported) + UNREPORTED_BYTES;
    return s.options.device_memory > used ? s.options.device_memory - used : 0;
}

uint64_t LaunchPad::available_bytes(Placement placement, int processes) const {
    const LaunchPadState& s = *state;
    const bool near = placement == Placement::device;
    uint64_t left = 0, limit = ~uint64_t(0);
    for (uint32_t i = 0; i < s.memory.memoryHeapCount; i++) {
        if (is_on_device(s, i) != near) continue;
        left += heap_budget(s, i).left();  // a buffer that one heap cannot hold goes to another
        limit = left_of_limit(s, i);
    }
    return std::min(left / uint64_t(processes), limit);
}

static double mib(uint64_t bytes) { return double(bytes) / (1 << 20); }

std::vector<std::string> LaunchPad::memory_notes() {
    LaunchPadState& s = *state;
    std::vector<std::string> notes;
    if (s.spilled > s.noted_spilled) {
        notes.push_back(format_string(
            "%s had no room for %.1f MiB%s, such as '%s': they lie in the host's memory, which it reads and "
            "writes over the bus, so that steps take longer; use a smaller batch or model, or close other "
            "programs",
            s.info.name.c_str(), mib(s.spilled),
            s.options.device_memory
                ? format_string(" beyond the limit of %.1f MiB", mib(s.options.device_memory)).c_str()
                : "",
            s.first_spilled.c_str()));
        s.noted_spilled = s.spilled;
    }
    uint64_t granted = 0, used = used_bytes(s, true);
    for (uint32_t i = 0; i < s.memory.memoryHeapCount; i++)
        if (is_on_device(s, i)) granted += heap_budget(s, i).granted;
    const bool fell = granted < s.noted_budget / 4 * 3 || (granted < used && used <= s.noted_budget);
    if (fell)
        notes.push_back(format_string(
            "other programs took memory of %s: its driver grants %.1f MiB instead of %.1f, and this program "
            "uses %.1f MiB%s",
            s.info.name.c_str(), mib(granted), mib(s.noted_budget), mib(used),
            granted < used ? ", so that steps take longer, or fail; close other programs, or resume with a "
                             "smaller batch"
                           : ""));
    if (fell || !s.noted_budget) s.noted_budget = granted;
    return notes;
}

// A driver may grant more than it finds when the device is to use it (RADV).
void fail_submission(const LaunchPadState& s) {
    const uint64_t of_host = used_bytes(s, false), lockable = lockable_memory();
    const std::string limit =
        lockable == ~uint64_t(0) ? "" : format_string(" (ulimit -l is %.1f MiB)", mib(lockable));
    throw DriverOutOfMemory(format_string(
        "out of memory in vkQueueSubmit2: the driver of %s cannot provide the %.1f MiB of the device's and "
        "%.1f MiB of the host's memory%s that it allocated; close other programs, or use a smaller batch or "
        "model%s",
        s.info.name.c_str(), mib(used_bytes(s, true)), mib(of_host), limit.c_str(),
        of_host > s.staging.bytes ? ", or --offload none" : ""));
}

static std::string available_memory(const LaunchPadState& s, uint32_t heap) {
    const uint64_t left = left_of_limit(s, heap);
    if (left < heap_budget(s, heap).left())
        return format_string("the limit of %.1f MiB leaves %.1f MiB", mib(s.options.device_memory),
                             mib(left));
    if (!s.has_memory_budget)
        return format_string("the device has %.1f MiB", mib(s.memory.memoryHeaps[heap].size));
    return format_string("about %.1f MiB are available", mib(heap_budget(s, heap).left()));
}

[[noreturn]] static void out_of_memory(const LaunchPadState& s, double bytes, uint32_t type,
                                       const char* label) {
    const uint32_t heap = s.memory.memoryTypes[type].heapIndex;
    const bool on_device = is_on_device(s, heap);
    throw OutOfDeviceMemory(
        format_string("out of %s memory on %s: %.1f MiB asked for '%s', %.1f MiB in use by this program, %s "
                      "(one allocation holds at most %.1f MiB); use a smaller %s",
                      on_device ? "device" : "host", s.info.name.c_str(), bytes / (1 << 20), label,
                      double(used_bytes(s, on_device)) / (1 << 20), available_memory(s, heap).c_str(),
                      double(std::min(s.limits.max_allocation, s.memory.memoryHeaps[heap].size)) / (1 << 20),
                      on_device ? "batch, sequence or model" : "model, or --offload none"));
}

// Whether the type's heap, and the limit, can hold so many bytes. Imported memory is the host's.
static bool has_room(const LaunchPadState& s, VkDeviceSize bytes, uint32_t type, BufferKind kind) {
    const uint32_t heap = s.memory.memoryTypes[type].heapIndex;
    return bytes <= s.memory.memoryHeaps[heap].size &&
           (kind == BufferKind::imported || bytes <= left_of_limit(s, heap));
}

// Lavapipe of Mesa 26.1 loads once more after the last pass of a loop, for no lane, where all lanes share the
// address: one row further on, as a rule. Behind an allocation of its own there has to be memory, too.
static VkDeviceSize with_memory_behind(const LaunchPadState& s, const Buffer& b, VkDeviceSize bytes) {
    const bool reads_beyond = !s.info.is_gpu() && b.kind != BufferKind::imported;
    return reads_beyond ? std::max(bytes, std::min(bytes + (1 << 20), s.limits.max_allocation)) : bytes;
}

static VkDeviceAddress device_address(LaunchPadState& s, VkBuffer buffer) {
    VkBufferDeviceAddressInfo info = {VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO};
    info.buffer = buffer;
    return s.vk.vkGetBufferDeviceAddress(s.device, &info);
}

// Gives b.buffer memory of the first of these types that has `bytes`.
static void allocate_memory(LaunchPadState& s, Buffer& b, VkDeviceSize bytes,
                            const std::vector<uint32_t>& types, const void* next) {
    VkMemoryAllocateFlagsInfo flags = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, next};
    flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
    VkMemoryAllocateInfo info = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags};
    info.allocationSize = with_memory_behind(s, b, bytes);
    for (const uint32_t type : types) {
        if (!has_room(s, bytes, type, b.kind)) continue;
        info.memoryTypeIndex = type;
        VkDeviceMemory memory;  // undefined after a failure
        const VkResult result = s.vk.vkAllocateMemory(s.device, &info, nullptr, &memory);
        if (is_out_of_memory(result)) continue;
        check_vulkan(result, "vkAllocateMemory");
        b.memory = memory;
        b.heap = s.memory.memoryTypes[type].heapIndex;
        if (b.kind != BufferKind::imported) b.heap_bytes = bytes;
        s.heap_bytes[b.heap] += b.heap_bytes;
        VK_CHECK(s.vk.vkBindBufferMemory(s.device, b.buffer, b.memory, 0));
        b.address = device_address(s, b.buffer) + b.offset;
        return;
    }
    out_of_memory(s, double(bytes), types.front(), b.label.c_str());
}

static VkBuffer create_vk_buffer(LaunchPadState& s, VkDeviceSize bytes, const void* next) {
    VkBufferCreateInfo info = {VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, next};
    info.size = bytes;
    const uint32_t families[2] = {s.compute.family, s.copies.family};
    if (s.copies.family != s.compute.family) {
        info.sharingMode = VK_SHARING_MODE_CONCURRENT;
        info.queueFamilyIndexCount = 2;
        info.pQueueFamilyIndices = families;
    }
    info.usage = BUFFER_USAGE;
    VkBuffer buffer;
    VK_CHECK(s.vk.vkCreateBuffer(s.device, &info, nullptr, &buffer));
    return buffer;
}

// A range of inaccessible addresses that stands for memory that only the device sees.
static uintptr_t reserve(size_t bytes) {
    void* p = reserve_addresses(bytes);
    if (!p) fail("no address space left for %.1f MiB", double(bytes) / (1 << 20));
    return uintptr_t(p);
}

Buffer create_buffer(LaunchPadState& s, size_t bytes, BufferKind kind, const char* label) {
    // before the rounding below can overflow
    if (bytes > s.limits.max_allocation)
        out_of_memory(s, double(bytes), memory_types_for(s, ~0u, kind).front(), label);
    Buffer b;
    b.bytes = (std::max<size_t>(bytes, 1) + 63) / 64 * 64;
    b.kind = kind;
    b.label = label;
    if (s.dry && s.options.compile_only) {  // an address, and no memory
        b.kind = BufferKind::device_only;
        b.start = reserve(b.bytes);
        return b;
    }
    try {
        b.buffer = create_vk_buffer(s, b.bytes, nullptr);
        VkMemoryRequirements needs;
        s.vk.vkGetBufferMemoryRequirements(s.device, b.buffer, &needs);
        allocate_memory(s, b, needs.size, memory_types_for(s, needs.memoryTypeBits, kind), nullptr);
        void* host = nullptr;
        if (kind != BufferKind::device_only)
            VK_CHECK(s.vk.vkMapMemory(s.device, b.memory, 0, VK_WHOLE_SIZE, 0, &host));
        b.start = host ? uintptr_t(host) : reserve(b.bytes);
    } catch (...) {
        destroy_buffer(s, b);
        throw;
    }
    return b;
}

void destroy_buffer(LaunchPadState& s, Buffer& b) {
    if (b.buffer) s.vk.vkDestroyBuffer(s.device, b.buffer, nullptr);
    if (b.memory) s.vk.vkFreeMemory(s.device, b.memory, nullptr);  // unmaps as well
    s.heap_bytes[b.heap] -= b.heap_bytes;
    if (b.is_spilled) s.spilled -= b.bytes;
    if (b.kind == BufferKind::device_only && b.start)
        release_addresses(reinterpret_cast<void*>(b.start), b.bytes);
    b = Buffer();
}

const Buffer* find_buffer(const LaunchPadState& s, const void* p, size_t bytes) {
    const uintptr_t address = uintptr_t(p);
    auto next = s.buffers.upper_bound(address);
    if (next == s.buffers.begin()) return nullptr;
    const Buffer& b = std::prev(next)->second;
    const size_t offset = address - b.start;
    return offset < b.bytes && bytes <= b.bytes - offset ? &b : nullptr;
}

const Buffer& buffer_at(const LaunchPadState& s, const void* p, size_t bytes, const char* what) {
    const Buffer* buffer = find_buffer(s, p, bytes);
    if (!buffer) fail("%s: %zu bytes at %p are not inside live GPU-visible memory", what, bytes, p);
    return *buffer;
}

VkDeviceSize offset_in(const Buffer& b, const void* p) { return uintptr_t(p) - b.start + b.offset; }

uint64_t LaunchPad::address_of(const void* p, size_t bytes) {
    if (!p) return 0;
    if (state->dry) return uintptr_t(p);
    const Buffer& b = buffer_at(*state, p, bytes, "kernel argument");
    prepare_use(p, bytes);
    if (state->options.check_pointers) state->touched.push_back({p, bytes});
    return b.address + (uintptr_t(p) - b.start);
}

// Of the host's memory, where the device has its own, and the host has so much left: the system would end the
// program otherwise.
static Buffer spill_buffer(LaunchPadState& s, size_t bytes, const char* label) {
    const uint32_t type = memory_types_for(s, ~0u, BufferKind::host).front();
    if (type_is_on_device(s, type) || bytes > memory_for_tensors()) return {};
    Buffer b = create_buffer(s, bytes, BufferKind::host, label);
    b.is_spilled = true;
    if (!s.spilled) s.first_spilled = label;
    s.spilled += b.bytes;
    return b;
}

static Buffer create_or_spill(LaunchPadState& s, size_t bytes, BufferKind kind, const char* label) try {
    return create_buffer(s, bytes, kind, label);
} catch (const OutOfDeviceMemory&) {
    Buffer b;
    try {
        if (s.options.spills && kind == BufferKind::device_only) b = spill_buffer(s, bytes, label);
    } catch (const OutOfDeviceMemory&) {
        // what the device lacks is the message
    }
    if (!b.buffer) throw;
    return b;
}

void* LaunchPad::allocate(size_t bytes, const char* label, Placement placement) {
    LaunchPadState& s = *state;
    BufferKind kind = s.mode == MemoryMode::staged ? BufferKind::device_only : BufferKind::host_visible;
    if (placement == Placement::host)
        kind = s.mode == MemoryMode::staged ? BufferKind::host : BufferKind::readback;
    Buffer b = create_or_spill(s, bytes, kind, label);
    s.allocated += b.bytes;
    void* address = reinterpret_cast<void*>(b.start);
    s.buffers.emplace(b.start, std::move(b));
    return address;
}

float* LaunchPad::scratch(Scratch slot, size_t floats) {
    LaunchPadState& s = *state;
    const size_t bytes = floats * sizeof(float);
    if (!bytes) return nullptr;
    if (s.dry) {
        size_t& needed = s.dry->scratch[size_t(slot)];
        needed = std::max(needed, bytes);
        return reinterpret_cast<float*>(DRY_RUN_ADDRESS);
    }
    const auto reads = [slot](const PostponedCommands& a) { return a.slot == slot; };
    if (std::ranges::any_of(s.postponed, reads)) barrier();
    if (std::ranges::any_of(s.started, reads)) barrier();
    ScratchSlot& present = s.scratch[size_t(slot)];
    if (present.bytes < bytes) {  // recordings may use the old memory: it is freed with the launchpad
        if (present.memory && s.recordings.empty() && !s.recording) free(std::exchange(present, {}).memory);
        present = {allocate<float>(floats, "scratch"), bytes};
    }
    return present.memory;
}

void LaunchPad::free(void* address) {
    if (!address) return;
    LaunchPadState& s = *state;
    auto found = s.buffers.find(uintptr_t(address));
    if (found == s.buffers.end() || found->second.kind == BufferKind::imported)
        fail("free: %p was not returned by allocate", address);
    settle();
    s.allocated -= found->second.bytes;
    destroy_buffer(s, found->second);
    s.buffers.erase(found);
}

void LaunchPad::register_buffer(void* address, size_t bytes) {
    LaunchPadState& s = *state;
    if (!s.import_alignment || !s.vk.vkGetMemoryHostPointerPropertiesEXT)
        fail("%s cannot use the program's own memory (it lacks VK_EXT_external_memory_host): use allocate()",
             s.info.name.c_str());
    if (!address || !bytes) fail("register_buffer: nothing to register");
    auto next = s.buffers.lower_bound(uintptr_t(address));
    if (find_buffer(s, address, 1) || (next != s.buffers.end() && next->first - uintptr_t(address) < bytes))
        fail("register_buffer: %zu bytes at %p overlap memory that is registered already", bytes, address);
    // whole pages are imported; the buffer begins at the page in which the memory begins
    const uintptr_t page = s.import_alignment, base = uintptr_t(address) / page * page;
    const size_t span = (uintptr_t(address) + bytes - base + page - 1) / page * page;
    VkMemoryHostPointerPropertiesEXT properties = {VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    const auto type = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
    VK_CHECK(
        s.vk.vkGetMemoryHostPointerPropertiesEXT(s.device, type, reinterpret_cast<void*>(base), &properties));
    VkExternalMemoryBufferCreateInfo external = {VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO};
    external.handleTypes = type;
    VkImportMemoryHostPointerInfoEXT import = {VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT};
    import.handleType = type;
    import.pHostPointer = reinterpret_cast<void*>(base);

    Buffer b;
    b.start = uintptr_t(address);
    b.bytes = bytes;
    b.kind = BufferKind::imported;
    b.offset = b.start - base;
    b.label = "registered memory";
    try {
        b.buffer = create_vk_buffer(s, span, &external);
        VkMemoryRequirements needs;
        s.vk.vkGetBufferMemoryRequirements(s.device, b.buffer, &needs);
        // visible to the host and coherent: Intel's driver would take any type
        const uint32_t bits = properties.memoryTypeBits & needs.memoryTypeBits;
        allocate_memory(s, b, span, memory_types_for(s, bits, BufferKind::imported), &import);
    } catch (...) {
        destroy_buffer(s, b);
        throw;
    }
    s.buffers.emplace(b.start, std::move(b));
}

void LaunchPad::unregister_buffer(void* address) {
    LaunchPadState& s = *state;
    auto found = s.buffers.find(uintptr_t(address));
    if (found == s.buffers.end() || found->second.kind != BufferKind::imported)
        fail("unregister_buffer: %p was not registered", address);
    settle();
    destroy_buffer(s, found->second);
    s.buffers.erase(found);
}

static void append_copy(LaunchPadState& s, const BufferCopy& copy) {
    memory_barrier(s);
    give(s, copy);
}

static void refuse_while_recording(const LaunchPadState& s, const char* what) {
    if (s.recording) fail("%s cannot be recorded: do it before begin_recording or after end_recording", what);
}

// The caller of dry_run() would miss the effect. With compile_only, programs know that nothing is executed.
static void refuse_in_dry_run(const LaunchPadState& s, const char* what) {
    if (s.dry && !s.options.compile_only) fail("%s: a dry run transfers nothing", what);
}

// Smaller if memory is short.
static Buffer& staging_buffer(LaunchPadState& s) {
    for (size_t bytes = STAGING_BYTES; !s.staging.buffer; bytes /= 2) {
        try {
            s.staging = create_buffer(s, bytes, BufferKind::readback, "staging");
        } catch (const OutOfDeviceMemory&) {
            if (bytes <= LEAST_STAGING_BYTES) throw;
        }
    }
    return s.staging;
}

void LaunchPad::upload(void* dst, const void* src, size_t bytes) {
    LaunchPadState& s = *state;
    refuse_while_recording(s, "upload");
    refuse_in_dry_run(s, "upload");
    if (!bytes || s.dry) return;
    const Buffer& b = buffer_at(s, dst, bytes, "upload");
    prepare_use(dst, bytes);
    const VkDeviceSize offset = offset_in(b, dst);
    const char* from = static_cast<const char*>(src);
    if (bytes <= INLINE_UPLOAD && bytes % 4 == 0 &&
        offset % 4 == 0) {  // no wait: the command buffer holds the bytes
        if (!s.open_groups) memory_barrier(s);
        VkCommandBuffer commands = open_commands(s);
        for (size_t i = 0; i < bytes; i += 65536)  // vkCmdUpdateBuffer takes no more
            s.vk.vkCmdUpdateBuffer(commands, b.buffer, offset + i, std::min<size_t>(65536, bytes - i),
                                   from + i);
        s.dirty = true;
        return;
    }
    if (b.kind != BufferKind::device_only) {
        commit(true);
        memcpy(dst, src, bytes);
        return;
    }
    Buffer& staging = staging_buffer(s);
    for (size_t i = 0; i < bytes; i += staging.bytes) {
        const size_t n = std::min(staging.bytes, bytes - i);
        commit(true);  // the previous piece has left the staging buffer
        memcpy(reinterpret_cast<void*>(staging.start), from + i, n);
        append_copy(s, {staging.buffer, b.buffer, {0, offset + i, n}});
    }
    commit(true);
}

void LaunchPad::download(void* dst, const void* src, size_t bytes) {
    LaunchPadState& s = *state;
    refuse_while_recording(s, "download");
    refuse_in_dry_run(s, "download");
    if (!bytes) return;
    if (s.dry) return void(memset(dst, 0, bytes));
    const Buffer& b = buffer_at(s, src, bytes, "download");
    if (b.kind != BufferKind::device_only) {
        commit(true);
        memcpy(dst, src, bytes);
        return;
    }
    // Pending work comes first: commit() would run it only after the first copy.
    finish_pending();
    Buffer& staging = staging_buffer(s);
    for (size_t i = 0; i < bytes; i += staging.bytes) {
        const size_t n = std::min(staging.bytes, bytes - i);
        append_copy(s, {b.buffer, staging.buffer, {offset_in(b, src) + i, 0, n}});
        commit(true);
        memcpy(static_cast<char*>(dst) + i, reinterpret_cast<void*>(staging.start), n);
    }
}

// For replay() to check.
static void record_pointer(LaunchPadState& s, const void* p, size_t bytes) {
    if (s.recording && s.options.check_pointers) s.recording->pointers.push_back({p, bytes});
}

BufferCopy LaunchPad::prepare_copy(const CopyRange& range) {
    const auto [dst, src, bytes] = range;
    const Buffer& to = buffer_at(*state, dst, bytes, "copy to");
    const Buffer& from = buffer_at(*state, src, bytes, "copy from");
    prepare_use(dst, bytes);
    prepare_use(src, bytes);
    record_pointer(*state, dst, bytes);
    record_pointer(*state, src, bytes);
    return {from.buffer, to.buffer, {offset_in(from, src), offset_in(to, dst), bytes}};
}

void LaunchPad::copy(void* dst, const void* src, size_t bytes) {
    if (bytes && !state->dry) append_copy(*state, prepare_copy({dst, src, bytes}));
}

void LaunchPad::fill(void* dst, uint32_t word, size_t bytes) {
    LaunchPadState& s = *state;
    if (!bytes || s.dry) return;
    const Buffer& b = buffer_at(s, dst, bytes, "fill");
    prepare_use(dst, bytes);
    if (offset_in(b, dst) % 4 || bytes % 4) fail("fill: address and size must be multiples of 4 bytes");
    record_pointer(s, dst, bytes);
    if (!s.open_groups) memory_barrier(s);
    give(s, BufferFill{b.buffer, offset_in(b, dst), bytes, word});
}
