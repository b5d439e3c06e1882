// The implementation of LaunchPad, private to llmc/launchpad/*.cpp.
#pragma once
#include <array>
#include <deque>
#include <exception>
#include <map>
#include <span>
#include <unordered_map>
#include <variant>

#include "llmc/launchpad/launchpad.h"
#include "llmc/launchpad/vulkan.h"

// The features of Vulkan 1.0 to 1.3, chained for vkGetPhysicalDeviceFeatures2 and vkCreateDevice.
struct DeviceFeatures {
    VkPhysicalDeviceFeatures2 features2 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
    VkPhysicalDeviceVulkan11Features vulkan11 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES};
    VkPhysicalDeviceVulkan12Features vulkan12 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceVulkan13Features vulkan13 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
    CooperativeMatrixFeatures matrix;  // chained where the device has the extensions
    BFloat16Features bfloat16;
    DeviceFeatures();
    DeviceFeatures(const DeviceFeatures&) = delete;  // the chain points into the object
    void request(const DeviceFeatures& have);  // sets what all kernels need, and what they can do without
};

// What kernels on cooperative matrices need beyond what all kernels do.
struct CooperativeMatrixSupport {
    bool fp16 = false, bf16 = false;
    bool avoided = false;  // the device may have them, but nothing asks for them: trust_in_matrices()
    bool untried = false;  // since no child process has tried them
    std::vector<const char*> extensions;
};

struct LaunchPadState;

struct PhysicalDevice {
    DeviceInfo info;
    VkPhysicalDevice handle;
};
std::vector<PhysicalDevice> physical_devices(const Vulkan& vk);  // in the order of list_devices()
// choose_device() among these: another instance takes a driver 0.1 s or more.
DeviceChoice choose_among(const std::vector<DeviceInfo>& devices, const std::string& request);

// host: of the host's memory alone, where the device has its own. readback: where the host reads fast
enum class BufferKind { host_visible, device_only, host, readback, imported };

const VkBufferUsageFlags BUFFER_USAGE = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT |
                                        VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                                        VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;

struct Buffer {
    uintptr_t start = 0;  // host address; readable where kind is not device_only
    size_t bytes = 0;
    BufferKind kind = BufferKind::host_visible;
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    VkDeviceAddress address = 0;  // of `start`
    VkDeviceSize offset = 0;      // of `start` in `buffer`
    uint32_t heap = 0;            // in which `memory` lies
    VkDeviceSize heap_bytes = 0;  // of `memory`; 0: imported
    bool is_spilled = false;      // to the host
    std::string label;
};

struct ScratchSlot {
    float* memory = nullptr;
    size_t bytes = 0;
};

// See LaunchPad::postpone().
struct PostponedCommands {
    Scratch slot;                      // which they read
    std::vector<MemoryRange> results;  // which they write
    std::function<void()> commands;
};

// What the last timed run of a kernel took (pace.cpp).
struct Cost {
    double assumed = 0, seconds = 0;
    int runs = 0;
};

struct Pipeline {
    std::string kernel;
    VkPipeline handle = VK_NULL_HANDLE;
    Cost cost = {};
};

struct TimedDispatch {
    const Pipeline* pipeline;
    Work work;
    bool starts;  // the first piece of a dispatch
};

// A command buffer with the timestamps taken in it.
struct Commands {
    VkCommandBuffer handle = VK_NULL_HANDLE;
    Ticket ticket = 0;
    uint64_t awaited_copies = 0;  // number of the last copies that it waits for; 0: none
    double expected = 0;          // seconds that its commands take
    VkQueryPool queries = VK_NULL_HANDLE;
    uint32_t query_capacity = 0;
    std::vector<TimedDispatch> timed;  // dispatch i lies between queries 2i and 2i+1
};

// Commands that are ready to be executed: appended to the open command buffer, or recorded.
struct Dispatch {
    Pipeline* pipeline;
    Groups grid;
    int axis;  // of the grid, along which it may be divided: 0 is x, 1 is y
    std::array<std::byte, 128> args;
    uint32_t arg_bytes;
    Work work;
};

struct BufferCopy {
    VkBuffer src, dst;
    VkBufferCopy region;
};

struct BufferFill {
    VkBuffer buffer;
    VkDeviceSize offset, bytes;
    uint32_t word;
};

struct Barrier {};
using AsyncCopies = std::vector<BufferCopy>;
struct FinishCopies {};
using Command = std::variant<Barrier, Dispatch, BufferCopy, BufferFill, AsyncCopies, FinishCopies>;

// Command buffers go to a queue in the order of their numbers, which its timeline counts.
struct Queue {
    VkQueue handle = VK_NULL_HANDLE;
    uint32_t family = 0;
    VkCommandPool pool = VK_NULL_HANDLE;
    VkSemaphore timeline = VK_NULL_HANDLE;
    Ticket last = 0;  // number of the last submission
    std::deque<Commands> in_flight;
    std::vector<Commands> idle;
};

