// LaunchPad: the one object through which layers run GPU kernels.
//
//     LaunchPad pad;                                         // opens the first GPU
//     float* x = pad.allocate<float>(n, "x");
//     pad.upload(x, values, n * sizeof(float));
//     pad.dispatch("gelu_forward2", {groups}, {block_size}, GeluForwardArgs{pad.at(x, n), ...});
//     pad.download(values, x, n * sizeof(float));            // waits for the kernel
//
// Layers pass host pointers: allocate() returns an address that the host can hold, offset and store, and
// at() turns any address inside such memory into the device address that a kernel takes. One code path serves
// two kinds of memory:
//   unified  host and device see the same bytes (integrated GPUs, Apple, software devices); no copies
//   staged   device memory behind host addresses that fault on access: use upload() and download()
//
// Commands run in the order in which they are given. dispatch(), fill(), copy() and upload() append to an
// open command buffer and return at once; commit() submits it. A barrier before each command makes it wait
// for those before it, except inside a ConcurrentGroup, whose dispatches, fills and uploads must be
// independent of each other. Two more kinds of command overlap with later ones: postpone() and copy_async().
//
// A training step is the same commands every time, so they are recorded once and replayed. Long commands and
// recordings become several submissions, so that no driver takes the device for hung. A dry run of the
// commands tells before the first step what they need: scratch memory, kernels to compile, GEMMs to tune.
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
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/real.h"
#include "llmc/base/work.h"
#include "llmc/launchpad/device.h"

enum class MemoryMode { automatic, unified, staged };
const char* memory_mode_name(MemoryMode mode);

// Which of these versions of kernels give right results on the launchpad's device.
using CheckVersions =
    std::function<std::map<std::string, bool>(class LaunchPad& pad, const std::set<std::string>& versions)>;

struct LaunchPadOptions {
    std::string device = "gpu";  // as choose_device() takes it; "auto" and "cpu" make no sense here
    MemoryMode memory = MemoryMode::automatic;  // LAUNCHPAD_STAGED=1: staged
    // Bytes that all allocations together may take of the device's memory; 0: what there is.
    uint64_t device_memory = 0;
    bool validation = false;      // Khronos validation layer; also LAUNCHPAD_VALIDATION=1
    bool check_pointers = false;  // replay() checks recorded pointers; also LAUNCHPAD_CHECK_POINTERS=1
    // Starts the dispatches of a group last to first, and copy_async() when it is finished, so that a device
    // that runs everything in order exposes a missing wait; also LAUNCHPAD_REVERSE_GROUPS=1
    bool reverse_groups = false;
    bool timestamps = false;  // measures each dispatch: take_kernel_times()
    bool in_place = true;     // false, for tests: FragmentShape::in_place is never set
    // For tests: sets Limits::fp16_pieces and splits_fp32; also LAUNCHPAD_FP16_PIECES=1
    bool fp16_pieces = false;
    // What a submission may be expected to keep the device for; also LAUNCHPAD_SUBMISSION_MS=100
    double submission_seconds = 0.1;
    // What the device's memory has no room for goes to the host's, where the device has its own: for
    // programs, which print memory_notes(). Measurements would be wrong.
    bool spills = false;
    std::string cache_directory;  // of the pipeline cache; empty: the user's, "none": no cache
    // Checks versions of kernels before their first use on a device: see prepare(). Null: they are believed.
    CheckVersions check_versions = nullptr;
    // Nothing is allocated or executed, and everything is a dry run. For drivers without their hardware,
    // LAUNCHPAD_WITHOUT_DEVICE=1 sets it and has the layout of fragments assumed instead of probed.
    bool compile_only = false;
};

// Where memory lies: near the GPU, or in cached host memory, for results that the host reads often, and for
// what the GPU uses so seldom that it may read and write it over the bus. On a discrete GPU, `host` is RAM,
// never VRAM.
enum class Placement { device, host };

// Scratch memory that layers share. A slot's contents are valid until the next layer that uses the slot.
enum class Scratch { gemm, parameters, layernorm, norm, packed_weight, packed_weight_dinp, muon };
const int NUM_SCRATCH_SLOTS = int(Scratch::muon) + 1;

// Number of workgroups. A one-dimensional grid that exceeds the device's limit of x is folded into two
// dimensions, so kernels take their number from group_index() of util.glsl and check it against their sizes.
struct Groups {
    uint64_t x = 1;
    uint32_t y = 1, z = 1;
};

// How conversions from fp32 are known to round, as shaders/args.h numbers it.
enum class Conversion { somehow, truncating, to_nearest };

// A cooperative-matrix fragment, and where the components of an accumulator lie in the registers of a
// subgroup.
struct FragmentShape {
    uint32_t M = 0, N = 0, K = 0;  // zeros: the device has none for that type
    // Component c of invocation i and component d of invocation j are in one row if c and d agree in the bits
    // row_components, and i and j agree in all bits but column_lanes.
    uint32_t row_components = 0, column_lanes = 0;
    bool layout_known = false;  // false: components lie in some other way
    bool in_place = false;      // accumulators serve as A operands: the positions of components agree
    Conversion conversion = Conversion::somehow;  // to the operands' type
    explicit operator bool() const { return M != 0; }
};

