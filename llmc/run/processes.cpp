#include "llmc/run/processes.h"

#include <omp.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <system_error>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/lines.h"
#include "llmc/base/os.h"
#include "llmc/base/process.h"
#include "llmc/base/system_files.h"
#include "llmc/data/saved_shards.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/model_file.h"
#include "llmc/kernels/self_test.h"
#include "llmc/launchpad/device.h"
#include "llmc/launchpad/open_device.h"
#include "llmc/options/option_files.h"
#include "llmc/options/start_program.h"
#include "llmc/run/progress.h"

static std::vector<DeviceInfo> all_devices() {
    try {
        return list_devices();
    } catch (const Error&) {
        return {};  // no Vulkan
    }
}

static bool is_usable_gpu(const DeviceInfo& device) { return device.is_gpu() && device.missing.empty(); }

static std::vector<DeviceInfo> usable_gpus() {
    std::vector<DeviceInfo> gpus = all_devices();
    std::erase_if(gpus, [](const DeviceInfo& device) { return !is_usable_gpu(device); });
    return gpus;
}

// What the processes of this machine have, of what all processes have.
static std::span<const std::string> of_machine(const std::vector<std::string>& all, const Communicator& job) {
    return std::span(all).subspan(size_t(job.rank - job.machine_rank), size_t(job.machine_size));
}

// Unless mpirun has bound the processes to cores of their own, or the user has said how many threads to use.
// Those that train on the CPU get what the others, which need one each, leave.
static void take_share_of_cores(const Options& o, std::span<const std::string> devices) {
    const int cores = omp_get_num_procs(), processes = int(devices.size());
    if (o.machine.threads || getenv("OMP_NUM_THREADS") || cores < online_cpus()) return;
    const int on_cpu = int(std::count(devices.begin(), devices.end(), "cpu")),
              usable = std::min(cores, cpu_quota());
    const bool is_mixed = on_cpu > 0 && on_cpu < processes;
    const int share = !is_mixed           ? usable / processes
                      : o.device == "cpu" ? (usable - processes + on_cpu) / on_cpu
                                          : 1;
    omp_set_num_threads(std::max(1, share));
}

void note_bound_cores(const Options& o, const Communicator& job) {
    const int cores = omp_get_num_procs(), all = online_cpus();
    if (!has_launcher() || o.machine.threads || cores * job.machine_size > all / 2) return;
    print_line(stdout,
               "note: the launcher gives each process %d of this machine's %d cores, %d in all: mpirun "
               "--bind-to none gives them all",
               cores, all, cores * job.machine_size);
}

// What --device calls a device, such as "0".
static std::string number_of_device(const std::string& name, bool is_alone) {
    if (is_alone && name == "auto") return name;
    if (name == "all" || name == "auto")
        fail("--devices: %s is no single device: name each, such as 0,1,cpu, or give --devices all",
             name.c_str());
    try {
        const std::optional<DeviceInfo> device = choose_device(name).device;
        return device ? std::to_string(device->index) : "cpu";
    } catch (const Error& error) {
        fail("--devices: %s", error.what());
    }
}

// Those of --devices; all: GPUs and the CPU.
static std::vector<std::string> named_devices(const Options& o) {
    std::vector<std::string> all;
    if (o.devices != std::vector<std::string>{"all"}) {
        for (const std::string& name : o.devices)
            all.push_back(number_of_device(name, o.devices.size() == 1));
        return all;
    }
    for (const DeviceInfo& device : all_devices())
        if (is_usable_gpu(device))
            all.push_back(std::to_string(device.index));
        else
            print_line(stdout, "note: --devices all leaves out device %d (%s): %s", device.index,
                       device.name.c_str(),
                       device.missing.empty() ? "it is software, which computes on the CPU's cores"
                                              : ("it lacks " + device.missing).c_str());
    all.push_back("cpu");
    return all;
}

