#include "llmc/run/processes.h"

#include <omp.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <span>

#include "llmc/base/error.h"
#include "llmc/base/lines.h"
#include "llmc/base/os.h"
#include "llmc/kernels/self_test.h"
#include "llmc/launchpad/device.h"
#include "llmc/launchpad/open_device.h"
#include "llmc/options/start_program.h"

std::vector<DeviceInfo> all_devices() {
    try {
        return list_devices();
    } catch (const Error&) {
        return {};  // no Vulkan
    }
}

bool is_usable_gpu(const DeviceInfo& device) { return device.is_gpu() && device.missing.empty(); }

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
    if (o.machine.threads || threads_of_environment() || cores < online_cpus()) return;
    const int on_cpu = int(std::count(devices.begin(), devices.end(), "cpu")),
              usable = std::min(cores, cpu_quota());
    const bool is_mixed = on_cpu > 0 && on_cpu < processes;
    const int share = !is_mixed           ? usable / processes
                      : o.device == "cpu" ? (usable - processes + on_cpu) / on_cpu
                                          : 1;
    omp_set_num_threads(std::clamp(share, 1, omp_get_thread_limit()));
}

void note_bound_cores(const Options& o, const Communicator& job) {
    const int cores = omp_get_num_procs(), all = online_cpus();
    if (!has_launcher() || o.machine.threads || cores * job.machine_size > all / 2) return;
    print_line(stdout,
               "note: the launcher gives each process %d of this machine's %d cores, %d in all: mpirun "
               "--bind-to none gives them all",
               cores, all, cores * job.machine_size);
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
    if (!pad || !pad->device().is_gpu()) text += ", " + counted(threads, "thread");
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