// One side of a barrier.
struct Accesses {
    VkPipelineStageFlags2 stages;
    VkAccessFlags2 access;
};
const Accesses HOST_ACCESSES = {VK_PIPELINE_STAGE_2_HOST_BIT,
                                VK_ACCESS_2_HOST_READ_BIT | VK_ACCESS_2_HOST_WRITE_BIT};

// Its commands are executed again, until all have been timed. If they are short, they become parts then,
// which are submitted one by one. The copies in it are numbered from 1.
struct Recording {
    std::vector<Command> commands;
    struct Part {  // one of the two
        Commands commands;
        VkCommandBuffer copies = VK_NULL_HANDLE;
    };
    std::vector<Part> parts;
    uint64_t num_copies = 0;
    std::vector<MemoryRange> pointers;  // kept where pointers are checked
};

struct LaunchPadState {
    LaunchPadOptions options;
    Vulkan vk;
    DeviceInfo info;
    Limits limits;
    MemoryMode mode = MemoryMode::unified;
    VkPhysicalDevice physical = VK_NULL_HANDLE;
    VkDevice device = VK_NULL_HANDLE;
    Queue compute;
    Queue copies;  // of a family that only transfers; that of `compute` if there is none
    VkPhysicalDeviceMemoryProperties memory = {};
    VkDeviceSize import_alignment = 0;  // 0: host memory cannot be imported
    bool has_memory_budget = false;
    uint32_t max_groups[3] = {};
    uint32_t max_subgroup = 0;
    bool pin_subgroup = false;  // the device can be told a subgroup size
    bool has_int64 = false;     // kernels need not be rewritten
    bool has_16bit_storage = false;
    double timestamp_period = 0;  // seconds per tick
    uint64_t timestamp_mask = 0;

    std::map<uintptr_t, Buffer> buffers;  // by start: an ordered search finds the one that holds an address
    uint64_t allocated = 0;
    uint64_t heap_bytes[VK_MAX_MEMORY_HEAPS] = {};  // of all buffers; without imported memory
    uint64_t spilled = 0, noted_spilled = 0;        // bytes of live buffers; the most that was noted
    std::string first_spilled;                      // what it is
    uint64_t noted_budget = 0;                      // of the device's heaps; 0: not asked yet
    Buffer staging;
    ScratchSlot scratch[NUM_SCRATCH_SLOTS];

    Requirements* dry = nullptr;  // of the dry run that is going on
    Requirements collected;       // with compile_only, which is a dry run without an end
    bool without_device = false;
    bool capture_statistics = false;  // of the driver's compiler
    std::map<std::string, Tuning> untuned;
    RequiredKernels uncompiled;
    std::set<std::string> unchecked;  // versions of kernels that dry runs took

    VkPipelineLayout layout = VK_NULL_HANDLE;
    VkPipelineCache cache = VK_NULL_HANDLE;
    std::string cache_file;  // empty: no cache on disk
    std::map<std::string, int> measured;
    std::string measured_file;  // likewise
    std::unordered_map<std::string, VkShaderModule> modules;
    std::unordered_map<std::string, Pipeline> pipelines;  // key: kernel name and constants

    std::vector<Recording*> recordings;
    Commands open;                               // being appended to; handle is null where nothing was
    Commands span;                               // of gpu_seconds(): only its queries
    bool copying = false;                        // copies were submitted or recorded since finish_copies()
    std::vector<MemoryRange> copy_destinations;  // until finish_copies()
    uint64_t awaited_copies = 0;                 // by the command buffer that is opened next; 0: none
    std::vector<BufferCopy> held_copies;         // where groups are reversed: submitted by finish_copies()
    std::unique_ptr<Recording> recording;        // between begin_recording and end_recording
    Recording* building = nullptr;               // whose commands become parts
    bool has_timed = false;                      // a kernel, since the last commit
    double least_pieces = 1;                     // of a command: divide_commands()
    double least_seconds = 1;                    // that a timed kernel took: a submission's overhead
    VkPipeline bound = VK_NULL_HANDLE;
    bool dirty = false;                            // something ran since the last barrier
    int open_groups = 0;                           // one inside the other
    std::vector<Dispatch> held;                    // of the open group, where groups are reversed
    std::vector<PostponedCommands> postponed;      // until after the next barrier
    std::vector<PostponedCommands> started;        // since the last barrier: their results need another one
    const PostponedCommands* appending = nullptr;  // the ones whose commands are being appended
    std::exception_ptr failure;                    // of a destructor; the next command throws it
    bool lost = false;                             // the device
    std::vector<MemoryRange> touched;  // pointers resolved since the last dispatch, where they are checked
    std::map<std::string, KernelTime> times;

    ~LaunchPadState();
};

// launchpad.cpp Whether an environment variable is set, to something other than 0.
bool environment_switch(const char* name);
// The first family with compute and without graphics, else with compute; -1: none. A compositor shares the
// family with graphics (AMD), and a reset takes the desktop along.
int compute_family(const std::vector<VkQueueFamilyProperties>& families, uint32_t vendor);
// device.cpp Adds the features of cooperative matrices to the features that `request` asks for.
CooperativeMatrixSupport find_cooperative_matrix_support(const Vulkan& vk, VkPhysicalDevice physical,
                                                         DeviceFeatures& request);
