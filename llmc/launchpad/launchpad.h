// LaunchPad: the one object through which layers run GPU kernels.
//
// Layers pass host pointers: allocate() returns an address that the host can hold, offset and store, and
// at() turns any address inside such memory into the device address that a kernel takes. One code path serves
// three kinds of memory:
//   unified  host and device see the same bytes (integrated GPUs, Apple, software devices); no copies
//   mapped   device memory that the host can write over the bus but should not read: use download()
//   staged   device memory behind host addresses that fault on access: use upload() and download()
//
// Commands run in the order in which they are given. dispatch(), fill(), copy() and upload() append to an
// open command buffer and return at once; commit() submits it. Each command waits for those before it, except
// inside a group (begin_group, end_group), whose dispatches and fills must be independent of each other.
//
// Not thread-safe: one thread at a time. Every function throws Error (base/error.h) if it fails.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/real.h"
#include "llmc/base/work.h"
#include "llmc/launchpad/device.h"

enum class MemoryMode { automatic, unified, mapped, staged };
const char* memory_mode_name(MemoryMode mode);

struct LaunchPadOptions {
    std::string device = "gpu";  // as choose_device() takes it; "auto" and "cpu" make no sense here
    MemoryMode memory = MemoryMode::automatic;
    bool validation = false;  // Khronos validation layer; also LAUNCHPAD_VALIDATION=1
    // Prints the compiler's statistics of each kernel; also LAUNCHPAD_PRINT_PIPELINES=1
    bool print_pipelines = false;
    bool check_pointers = false;  // replay() checks recorded pointers; also LAUNCHPAD_CHECK_POINTERS=1
    // Starts the dispatches of a group last to first, and copy_async() when it is finished, so that a device
    // that runs everything in order exposes a missing wait; also LAUNCHPAD_REVERSE_GROUPS=1
    bool reverse_groups = false;
    bool timestamps = false;  // measures each dispatch: kernel_times()
    bool in_place = true;     // false, for tests: FragmentShape::in_place is never set
    // For tests: sets Limits::fp16_pieces and splits_fp32; also LAUNCHPAD_FP16_PIECES=1
    bool fp16_pieces = false;
    std::string cache_directory;  // of the pipeline cache; empty: the user's, "none": no cache
    // Nothing is allocated or executed: commands only note their kernels, for take_kernels(). For drivers
    // without their hardware, LAUNCHPAD_WITHOUT_DEVICE=1 sets it and has the layout of fragments assumed
    // instead of probed.
    bool compile_only = false;
};

// Where memory lies: near the GPU, or in cached host memory, for results that the host reads often.
enum class Placement { device, readback };

// Scratch memory that layers share. A slot's contents last until the next layer that uses the slot.
enum class Scratch { gemm, parameters, layernorm, norm, packed_weight, packed_weight_dinp, muon };
const int NUM_SCRATCH_SLOTS = 7;

// Number of workgroups. A one-dimensional grid that exceeds the device's limit of x is folded into two
// dimensions, so kernels take their number from group_index() of util.glsl and check it against their sizes.
struct Groups {
    uint64_t x = 1;
    uint32_t y = 1, z = 1;
};

// A cooperative-matrix fragment, and where the components of an accumulator lie in the registers of a
// subgroup.
struct FragmentShape {
    uint32_t M = 0, N = 0, K = 0;  // zeros: the device has none for that type
    // Components whose indices agree in the bits row_components belong to one row; the rest of the row is
    // held by the invocations whose numbers differ in the bits column_lanes only.
    uint32_t row_components = 0, column_lanes = 0;
    bool layout_known = false;  // false: components lie in some other way
    bool in_place = false;      // accumulators and A operands hold their components in the same positions
    bool truncates = false;     // conversions to the operands' type are known to truncate
    explicit operator bool() const { return M != 0; }
};

