#include "llmc/run/processes.h"

#include <omp.h>

#include <algorithm>
#include <set>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/os.h"
#include "llmc/base/system_files.h"
#include "llmc/data/saved_shards.h"
#include "llmc/files/checkpoint.h"
#include "llmc/files/model_file.h"
#include "llmc/launchpad/device.h"
#include "llmc/launchpad/open_device.h"
#include "llmc/options/option_files.h"

static std::vector<DeviceInfo> usable_gpus() {
    std::vector<DeviceInfo> gpus;
    try {
        for (const DeviceInfo& device : list_devices())
            if (device.is_gpu() && device.missing.empty()) gpus.push_back(device);
    } catch (const Error&) {
        // no Vulkan: no GPUs
    }
    return gpus;
}

// Unless mpirun has bound the processes to cores of their own, or the user has said how many threads to use.
static void take_share_of_cores(const Options& o, const Communicator& job) {
    const int cores = omp_get_num_procs();
    if (o.machine.threads || getenv("OMP_NUM_THREADS") || cores < online_cpus()) return;
    omp_set_num_threads(std::max(1, std::min(cores, cpu_quota()) / job.machine_size));
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
static bool each_sees_its_own(const std::vector<std::string>& seen, const Communicator& job) {
    const auto first = seen.begin() + (job.rank - job.machine_rank), end = first + job.machine_size;
    const bool single = std::all_of(first, end, [](const std::string& gpus) {
        return gpus.size() > 1 && std::count(gpus.begin(), gpus.end(), ' ') == 1;
    });
    return single && int(std::set<std::string>(first, end).size()) == job.machine_size;
}

std::string device_of_process(const Options& o, Communicator& job) {
    if (job.machine_size == 1) return o.device;
    take_share_of_cores(o, job);  // a GPU's process sums gradients, too
    if (o.device != "auto") return o.device;
    const std::vector<DeviceInfo> gpus = usable_gpus();
    std::string addresses;
    for (const DeviceInfo& gpu : gpus) addresses += gpu.pci + " ";
    const std::vector<std::string> seen = job.gather(addresses);
    if (gpus.empty()) return "cpu";
    if (each_sees_its_own(seen, job)) return std::to_string(gpus[0].index);
    if (int(gpus.size()) < job.machine_size)
        fail(
            "--device auto: %d processes on a machine with %zu GPU%s: start one process per GPU, or name "
            "the device that all of them use with --device, such as --device 0",
            job.machine_size, gpus.size(), gpus.size() == 1 ? "" : "s");
    if (job.rank == 0) note_hidden_devices(stdout);
    return std::to_string(gpus[job.machine_rank].index);
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
static std::string checksum_of_weights(const Options& o, const RunInputs& inputs, Communicator& job) {
    const int step = inputs.start.step, first = job.rank - job.local_rank;
    const std::string model = inputs.start.resumed ? model_path(o.output, step) : inputs.model_path;
    const bool is_sealed = inputs.start.resumed && file_exists(run_path(o.output, step));
    const bool is_file = !is_sealed && is_model_file(model);
    const std::vector<std::string> files = job.gather(is_file ? identity_of(model) : "");
    const bool reads = is_file && (job.local_rank == 0 || files[job.rank] != files[first]);
    const std::string own = reads ? checksum_of_file(model) : "";
    const std::vector<std::string> all = job.gather(own);
    return reads ? own : all[first];
}

// What a process sees of a run.
static NamedTexts description(const Options& o, const RunInputs& inputs, Communicator& job) {
    NamedTexts all = saved_options(o);
    const auto add = [&](const std::string& what, const std::string& path) {
        all.emplace_back(what, what + " with the checksum " + checksum_of_file(path));
    };
    all.emplace_back("start", format_string("starts at step %d", inputs.start.step));
    if (inputs.loader) add_data(all, "training data", shards_of(*inputs.loader));
    for (const DataLoader& val : inputs.val) add_data(all, "validation data", shards_of(val));
    const std::string weights = checksum_of_weights(o, inputs, job);
    if (!weights.empty()) all.emplace_back("weights", "weights with the checksum " + weights);
    const std::string state = run_path(o.output, inputs.start.step);  // has the checksums of its other files
    if (inputs.start.resumed && file_exists(state)) add("a checkpoint", state);
    if (inputs.tokenizer)
        all.emplace_back("tokenizer", "a tokenizer with the checksum " + info_of(*inputs.tokenizer).checksum);
    if (o.hellaswag) add("HellaSwag", o.hellaswag_file);
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

void check_agreement(const Options& o, const RunInputs& inputs, Communicator& job) {
    if (job.size > 1) expect_same(description(o, inputs, job), job);
}