void find_fragment_shapes(const Vulkan& vk, VkPhysicalDevice physical,
                          const CooperativeMatrixSupport& support, Limits& limits);
// The size of subgroups and what depends on it, and shared memory. Returns whether pipelines are to be told
// that size.
bool choose_subgroups(const Vulkan& vk, VkPhysicalDevice physical, DeviceType type, Limits& limits);
bool has_extension(const Vulkan& vk, VkPhysicalDevice physical, const char* name);
bool can_import_host_memory(const Vulkan& vk, VkPhysicalDevice physical);
// buffers.cpp
void choose_memory_mode(LaunchPadState& s);
// The memory types among `bits` for a kind of buffer, best first: an allocation that fails in one is tried in
// the next.
std::vector<uint32_t> memory_types_for(const LaunchPadState& s, uint32_t bits, BufferKind kind);
Buffer create_buffer(LaunchPadState& s, size_t bytes, BufferKind kind, const char* label);
void destroy_buffer(LaunchPadState& s, Buffer& buffer);
const Buffer* find_buffer(const LaunchPadState& s, const void* p,
                          size_t bytes);  // null: not inside a live one
const Buffer& buffer_at(const LaunchPadState& s, const void* p, size_t bytes, const char* what);  // or Error
VkDeviceSize offset_in(const Buffer& b, const void* p);
// Throws Error: the driver found no memory when commands were submitted.
[[noreturn]] void fail_submission(const LaunchPadState& s);
// commands.cpp
VkCommandBuffer allocate_command_buffer(LaunchPadState& s, VkCommandPool pool);
void begin_command_buffer(LaunchPadState& s, VkCommandBuffer commands);
void add_barrier(LaunchPadState& s, VkCommandBuffer commands, Accesses from, Accesses to);
VkCommandBuffer open_commands(LaunchPadState& s);  // begins a command buffer if none is open
void memory_barrier(LaunchPadState& s);            // unless nothing ran since the last one
void give(LaunchPadState& s, Command command);     // executes it, or adds it to the open recording
void release_held(LaunchPadState& s);              // appends what a reversed group holds
// Ends the open command buffer, and submits it or makes it a part of the recording.
Ticket submit_open(LaunchPadState& s);
// Submits commands (null: none) that wait until the other queue's timeline has a value (0: for nothing).
Ticket submit(LaunchPadState& s, Queue& queue, VkCommandBuffer commands, const Queue& other, Ticket awaited);
void retire(LaunchPadState& s, Queue& queue);  // makes completed command buffers reusable
void wait_for(LaunchPadState& s, Ticket ticket);
void destroy_commands(LaunchPadState& s, Commands& commands);
void destroy_recording(LaunchPadState& s, Recording& recording);
void wait_until_idle(LaunchPadState& s) noexcept;
// Appends some of a dispatch's workgroups, without a barrier before them: `count` along its axis.
void append(LaunchPadState& s, const Dispatch& d, uint64_t first, uint64_t count);
// copies.cpp
void submit_copies(LaunchPadState& s, VkCommandBuffer copies);
void start_copies(LaunchPadState& s, const AsyncCopies& copies);
void await_copies(LaunchPadState& s);
// pace.cpp
// For tests: the share of a dispatch in one submission, before its kernel has been timed.
double first_piece(const LaunchPadState& s, const Dispatch& d);
void execute(LaunchPadState& s, const Dispatch& d);
void execute(LaunchPadState& s, const BufferCopy& copy);
void execute(LaunchPadState& s, const BufferFill& fill);
std::vector<AsyncCopies> divided(const LaunchPadState& s, const AsyncCopies& copies);
// Whether all of a recording has been timed, and takes no longer than a submission may.
bool is_short(const LaunchPadState& s, const Recording& recording);
// pipelines.cpp Empty: no cache on disk.
std::string cache_file_of(const LaunchPadOptions& options, const VkPhysicalDeviceProperties& device);
void create_pipeline_cache(LaunchPadState& s);
void save_pipeline_cache(LaunchPadState& s) noexcept;
void add_stored_pipelines(LaunchPadState& s);  // which another process has built
void read_measured(LaunchPadState& s);         // needs create_pipeline_cache()
// What is stored about a device that is not open: which versions of kernels are right.
std::map<std::string, bool> stored_checks(const Vulkan& vk, VkPhysicalDevice physical);
VkShaderModule find_module(LaunchPadState& s, const std::string& kernel);
VkPipeline build_pipeline(LaunchPadState& s, const std::string& kernel, std::span<const uint32_t> constants,
                          VkPipelineCache cache);
std::string pipeline_key(std::string_view kernel, std::span<const uint32_t> constants);
// Builds it at first use. `kernel` names the shader and its storage type.
Pipeline& find_pipeline(LaunchPadState& s, std::string_view kernel, std::span<const uint32_t> constants);