struct Limits {
    uint32_t subgroup_size = 0;  // invocations; pipelines are pinned to it
    uint32_t max_block = 0;      // invocations in a workgroup
    // Of all loops of an invocation together. Mesa's software devices end the loops after 65,535, silently.
    uint32_t max_iterations = ~0u;
    // Invocations in a workgroup whose barriers are cheap, at most 1024: 64 on a software device, where a
    // barrier switches among all invocations.
    uint32_t barrier_block = 0;
    // Of a software device, on which CI trains: its compiler takes seconds for a large unrolled kernel. It
    // takes the kernels of GPUs with three exceptions: GEMMs without tensor cores are version 4, GEMMs on
    // tensor cores are not tuned, and attention's tiles are as small as possible.
    bool compiles_slowly = false;
    // Whether an invocation has about 128 registers instead of 255. Vulkan does not tell: assumed of GPUs
    // with subgroups of fewer than 32 invocations, which have the registers of SIMD threads (Intel).
    bool few_registers = false;
    uint32_t shared_bytes = 0;    // shared memory of a workgroup
    uint32_t compute_units = 0;   // SMs (NVIDIA) or compute units; 0: the driver does not tell
    uint64_t max_allocation = 0;  // bytes of one allocate()
    // Operands of that type, fp32 accumulators (VK_KHR_cooperative_matrix)
    FragmentShape bf16_fragment, fp16_fragment;
    // fp32 GEMMs can split operands into bf16 pieces (shaders/matmul7.glsl): six GEMMs on tensor cores. That
    // is faster if tensor cores do ten times as many multiply-adds as fp32 units. Vulkan does not tell:
    // assumed of NVIDIA's GPUs with 64 subgroups per SM (A100, H100, H200, B200; others have fewer).
    bool splits_fp32 = false;
    bool fp16_pieces = false;  // for tests: the pieces are fp16, whose exponents have too small a range

    // The fragments of these pieces.
    FragmentShape fp32_pieces() const { return fp16_pieces ? fp16_fragment : bf16_fragment; }
    // The fragments for operands of a storage type; none for float.
    template <class Real>
    FragmentShape fragment() const {
        if constexpr (std::is_same_v<Real, bf16>) return bf16_fragment;
        if constexpr (std::is_same_v<Real, fp16>) return fp16_fragment;
        return {};
    }
};

struct MemoryRange {
    const void* start;  // null: empty
    size_t bytes;
};

// What a command sequence needs, found by a dry run.
struct Requirements {
    size_t scratch[NUM_SCRATCH_SLOTS] = {};                // bytes of each slot
    std::map<std::string, std::function<void()>> untuned;  // by name: measures a choice and keeps it
    // Specialization constants, by a key that names kernel and constants
    std::map<std::string, std::vector<uint32_t>> kernels;

    size_t scratch_bytes() const;
};

// A kernel as the driver's compiler reports it. Numbers that the driver does not tell are -1.
struct CompiledKernel {
    double seconds = 0;          // that the compiler took
    uint32_t subgroup_size = 0;  // 0: not told
    std::string error;           // the driver's message; empty: it compiled
    double registers = -1, spills = -1, scratch_bytes = -1, shared_bytes = -1, code_bytes = -1;
    // Occupancy: subgroups that the registers let run at a time on a SIMD unit
    double subgroups_per_unit = -1;
    std::map<std::string, double> statistics;  // all, under the driver's names
};

// Thrown once the driver has lost the device: this launchpad can only be destroyed.
struct DeviceLost : Error {
    using Error::Error;
};

using Ticket = uint64_t;  // stands for everything submitted up to some point
struct Recording;         // commands recorded once, to be replayed