// Without --devices, --share and their values.
static std::vector<std::string> other_arguments(int argc, char** argv) {
    std::vector<std::string> others;
    bool is_value = false;
    int lists = 0;
    for (const std::string argument : std::span(argv, size_t(argc))) {
        const std::string name = argument.substr(0, argument.find('='));
        lists += name == "--devices";
        is_value = name == "--devices" || name == "--share" || (is_value && !argument.starts_with("-"));
        if (!is_value) others.push_back(argument);
    }
    if (lists > 1) fail("--devices is given twice: name all devices at once, such as --devices 0,1,cpu");
    return others;
}

const char* const devices_variable = "LLMC_DEVICES";

static std::string devices_options(const Options& o) {
    std::string text = " --devices " + shell_word(joined(o.devices, ","));
    for (size_t i = 0; i < o.share.size(); i++)
        text += format_string("%s%.9g", i ? "," : " --share ", o.share[i]);
    return text;
}

std::string resume_command(const Options& o) {
    const char* devices = getenv(devices_variable);
    return format_string("%s -o %s -y 1%s", command_of("train_gpt2").c_str(), shell_word(o.output).c_str(),
                         devices ? devices : "");
}

// mpirun with a process for each device. Its part of a step is --share's number for it.
static std::vector<std::string> command_for(const std::vector<std::string>& devices,
                                            const std::vector<double>& shares,
                                            const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {"mpirun"};
    for (size_t i = 0; i < devices.size(); i++) {
        if (i > 0) command.push_back(":");
        command.insert(command.end(), {"-np", "1"});
        command.insert(command.end(), arguments.begin(), arguments.end());
        command.insert(command.end(), {"--device", devices[i]});
        if (!shares.empty()) command.insert(command.end(), {"--share", format_string("%.9g", shares[i])});
    }
    return command;
}

static void check_shares(const Options& o, size_t devices) {
    if (o.share.empty()) return;
    if (o.share.size() != devices)
        fail("--share: %s for %s: give one for each", counted(o.share.size(), "number").c_str(),
             counted(devices, "device").c_str());
    const auto zeros = size_t(std::ranges::count(o.share, 0.0));
    if (zeros && zeros < devices)
        fail(
            "--share: 0 is no part of a step: leave out the device in --devices, or --share, so that speeds "
            "are measured");
}