struct Limits {
    uint32_t subgroup_size = 0;  // invocations, at least
    // Pipelines have subgroups of subgroup_size. Otherwise the driver chooses a size for each (MoltenVK on
    // Macs with Intel's or AMD's GPUs), and a launcher must not depend on it.
    bool has_one_subgroup_size = true;
    uint32_t max_block = 0;  // invocations in a workgroup
    // Loop iterations of an invocation, summed over its loops. Mesa's software devices silently end loops
    // that exceed it: see check_iterations().
    uint32_t max_iterations = ~0u;
    // Invocations in a workgroup whose barriers are cheap, at most 1024: 64 on a software device, where a
    // barrier switches among all invocations.
    uint32_t barrier_block = 0;
    // Of a software device, on which CI trains: its compiler takes seconds for a large unrolled kernel. It
    // takes the kernels of GPUs with these exceptions: GEMMs without tensor cores are version 4, GEMMs on
    // tensor cores are not tuned, attention's tiles are as small as possible, its backward pass on tensor
    // cores needs no FragmentShape::in_place, barrier_block is 64, max_iterations is bounded, and
    // few_registers is never set.
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

// Kernels to build: specialization constants, by a key that names kernel and constants.
using RequiredKernels = std::map<std::string, std::vector<uint32_t>>;

// A choice to measure on the device: see LaunchPad::tuned().
struct Tuning {
    std::function<int()> measure;
    std::function<void()> prepare = nullptr;  // prepares the kernels that measure() needs
};

// What a command sequence needs, found by a dry run.
struct Requirements {
    size_t scratch[NUM_SCRATCH_SLOTS] = {};  // bytes of each slot
    std::map<std::string, Tuning> untuned;   // by name
    RequiredKernels kernels;
    std::set<std::string> versions;  // of kernels: see take()

    size_t scratch_bytes() const;
    void add(const Requirements& other);
};

// Thrown by allocate(). Its message names the allocation, and what is in use and available.
struct OutOfDeviceMemory : Error {
    using Error::Error;
};

// Thrown where the driver itself has too little memory.
struct DriverOutOfMemory : Error {
    using Error::Error;
};

// Thrown once the driver has lost the device: this launchpad can only be destroyed.
struct DeviceLost : Error {
    using Error::Error;
};

using Ticket = uint64_t;  // of commit(): stands for everything submitted so far
struct Recording;         // commands recorded once, to be replayed

// Between two GPU-visible addresses.
struct CopyRange {
    void* dst;
    const void* src;
    size_t bytes;
};

class LaunchPad;

// Throws Error if `iterations`, the loop iterations of an invocation of the kernel, exceed
// Limits::max_iterations. A launcher calls this for each kernel whose loops grow with the problem.
void check_iterations(const LaunchPad& pad, const char* kernel, uint64_t iterations);

class LaunchPad {
   public:
    explicit LaunchPad(const LaunchPadOptions& options = {});
    ~LaunchPad();  // waits for the GPU, writes the pipeline cache, frees everything

    const DeviceInfo& device() const;
    const Limits& limits() const;
    MemoryMode memory_mode() const;  // never automatic
    bool has_16bit_storage() const;  // which bf16 and fp16 need

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
    // Bytes that allocate() may still take of the device's memory, or of the host's, as far as the driver
    // reports them, divided among so many processes. 0 for `host`: the memory is unified.
    uint64_t available_bytes(Placement placement = Placement::device, int processes = 1) const;

    // What people should know of the memory and do not know yet: what lies in the host's since the device had
    // no room, and that other programs took memory from this one. The first call sets what later ones compare
    // with.
    std::vector<std::string> memory_notes();

    // At least so many floats of a scratch slot, contents undefined; null for 0. A slot grows when it has to,
    // which prepare() avoids; memory that recordings use stays valid.
    float* scratch(Scratch slot, size_t floats);

    // Stream-ordered: takes effect after the commands before it, seen by those after it; in a
    // ConcurrentGroup, it may overlap with the group's other commands. src may change on return.
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
    // At least so many submissions for each of the commands that follow, of which a slow device may need
    // several; 1: as few as LaunchPadOptions::submission_seconds allows.
    void divide_commands(int least_pieces);