// Between two GPU-visible addresses.
struct CopyRange {
    void* dst;
    const void* src;
    size_t bytes;
};

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
    template <class Element>
    Element* allocate(size_t count, const char* label, Placement placement = Placement::device) {
        return static_cast<Element*>(allocate(count * sizeof(Element), label, placement));
    }
    // As allocate() returned it; null is ignored. Waits for the GPU. Destructors call it: if the wait fails,
    // the memory is freed nevertheless, and the next command throws the error.
    void free(void* address);
    // Makes memory that the program already has usable by kernels (VK_EXT_external_memory_host). The memory
    // stays the caller's and must live until unregister_buffer().
    void register_buffer(void* address, size_t bytes);
    void unregister_buffer(void* address);
    uint64_t allocated_bytes() const;  // in live allocate() memory

    // At least so many floats of a scratch slot, contents undefined; null for 0. A slot grows when it has to,
    // which prepare() avoids; memory that recordings use stays valid.
    float* scratch(Scratch slot, size_t floats);

    // Stream-ordered: takes effect after the commands before it, seen by those after it. src may change on
    // return.
    void upload(void* dst, const void* src, size_t bytes);
    void download(void* dst, const void* src, size_t bytes);  // commits, waits, then copies to the host
    void copy(void* dst, const void* src, size_t bytes);      // between two GPU-visible addresses
    void fill(void* dst, uint32_t word, size_t bytes);        // 4-byte aligned address and size

    // The device address of `count` elements at p, an address inside live memory; null gives 0. Throws if the
    // elements do not lie inside one live buffer. The commands that follow wait for postponed ones that write
    // any of these elements.
    template <class Element>
    uint64_t at(const Element* p, size_t count) {
        return address_of(p, count * sizeof(Element));
    }

    // --- commands ---
    // Appends one kernel: the name of its shader file, built for a storage type (any, if it has no Reals),
    // its grid, its specialization constants (number 0 is the block size), its argument struct from
    // shaders/args.h, and for kernel_times() its work.
    template <class Real = float, class Args>
    void dispatch(std::string_view kernel, Groups groups, std::initializer_list<uint32_t> constants,
                  const Args& args, const Work& work = {}) {
        static_assert(sizeof(Args) <= 128 && std::is_trivially_copyable_v<Args>,
                      "push constants hold 128 bytes");
        dispatch_bytes(kernel, real_name<Real>(), groups, constants, &args, sizeof(Args), work);
    }
    // Dispatches and fills up to end_group() may run concurrently. Groups nest: an inner group is part of the
    // outer.
    void begin_group();
    void end_group();
    void leave_group() noexcept;  // the same for destructors: the next command throws the error
    void barrier();               // inside a group: what follows waits for what came before
    // Postpones `commands` past the next barrier, to overlap with the commands that follow it: for kernels
    // too small for a dispatch level of their own, such as the reduction of partial sums. They may read
    // `slot` and `results` and write only `results`. at(), scratch() and copies that concern this memory wait
    // for them; commit() and end_recording() append the rest.
    void postpone(Scratch slot, const std::vector<MemoryRange>& results, std::function<void()> commands);
    // Copies that overlap with the commands that follow, on the device's copy engines if it has a queue for
    // them: they take no SMs. They wait for the commands and copies before them. Until finish_copies(), the
    // commands that follow must neither write a source nor use a destination; later commands see the copies.
    // Each call first finishes the copies of the call before, and so do commit(), download() and
    // end_recording(). Error inside a group.
    void copy_async(const std::vector<CopyRange>& copies);
    void finish_copies();

    Ticket commit(bool wait_for_it = false);  // submits what was appended
    void wait(Ticket ticket);

    // Commands given between these two are recorded instead of run; upload() and download() are refused
    // there.
    void begin_recording();
    Recording* end_recording();
    void replay(Recording* recording);  // like giving its commands again; may be called any number of times
    void forget(Recording* recording);

    // --- dry runs ---
    // Returns what these commands need, without running them or building a kernel; pointers need not be
    // allocated. begin_recording(), upload() and download() are refused in a dry run; with compile_only,
    // upload() does nothing and download() gives zeros.
    Requirements dry_run(const std::function<void()>& commands);
    bool dry_running() const;
    // Allocates the scratch memory of a dry run, and queues what it needs for tune() and compile().
    void prepare(const Requirements& needed);
    // Measures the queued choices on the device and keeps the fastest on disk. `progress` is called before
    // each one.
    using ProgressCallback = std::function<void(int done, int total)>;
    void tune(const ProgressCallback& progress = nullptr);
    int num_untuned() const;
    // Builds the queued kernels, which otherwise happens at their first use.
    void compile(const ProgressCallback& progress = nullptr);
    int num_uncompiled() const;
    // With compile_only: the kernels of all commands since the last call, as Needs::kernels.
    std::map<std::string, std::vector<uint32_t>> take_kernels();
    // Builds a kernel of that map without any cache, and forgets it.
    CompiledKernel compile_kernel(const std::string& key, const std::vector<uint32_t>& constants);
    // In a dry run: notes a choice that was not measured on this device yet.
    void note_untuned(const std::string& name, std::function<void()> measure);

    // --- measurements of this device ---
    // Numbers under names without spaces, kept on disk beside the pipeline cache, by device and driver; none
    // if nothing was kept or the file cannot be read. A number that cannot be written is kept in memory only.
    std::optional<int> measured(const std::string& name) const;
    void keep_measured(const std::string& name, int value);

    // --- time ---
    // Seconds of GPU time between the start and the end of what `commands` appends; commits and waits.
    double gpu_seconds(const std::function<void()>& commands);
    std::vector<KernelTime> kernel_times();  // since the last reset, most expensive first; waits for the GPU
    void reset_kernel_times();

   private:
    void settle() noexcept;
    void append_postponed();
    void wait_for_postponed(const void* p, size_t bytes);
    void finish_postponed();
    void finish_pending();  // all that was given and not appended yet
    uint64_t address_of(const void* p, size_t bytes);
    void dispatch_bytes(std::string_view kernel, const char* real, Groups groups,
                        std::initializer_list<uint32_t> constants, const void* args, size_t bytes,
                        const Work& work);
    std::unique_ptr<struct LaunchPadState> state;
};

// The commands given during its lifetime form a group; pad null (CPU): nothing happens.
struct ConcurrentGroup {
    LaunchPad* pad;
    explicit ConcurrentGroup(LaunchPad* launchpad) : pad(launchpad) {
        if (pad) pad->begin_group();
    }
    ConcurrentGroup(const ConcurrentGroup&) = delete;
    ~ConcurrentGroup() {
        if (pad) pad->leave_group();
    }
};
