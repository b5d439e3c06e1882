// LaunchPad: the one object through which layers start GPU kernels.
//
// Host pointers are the currency: allocate() returns an address that the host can hold, offset and store, and
// at() turns any address inside such memory into what a kernel takes. One code serves three kinds of memory:
//   unified  host and device see the same bytes (integrated GPUs, Apple, software devices); no copies
//   mapped   device memory that the host can write through the bus, but should not read: use download()
//   staged   device memory behind a reserved host range that faults when touched: use upload() and download()
//
// Commands run in the order they are given. dispatch(), fill(), copy() and upload() append to an open command
// buffer and return at once; commit() sends it to the GPU. Each command waits for those before it, except
// inside a group (begin_group, end_group), whose dispatches and fills must be independent of each other.
//
// Not thread-safe: one thread at a time. Everything throws Error (llmc/error.h) where it fails.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "llmc/device.h"
#include "llmc/error.h"
#include "llmc/real.h"

enum class MemoryMode { automatic, unified, mapped, staged };
const char* memory_mode_name(MemoryMode mode);

struct LaunchPadOptions {
    std::string device = "gpu";  // as choose_device() takes it; "auto" and "cpu" make no sense here
    MemoryMode memory = MemoryMode::automatic;
    bool validation = false;  // Khronos validation layer; also by LAUNCHPAD_VALIDATION=1
    bool print_pipelines =
        false;  // what the compiler says of each kernel; also by LAUNCHPAD_PRINT_PIPELINES=1
    bool check_pointers = false;  // replay() checks recorded pointers; also by LAUNCHPAD_CHECK_POINTERS=1
    // Dispatches that a group lets run at the same time are started last to first, so that a device that runs
    // them one by one shows whether one of them needs another; also by LAUNCHPAD_REVERSE_GROUPS=1
    bool reverse_groups = false;
    bool timestamps = false;      // measure each dispatch: kernel_times()
    bool in_place = true;         // false, for tests: as on devices whose fragments lie in different places
    std::string cache_directory;  // of the pipeline cache; empty: the user's, "none": no cache
};

// Where memory lies: near the GPU, or in host memory that is cached, for results the host reads often.
enum class Placement { device, readback };

// Number of workgroups. A large one-dimensional grid is folded into two dimensions where the device limits x,
// so kernels take their number from group_index() of util.glsl and check it against their sizes.
struct Groups {
    uint64_t x = 1;
    uint32_t y = 1, z = 1;
};

// Workgroups of `block` invocations needed for n invocations.
inline uint64_t blocks(uint64_t n, uint64_t block) { return (n + block - 1) / block; }

// The fragments that matrix cores multiply, and where their components lie in the registers of a subgroup.
struct MatrixShape {
    uint32_t M = 0, N = 0, K = 0;  // zeros: the device has none for that type
    // Components of a sum whose numbers agree in the bits row_components belong to the same row, and the rest
    // of the row is with the invocations whose numbers differ in the bits column_lanes alone.
    uint32_t row_components = 0, column_lanes = 0;
    bool rows_known = false;  // false: components lie in some other way
    bool in_place = false;    // sums and first factors have their components in the same places
    explicit operator bool() const { return M != 0; }
};

struct Limits {
    uint32_t subgroup_size = 0;            // invocations; pipelines are pinned to it
    uint32_t max_block = 0;                // invocations in a workgroup
    uint32_t shared_bytes = 0;             // shared memory of a workgroup
    uint64_t max_allocation = 0;           // bytes of one allocate()
    MatrixShape bf16_matrix, fp16_matrix;  // operands of that type, sums in fp32 (VK_KHR_cooperative_matrix)

    // The fragments of operands of T; none for float.
    template <class T>
    MatrixShape matrix() const {
        if constexpr (std::is_same_v<T, bf16>) return bf16_matrix;
        if constexpr (std::is_same_v<T, fp16>) return fp16_matrix;
        return {};
    }
};

// What a dispatch must do at least: each input read and each output written once, and the operations.
struct Work {
    double bytes = 0, flops = 0;
};
template <class T>
Work moves(double elements) {  // work of a kernel that moves so many elements of type T and computes little
    return {double(sizeof(T)) * elements, 0};
}

// One kernel's sums over its calls; the work is that which the dispatches announced.
struct KernelTime {
    std::string name;
    uint64_t calls = 0;
    double seconds = 0;  // on the GPU
    Work work;
};

using Ticket = uint64_t;  // stands for everything committed up to some point
struct Recording;         // commands recorded once, to be replayed

class LaunchPad {
   public:
    explicit LaunchPad(const LaunchPadOptions& options = {});
    ~LaunchPad();  // waits for the GPU, writes the pipeline cache, frees everything

    const DeviceInfo& device() const;
    const Limits& limits() const;
    MemoryMode memory_mode() const;  // never automatic