    // Appends one kernel: the name of its shader file, built for a storage type (any, if it has no Reals),
    // its grid, its specialization constants (number 0 is the block size), its argument struct from
    // shaders/args.h, and for take_kernel_times() its work.
    template <class Real = float, class Args>
    void dispatch(std::string_view kernel, Groups groups, std::initializer_list<uint32_t> constants,
                  const Args& args, const Work& work = {}) {
        static_assert(sizeof(Args) <= 128 && std::is_trivially_copyable_v<Args>,
                      "push constants hold 128 bytes");
        dispatch_bytes(kernel, real_name<Real>(), groups, constants, &args, sizeof(Args), work);
    }
    // Inside a ConcurrentGroup: the commands that follow wait for the ones before.
    void barrier();
    // Postpones `commands` past the next barrier, to overlap with the commands that follow it: for kernels
    // too small to run alone between two barriers, such as the reduction of partial sums. They may read
    // `slot` and `results` and write only `results`; at() fails in them for other memory. Later commands that
    // use this memory wait for the postponed ones: at(), scratch() and copies check. commit() and
    // end_recording() append all that are still postponed.
    void postpone(Scratch slot, const std::vector<MemoryRange>& results, std::function<void()> commands);
    // Starts copies on the device's copy engines, if it has a queue for them, where they take no SMs. They
    // wait for all earlier commands and copies, and overlap with later commands until finish_copies(), which
    // the next copy_async(), commit(), download() and end_recording() call. Until then, no command may write
    // a source, and using a destination is an error. Error inside a group.
    void copy_async(const std::vector<CopyRange>& copies);
    void finish_copies();

    // Submits what was appended. Waits for it, too, where kernels were timed: their first runs (pace.cpp).
    Ticket commit(bool wait_for_it = false);
    void wait(Ticket ticket);
    bool is_done(Ticket ticket) const;  // without waiting

    // Commands given between these two are recorded instead of run. Errors there: upload(), download(), a
    // group that is open at either.
    void begin_recording();
    Recording* end_recording();
    void replay(Recording* recording);  // like giving its commands again; may be called any number of times
    void forget(Recording* recording);

    // --- dry runs ---
    // Returns what these commands need, without running them or building a kernel; pointers need not be
    // allocated. begin_recording(), upload() and download() are refused in a dry run; with compile_only,
    // upload() does nothing and download() gives zeros.
    Requirements dry_run(const std::function<void()>& commands);
    // Allocates the scratch memory of a dry run, and queues what it needs for tune() and compile(). Inside
    // another dry run, adds it to the result of that one.
    void prepare(const Requirements& needed);
    // Prepares what these commands need, of which it returns a dry run. Versions of kernels that were not
    // checked on this device, driver and build are checked before, together with those of all dry runs so
    // far; one that is wrong is not taken.
    Requirements prepare(const std::function<void()>& commands);
    // Measures the queued choices, once the kernels of all of them are built. `progress` is called before
    // each one, as in compile(). A choice whose measurement finds too little memory stays the usual one.
    using ProgressCallback = std::function<void(int done, int total)>;
    void tune(const ProgressCallback& progress = nullptr);
    // Forgets the queued choices, which stay the usual ones.
    void skip_tuning();
    // Builds the queued kernels, which otherwise happens at their first use.
    void compile(const ProgressCallback& progress = nullptr);
    // The choice that tune() measured on this device under `name`, which has no spaces; none if it was not
    // measured yet. A dry run then adds `tuning` to its result: tune() stores what it measures in a file
    // next to the pipeline cache, one per device and driver. If that cannot be written, the choice lasts as
    // long as the launchpad.
    std::optional<int> tuned(const std::string& name, const Tuning& tuning) const;

    // A layer takes a version of a kernel, such as "gelu_forward2/bf16/block:256", unless a check found it
    // wrong: kernel_version.h. Results are stored in the same file.
    bool is_wrong(const std::string& version) const;
    void take(const std::string& version);
    void store_checks(const std::map<std::string, bool>& checks);  // of versions: whether they are right
    void forget_checks();
    void forget_versions();  // that dry runs took, and that need no check: of a plan that is not followed

    // --- time ---
    // Seconds of GPU time between the start and the end of what `commands` appends; commits and waits.
    double gpu_seconds(const std::function<void()>& commands);
    // With the option `timestamps`: the kernels that ran since the last call, most expensive first. Waits for
    // the GPU.
    std::vector<KernelTime> take_kernel_times();

   private:
    friend struct ConcurrentGroup;
    friend struct CompiledKernel compile_kernel(LaunchPad&, const std::string&, const std::vector<uint32_t>&);
    void begin_group();
    void end_group() noexcept;  // the next command throws its error
    void settle() noexcept;
    void append_postponed();
    void prepare_use(const void* p, size_t bytes);
    struct BufferCopy prepare_copy(const CopyRange& range);  // which the next command makes
    void finish_postponed();
    void finish_pending();  // all that was given and not appended yet
    bool check();
    uint64_t address_of(const void* p, size_t bytes);
    void dispatch_bytes(std::string_view kernel, const char* real, Groups groups,
                        std::initializer_list<uint32_t> constants, const void* args, size_t bytes,
                        const Work& work);
    std::unique_ptr<struct LaunchPadState> state;
};

// The dispatches, fills and uploads appended during its lifetime may run concurrently. Groups nest: an inner
// group is part of the outer one. An error inside closes them all. `launchpad` null (CPU): nothing happens.
struct ConcurrentGroup {
    LaunchPad* pad;
    explicit ConcurrentGroup(LaunchPad* launchpad) : pad(launchpad) {
        if (pad) pad->begin_group();
    }
    ConcurrentGroup(const ConcurrentGroup&) = delete;
    ~ConcurrentGroup() {
        if (pad) pad->end_group();
    }
};