std::optional<int> train_on_devices(Options& o, int argc, char** argv) {
    const char* by_hand = "mpirun -np 1 train_gpt2 --device 0 ... : -np 1 train_gpt2 --device cpu ...";
    if (has_launcher())
        fail("--devices starts the processes itself: leave out mpirun, or name a device for each, as in %s",
             by_hand);
    if (o.sources.of(&o.device) == Source::command_line)
        fail("--devices names the devices: leave out --device");
    const std::vector<std::string> arguments = other_arguments(argc, argv), devices = named_devices(o);
    check_shares(o, devices.size());
    if (devices.size() == 1) {
        o.device = devices[0];
        return std::nullopt;
    }
    if (!built_with_mpi())
        fail(
            "--devices needs MPI, without which this program was built: install it, such as with apt install "
            "libopenmpi-dev, and build again");
    const std::vector<std::string> command = command_for(devices, o.share, arguments);
    set_environment(devices_variable, devices_options(o));
    if (is_terminal(stdout)) set_environment(columns_variable, std::to_string(columns_of_terminal()));
    try {
        // The processes share the cores. Open MPI 4 reads OMPI_MCA_*, its successors PRTE_MCA_*.
        return run_instead(command, {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                     {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                     {"PRTE_ALLOW_RUN_AS_ROOT", "1"},
                                     {"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                     {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                                     {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
                                     {"OMPI_MCA_hwloc_base_binding_policy", "none"},
                                     {"PRTE_MCA_hwloc_default_binding_policy", "none"},
                                     {"OMPI_MCA_orte_execute_quiet", "1"}});
    } catch (const std::system_error& error) {
        fail("--devices: cannot start mpirun: %s; install MPI, or put its folder into PATH",
             error.code().message().c_str());
    }
}

// Whether each process of the machine sees one GPU, and no other process sees the same: srun
// --gpus-per-task=1. `seen` has the PCI addresses of the GPUs that each rank sees.
static bool each_sees_its_own(std::span<const std::string> seen) {
    const bool single = std::all_of(seen.begin(), seen.end(), [](const std::string& gpus) {
        return gpus.size() > 1 && std::count(gpus.begin(), gpus.end(), ' ') == 1;
    });
    return single && std::set<std::string>(seen.begin(), seen.end()).size() == seen.size();
}

std::string device_of_process(Options& o, Communicator& job) {
    const std::vector<std::string> all = job.gather(o.device);
    const auto devices = of_machine(all, job);
    std::vector<DeviceInfo> gpus;
    std::string addresses;
    if (o.device == "auto" && devices.size() > 1) gpus = usable_gpus();
    for (const DeviceInfo& gpu : gpus) addresses += gpu.pci + " ";
    const std::vector<std::string> seen = job.gather(addresses);
    const size_t same = size_t(std::count(devices.begin(), devices.end(), o.device));
    if (o.device != "auto") o.processes_on_device = int(same);
    if (devices.size() == 1) return o.device;
    take_share_of_cores(o, devices);  // a GPU's process sums gradients, too
    if (o.device != "auto") return o.device;
    if (gpus.empty()) return "cpu";
    if (each_sees_its_own(of_machine(seen, job))) return std::to_string(gpus[0].index);
    if (gpus.size() < same)
        fail(
            "--device auto: %zu processes on a machine with %s: start one process per GPU, or name the "
            "device that all of them use with --device, such as --device 0",
            same, counted(gpus.size(), "GPU").c_str());
    if (job.rank == 0) note_hidden_devices(stdout);
    return std::to_string(
        gpus[size_t(std::count(devices.begin(), devices.begin() + job.machine_rank, "auto"))].index);
}

void note_devices(const Options& o, LaunchPad* pad, Communicator& job) {
    std::vector<std::string> notes = take_notes();
    if (pad)
        for (const std::string& note : pad->memory_notes()) notes.push_back(note);
    const std::vector<std::string> all = job.gather(joined(notes, "\n"));
    const std::vector<std::string> devices =
        job.gather(pad ? format_string("device %d", pad->device().index) : "cpu");
    std::set<std::string> printed;
    for (size_t rank = 0; rank < all.size(); rank++) {
        const bool is_named = rank || o.is_divided;
        const std::string whose = format_string("rank %zu (%s): ", rank, devices[rank].c_str());
        for (const std::string& note : lines_of(all[rank]))
            if (printed.insert(note).second)
                print_line(stdout, "note: %s%s", is_named ? whose.c_str() : "", note.c_str());
    }
}

// --- unlike devices ---

void share_cores(const Options& o, const std::vector<bool>& members, Communicator& job) {
    const std::vector<std::string> all = job.gather(o.device);
    std::vector<std::string> devices;  // of this machine's members
    for (int rank = job.rank - job.machine_rank, i = 0; i < job.machine_size; i++, rank++)
        if (members[size_t(rank)]) devices.push_back(all[size_t(rank)]);
    if (!devices.empty()) take_share_of_cores(o, devices);
}

// What decides how fast this process trains: the device's name, for the CPU and software also threads.
static std::string speed_of_device(const Options& o, const LaunchPad* pad) {
    std::string text = pad ? pad->device().name : "cpu";
    const int threads = pad ? omp_get_num_procs() : omp_get_max_threads();
    if (!pad || !pad->device().is_gpu()) text += ", " + counted(uint64_t(threads), "thread");
    if (own_share(o) > 0) text += format_string(", --share %g", own_share(o));
    return text;
}

void compare_devices(Options& o, const LaunchPad* pad, Communicator& job) {
    if (o.knows_devices) return;
    // an option that each process may have of its own also makes them unlike
    const std::vector<std::string> all = job.gather(
        format_string("%s, %d %d, %d %d, %d %d, %llu", speed_of_device(o, pad).c_str(), o.is_given(o.batch),
                      o.batch, o.is_given(o.recompute), o.recompute, o.is_given(o.offload),
                      o.offloads_optimizer(), (unsigned long long)o.device_memory));
    o.knows_devices = true;
    o.is_divided = std::count(all.begin(), all.end(), all[0]) < job.size;
    const std::vector<double> batches = job.gather(o.is_given(o.batch) ? o.batch : 0.0);
    if (!std::count(batches.begin(), batches.end(), 0.0))
        o.batch_of_all = int(std::min(std::accumulate(batches.begin(), batches.end(), 0.0), 0x1p30));
}

void choose_step_of_all(Options& o, Communicator& job) {
    double sequences = o.batch ? o.batch : Options().batch;
    if (o.is_divided && o.total_batch == -1) {
        job.all_reduce_sum(&sequences, 1);
        o.total_batch = int(sequences) * o.sequence;
    }
    job.agree([&] { check_batch(o); });
}

static Division division_of_shares(const Options& o, const std::vector<ProcessSpeed>& all,
                                   std::vector<double> shares) {
    const auto missing = std::count(shares.begin(), shares.end(), 0.0);
    if (missing)
        fail("--share is given to %zu of %zu processes: give it to all of them, or to none",
             shares.size() - size_t(missing), shares.size());
    for (double& share : shares) share = 1 / share;
    return divide_step(o.global_batch(), all, shares);
}

Division agree_on_division(const Options& o, const Start& start, const LaunchPad* pad,
                           const MeasureDivision& measure, Communicator& job) {
    const Division& before = start.state.division;
    if (!o.is_divided) {
        if (!before.empty())
            printf(
                "note: the run's steps are not divided by speed any more: this job has one process, or equal "
                "devices\n");
        return {};
    }
    const std::vector<std::string> devices = job.gather(speed_of_device(o, pad));
    const std::vector<double> most = job.gather(o.batch), shares = job.gather(own_share(o));
    std::vector<ProcessSpeed> processes;
    for (size_t i = 0; i < devices.size(); i++) processes.push_back({devices[i], int(most[i])});
    const bool has_gpu = pad && pad->device().is_gpu();
    std::vector<bool> on_cores;
    for (const double is_on_cores : job.gather(!has_gpu)) on_cores.push_back(is_on_cores > 0);
    Division division = before;
    const bool leaves_out = std::ranges::count(members_of(before), false) > 0;
    if (!fits(before, o.global_batch(), processes) || (leaves_out && job.num_nodes > 1)) {
        if (!before.empty())
            printf("note: the division of a step changes, since the processes have changed\n");
        const bool measures = std::count(shares.begin(), shares.end(), 0.0) == job.size;
        division = measures
                       ? fastest_division(o.global_batch(), processes, on_cores, job.num_nodes > 1, measure)
                       : division_of_shares(o, processes, shares);
    }
    return division;
}

// Owners of one local rank follow each other, so that their shards are neighbours: gradient_exchange.h.
OptimizerShare share_of_process(const Options& o, const Communicator& job) {
    for (int node = 0; node < job.num_nodes; node++) {
        const int processes = job.first_ranks[node + 1] - job.first_ranks[node];
        if (processes == job.local_size) continue;
        fail(
            "machine %d runs %d process%s, and machine %d runs %d: start the same number on each, for "
            "example with mpirun --map-by ppr:%d:node",
            job.node + 1, job.local_size, job.local_size == 1 ? "" : "es", node + 1, processes,
            std::min(processes, job.local_size));
    }
    return {job.local_rank * job.num_nodes + job.node, job.size, o.optimizer};
}

Division division_by_speed(const Division& before, const Options& o, double seconds, Communicator& job) {
    const std::vector<double> each = job.gather(seconds), most = job.gather(o.batch);
    if (std::count(each.begin(), each.end(), 0.0)) return before;
    std::vector<ProcessSpeed> processes;
    for (const ProcessShare& share : before)
        if (share.sequences > 0) processes.push_back({share.device, int(most[processes.size()])});
    const Division next = with_others(divide_step(o.global_batch(), processes, each), before);
    return slowest_seconds(next, each) < 0.9 * slowest_seconds(before, each) ? next : before;
}

static void add_data(NamedTexts& all, const char* what, const std::vector<SavedShard>& shards) {
    for (const SavedShard& shard : shards)
        all.emplace_back(what,
                         format_string("%s %s of %llu tokens with the checksum %s", what, shard.name.c_str(),
                                       (unsigned long long)shard.tokens, shard.checksum.c_str()));
}

// What tells the file from others, also from one in its place on another machine.
static std::string identity_of(const std::string& path) {
    const FileStatus status = status_of(open_to_read(path), path);
    return format_string("%llu %llu %llu %lld", (unsigned long long)status.device,
                         (unsigned long long)status.number, (unsigned long long)status.size,
                         (long long)status.written);
}

// The checksum of the weights that a run starts from, which one process of each node reads, and others if
// they see another file. A checkpoint that is resumed says it itself.
static std::string checksum_of_weights(const RunInputs& inputs, Communicator& job) {
    const Start& start = inputs.start;
    const int first = job.rank - job.local_rank;
    const std::string& model = inputs.model.path;
    const bool is_sealed = start.resumed && file_exists(run_path(start.folder, start.step));
    const bool is_file = !is_sealed && is_model_file(model);
    const std::vector<std::string> files = job.gather(is_file ? identity_of(model) : "");
    const bool reads = is_file && (job.local_rank == 0 || files[job.rank] != files[first]);
    const std::string own = reads ? checksum_of_file(model) : "";
    const std::vector<std::string> all = job.gather(own);
    return reads ? own : all[first];
}

// What a process sees of a run.
static NamedTexts description(const RunInputs& inputs, Communicator& job) {
    NamedTexts all;
    const auto add = [&](const std::string& what, const std::string& path) {
        all.emplace_back(what, what + " with the checksum " + checksum_of_file(path));
    };
    all.emplace_back("start", format_string("starts at step %d", inputs.start.step));
    if (inputs.loader) add_data(all, "training data", shards_of(*inputs.loader));
    for (const DataLoader& val : inputs.val) add_data(all, "validation data", shards_of(val));
    const std::string weights = checksum_of_weights(inputs, job);
    if (!weights.empty()) all.emplace_back("weights", "weights with the checksum " + weights);
    // has the checksums of its other files
    const std::string state = run_path(inputs.start.folder, inputs.start.step);
    if (inputs.start.resumed && file_exists(state)) add("a checkpoint", state);
    if (inputs.tokenizer)
        all.emplace_back("tokenizer", "a tokenizer with the checksum " + info_of(*inputs.tokenizer).checksum);
    if (!inputs.hellaswag_file.empty()) add("HellaSwag", inputs.hellaswag_file);
    return all;
}

// The first of one's own that the other does not have; nothing if it has all.
static std::optional<NamedText> first_not_in(const NamedTexts& own, const NamedTexts& other) {
    for (const NamedText& text : own)
        if (!std::count(other.begin(), other.end(), text)) return text;
    return std::nullopt;
}

static std::string text_of(const NamedTexts& texts, const std::string& name) {
    for (const NamedText& text : texts)
        if (text.first == name) return text.second;
    return "nothing";
}

// Throws Error in all processes if they do not have the same.
static void expect_same(const NamedTexts& own, Communicator& job) {
    const auto lossy = nlohmann::json::error_handler_t::replace;  // paths need not be UTF-8
    const std::vector<std::string> all = job.gather(nlohmann::json(own).dump(-1, ' ', false, lossy));
    job.agree([&] {
        if (all[job.rank] == all[0]) return;
        const NamedTexts first = nlohmann::json::parse(all[0]);
        const auto extra = first_not_in(own, first), missing = first_not_in(first, own);
        const std::string name = extra ? extra->first : missing ? missing->first : "";
        const bool is_pair = extra && missing && extra->first == missing->first;
        fail("this process has '%s', rank 0 has '%s': give all processes the same options and data",
             extra ? extra->second.c_str() : text_of(own, name).c_str(),
             is_pair || !extra ? missing->second.c_str() : text_of(first, name).c_str());
    });
}

void check_same_options(const Options& o, Communicator& job) { expect_same(given_options(o), job); }

void check_all_options(const Options& o, Communicator& job) { expect_same(saved_options(o, true), job); }

void check_same_inputs(const RunInputs& inputs, Communicator& job) {
    if (job.size > 1) expect_same(description(inputs, job), job);
}