    // --- memory ---
    // Returns `bytes` of memory, aligned to 64 bytes, contents undefined. `label` appears in error messages.
    void* allocate(size_t bytes, const char* label, Placement placement = Placement::device);
    template <class T>
    T* allocate(size_t count, const char* label, Placement placement = Placement::device) {
        return static_cast<T*>(allocate(count * sizeof(T), label, placement));
    }
    void free(void* address);  // as allocate() returned it; null is ignored; waits for the GPU
    // Makes memory that the program already has usable by kernels (VK_EXT_external_memory_host). The memory
    // stays the caller's and must live until unregister_buffer().
    void register_buffer(void* address, size_t bytes);
    void unregister_buffer(void* address);
    uint64_t allocated_bytes() const;  // in live allocate() memory

    // Stream-ordered: takes effect after the commands before it, seen by those after it. src may change on
    // return.
    void upload(void* dst, const void* src, size_t bytes);
    void download(void* dst, const void* src, size_t bytes);  // commits, waits, then copies to the host
    void copy(void* dst, const void* src, size_t bytes);      // between two GPU-visible addresses
    void fill(void* dst, uint32_t word, size_t bytes);        // 4-byte aligned address and size

    // The device address of `count` elements at p, an address inside live memory; null gives 0. Throws where
    // the elements do not lie inside one live buffer.
    template <class T>
    uint64_t at(const T* p, size_t count) {
        return address_of(p, count * sizeof(T));
    }

    // --- commands ---
    // Appends one kernel: the name of its shader file, built for storage type T (any where it has no Reals),
    // its grid, its specialization constants (number 0 is the block size), its argument struct from
    // shaders/args.h, and for kernel_times() how much work that is.
    template <class T = float, class Args>
    void dispatch(std::string_view kernel, Groups groups, std::initializer_list<uint32_t> constants,
                  const Args& args, const Work& work = {}) {
        static_assert(sizeof(Args) <= 128 && std::is_trivially_copyable_v<Args>,
                      "push constants hold 128 bytes");
        dispatch_bytes(kernel, real_name<T>(), groups, constants, &args, sizeof(Args), work);
    }
    void begin_group();  // dispatches and fills up to end_group() may run at the same time; a group inside is
                         // part of it
    void end_group();
    void barrier();  // inside a group: what follows waits for what came before
    // The dispatches between these two wait for the commands before them, but are not started at once: each
    // stage of the commands that follow (what lies between two waits) takes one along, or a group of them, to
    // fill what it leaves idle of the device. They must be independent of each other and of what follows, up
    // to finish_background(), which starts those that are left; commands after it see what they wrote.
    // Outside of groups. commit() and end_recording() finish them too.
    void begin_background();
    void end_background();
    void finish_background();

    Ticket commit(bool wait_for_it = false);  // sends what was appended to the GPU
    void wait(Ticket ticket);

    // Commands given between these two are kept instead of run; upload() and download() are refused there.
    void begin_recording();
    Recording* end_recording();
    void replay(Recording* recording);  // like giving its commands again; may be called any number of times
    void forget(Recording* recording);

    // --- what was measured on this device ---
    // Numbers under names without spaces, kept on disk beside the pipeline cache, by device and driver; none
    // where nothing was kept, or what is there cannot be read. A number that cannot be written is kept in
    // memory alone.
    std::optional<int> measured(const std::string& name) const;
    void keep_measured(const std::string& name, int value);

    // --- time ---
    // Seconds of GPU time between the start and the end of what `commands` appends; commits and waits.
    double gpu_seconds(const std::function<void()>& commands);
    std::vector<KernelTime> kernel_times();  // since the last reset, most expensive first; waits for the GPU
    void reset_kernel_times();

   private:
    uint64_t address_of(const void* p, size_t bytes);
    void dispatch_bytes(std::string_view kernel, const char* real, Groups groups,
                        std::initializer_list<uint32_t> constants, const void* args, size_t bytes,
                        const Work& work);
    std::unique_ptr<struct LaunchPadState> state;
};

// The commands given while it lives are a group; nothing where pad is null, on the CPU.
struct SideBySide {
    LaunchPad* pad;
    explicit SideBySide(LaunchPad* launchpad) : pad(launchpad) {
        if (pad) pad->begin_group();
    }
    SideBySide(const SideBySide&) = delete;
    ~SideBySide() {
        if (pad) pad->end_group();
    }
};

// One numbered version of a layer's kernel: tests and benchmarks walk the tables of these. F is the type of
// the launcher, a function that takes the launchpad, the layer's arguments and the block size.
template <class F>
struct KernelVersion {
    const char* name;  // of the shader file
    const char* what;  // what it does differently, one line
    F* launch;
    std::vector<int> block_sizes;  // that it runs with, the best one first
};
